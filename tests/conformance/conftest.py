"""The node under test, in the situations that many tests share."""

import pytest
from conformance import scenes
from conformance.target import Workspace
from suite_run import deep


def pytest_generate_tests(metafunc):
    if "kind" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--target")
        metafunc.parametrize("kind", [chosen] if chosen else [*deep("kafka"), "kraftcore"], scope="session")


@pytest.fixture(scope="session")
def ws(request, kind, tmp_path_factory):
    kafka = request.getfixturevalue("kafka") if kind == "kafka" else None
    with Workspace(kind, tmp_path_factory.mktemp("conformance"), kafka) as w:
        yield w


@pytest.fixture(scope="session")
def solo(ws):
    """A standalone controller formatted by the tool: leader of a one-voter quorum. Tests leave it as they find it."""
    n = scenes.standalone(ws)
    yield n
    n.kill()


@pytest.fixture(scope="session")
def loaded(ws):
    """A single leader above a checkpoint, see scenes.loaded_node. Tests only read from it."""
    n = scenes.loaded_node(ws).start()
    scenes.wait_leader(n)
    scenes.settled(n)
    yield n
    n.kill()


@pytest.fixture(scope="session")
def quiet(ws):
    """A voter of three that never starts an election by itself; its log is scenes.history()."""
    with scenes.Quorum(ws, log=scenes.history(), state={"leaderEpoch": 8}) as q:
        q.node.start()
        yield q


@pytest.fixture(scope="session")
def elected(ws):
    with scenes.Quorum(ws, props=scenes.FAST) as q:
        q.elected()
        yield q


@pytest.fixture
def leading(elected):
    """The elected leader of three voters, the others scripted followers that keep up; all of its log is committed."""
    elected.resume()
    scenes.settled(elected.node)
    return elected
