"""Controllers under test, shared by many tests or a test's own."""

from functools import partial

import pytest
from conformance.target import Workspace
from controller_suite.cluster import Cluster
from controller_suite.security_kit import AUTHORIZER, SECRET, Secure
from controller_suite.topics_kit import Admin


@pytest.fixture(scope="session")
def kind(pytestconfig):
    return pytestconfig.getoption("--target") or "kraftcore"


@pytest.fixture(scope="session")
def ws(request, kind, tmp_path_factory):
    kafka = request.getfixturevalue("kafka") if kind == "kafka" else None
    with Workspace(kind, tmp_path_factory.mktemp("controllers"), kafka) as w:
        yield w


@pytest.fixture(scope="session")
def shared(ws):
    with Cluster(ws).format().start() as c:
        yield c


@pytest.fixture
def ctl(shared):
    """The shared controller, one node, without topics and brokers: what a test leaves behind is removed after it."""
    if not shared.nodes[1].alive:
        shared.start()
    elif not shared.active():
        shared.forget()
        shared.wait_active()
    yield shared
    shared.clean()


@pytest.fixture
def w(ctl):
    return Admin(ctl)


@pytest.fixture(scope="session")
def lone_cluster(ws):
    with Cluster(ws).format().start() as c:
        yield c


@pytest.fixture
def lone(lone_cluster):
    """A second shared controller, for tests that count brokers: Kafka's first one may keep fenced brokers of others."""
    yield Admin(lone_cluster)
    lone_cluster.clean()


@pytest.fixture(scope="session")
def worn_cluster(ws):
    with Cluster(ws).format().start() as c:
        yield c


@pytest.fixture
def worn(worn_cluster):
    """A shared controller for tests that clear a non-empty ELR.

    Kafka 4.3.1 cannot unregister the brokers concerned once their topic is deleted (it throws and resigns), so they
    stay here, fenced.
    """
    c = worn_cluster
    yield Admin(c)
    for topic_id in c.log.topics().values():
        c.delete(topic_id)
    for broker in c.brokers:
        broker.fence()
    c.brokers = []


def factory(ws):
    made = []

    def make(n=1, format_args=(), start=True, formatted=True, **props):
        c = Cluster(ws, n, format_args=format_args, **props)
        made.append(c)
        if formatted:
            c.format()
        return c.start() if start else c

    yield make
    for c in made:
        c.close()


@pytest.fixture(scope="session")
def sec(ws):
    """A shared controller with SASL (PLAIN, SCRAM), an authorizer, tokens; a listener OPEN without authentication."""
    with Secure(
        ws,
        open_port=True,
        **{"authorizer.class.name": AUTHORIZER, "super.users": "User:admin", "delegation.token.secret.key": SECRET},
    ) as c:
        yield c.format().start()


@pytest.fixture
def secure(ws):
    """Factory of clusters with SASL; they are neither formatted nor started."""
    return partial(Secure, ws)


@pytest.fixture
def cluster(ws):
    """Factory of a test's own: cluster(3, **{"broker.session.timeout.ms": 1000}); killed at its end."""
    yield from factory(ws)


@pytest.fixture(scope="module")
def module_cluster(ws):
    """The same for fixtures of a test file: killed after its last test."""
    yield from factory(ws)
