"""Brokers under test, shared by many tests or a test's own."""

import os
from pathlib import Path

import pytest
from replica_suite.scenes import Scene
from replica_suite.target import Workspace


@pytest.fixture(scope="session")
def kind(pytestconfig):
    return pytestconfig.getoption("--target") or "kraftcore"


@pytest.fixture(scope="session")
def ws(kind, tmp_path_factory):
    libs = os.environ.get("KAFKA_391_LIBS")
    if kind == "kafka" and not (libs and list(Path(libs).glob("zookeeper-3*.jar"))):
        pytest.fail("KAFKA_391_LIBS must name a folder with the jars of Kafka 3.9.1 and its ZooKeeper", pytrace=False)
    with Workspace(kind, tmp_path_factory.mktemp("replicas"), libs and Path(libs).resolve()) as w:
        yield w


@pytest.fixture(scope="session")
def shared(ws):
    s = Scene(ws)
    yield s
    s.close()


@pytest.fixture
def scene(shared):
    """The shared broker 1 with the fake brokers 2 and 3; the topics of a test are deleted at its end."""
    shared.revive()
    yield shared
    shared.clean()


@pytest.fixture
def own(ws):
    """own(dirs=1, **properties): a broker of this test alone."""
    made = []

    def make(dirs=1, **props):
        made.append(Scene(ws, dirs, **props))
        return made[-1]

    yield make
    for s in made:
        s.close()
