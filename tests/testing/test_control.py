"""The HTTP interface of a Kafka for tests: what it answers, what it refuses, and its OpenAPI document."""

from __future__ import annotations

import io
import json
import re

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from kraftcore.testing import KafkaCluster, in_thread
from kraftcore.testing.control import Control


class Asked:
    """The interface of a cluster, without a socket."""

    def __init__(self, kafka):
        self.kafka = kafka
        self._application = Control(kafka)

    def __call__(self, method, path, body=None, **extra):
        """The status, and the JSON."""
        raw = b"" if body is None else json.dumps(body).encode()
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "CONTENT_LENGTH": str(len(raw)), **extra}
        told = []
        answer = b"".join(
            self._application({**environ, "wsgi.input": io.BytesIO(raw)}, lambda status, headers: told.append(status))
        )
        return int(told[0].split()[0]), json.loads(answer) if answer else None

    def good(self, *request):
        status, found = self(*request)
        assert status == (204 if found is None else 200), found
        return found


@pytest.fixture(scope="module")
def asked():
    with in_thread(KafkaCluster(2)) as kafka:
        kafka.create_topic("t")
        yield Asked(kafka)


def test_its_document_describes_what_it_answers(asked):
    document = asked.good("GET", "/openapi.json")
    OpenAPIV31SpecValidator(document).validate()
    described = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    overview = asked.good("GET", "/")
    assert described == {(each["method"], each["path"]) for each in overview["endpoints"]}
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(ids)) == len(ids) == 20
    assert document["components"]["schemas"]["NewFault"]["required"] == ["api"]
    assert document["paths"]["/faults"]["post"]["requestBody"]["required"] is True
    assert (
        document["paths"]["/topics/{topic}/partitions/{partition}/leader"]["post"]["requestBody"]["required"] is False
    )
    assert overview["bootstrapServers"] == asked.kafka.bootstrap_servers
    assert (overview["securityProtocol"], overview["caFile"], overview["faults"]) == ("PLAINTEXT", None, [])


def test_nodes_end_and_come_again_and_leaders_move(asked):
    assert [(each["id"], each["role"], each["state"]) for each in asked.good("GET", "/nodes")] == [
        (1, "broker", "running"),
        (2, "broker", "running"),
        (101, "controller", "running"),
    ]
    for action, state in (
        ("pause", "paused"),
        ("resume", "running"),
        ("kill", "stopped"),
        ("start", "running"),
        ("restart", "running"),
        ("stop", "stopped"),
        ("start", "running"),
    ):
        node = asked.good("POST", f"/nodes/1/{action}")
        assert node == {"id": 1, "role": "broker", "state": state, "address": asked.kafka.address(1)}
        assert asked.good("GET", "/nodes/1") == node
    assert asked.good("GET", "/nodes/101")["address"] is None
    assert len(asked.good("GET", "/ready")) == 3
    asked.kafka.wait_isr("t")
    place = "/topics/t/partitions/0"
    first = asked.good("GET", place)
    assert first["isr"] == [1, 2]
    assert asked.good("POST", f"{place}/leader")["leader"] == 3 - first["leader"]
    assert asked.good("POST", f"{place}/leader", {"to": first["leader"]}) == first
    assert asked.good("POST", "/network/partition", {"groups": [[1, 101], [2]]}) == {"groups": [[1, 101], [2]]}
    asked.good("POST", "/network/heal")


def test_faults_begin_and_end(asked):
    wanted = {"api": "Fetch", "delayMs": 500, "times": None, "topic": "t", "clientId": "shop"}
    made = asked.good("POST", "/faults", wanted)
    assert {name: made[name] for name in wanted} == wanted
    assert (made["error"], made["close"], made["hits"], made["hasEnded"]) == (None, None, 0, False)
    one = f"/faults/{made['id']}"
    assert asked.good("GET", "/faults") == asked.good("GET", "/")["faults"] == [made]
    assert asked.good("DELETE", one) == asked.good("GET", one) == {**made, "hasEnded": True}
    assert asked.good("POST", "/faults", {"api": "produce", "error": "not_leader_or_follower"})["times"] == 1
    asked.good("DELETE", "/faults")
    assert asked.good("GET", "/faults") == []


@pytest.mark.parametrize(
    ("request_", "status", "text"),
    [
        (("GET", "/node"), 404, r"there is no /node: GET / lists what there is"),
        (("GET", "/nodes/one"), 404, r"there is no /nodes/one"),
        (("POST", "/nodes/9/kill"), 404, r"there is no node 9: there are 1, 2, 101"),
        (("DELETE", "/nodes/1"), 405, r"/nodes/1 takes GET, not DELETE"),
        (("POST", "/nodes/1/start"), 400, r"node 1 runs"),
        (("GET", "/topics/u/partitions/0"), 404, r"there is no topic u"),
        (("POST", "/topics/t/partitions/7/leader"), 404, r"topic t has no partition 7"),
        (("POST", "/topics/t/partitions/0/leader", {"to": 9}), 400, r"broker 9 is not in sync: broker \d leads t-0"),
        (("POST", "/network/partition"), 400, r"missing required field `groups`"),
        (("POST", "/network/partition", {"groups": [[1], [1]]}), 400, r"broker-1 in two groups"),
        (
            ("POST", "/faults", {"api": "Produce", "eror": "x"}),
            400,
            r"field `eror`\. The fields are api, error, delayMs,",
        ),
        (("POST", "/faults", {"api": "Produce", "times": "2"}), 400, r"Expected `int \| null`.*`\$\.times`"),
        (("POST", "/faults", {"api": "Produce", "close": "now"}), 400, r"Invalid enum value 'now' - at `\$\.close`"),
        (("POST", "/faults", {"api": "Prodduce", "close": "after"}), 400, r"did you mean Produce\?"),
        (("GET", "/faults/1000"), 404, r"there never was a fault 1000"),
    ],
)
def test_what_cannot_be_is_refused_and_told(asked, request_, status, text):
    found, answer = asked(*request_)
    assert found == status
    assert re.search(text, answer["error"]), answer


def test_pages_in_a_browser_and_endless_bodies_are_refused_and_what_does_not_happen_in_time_is_told(asked, monkeypatch):
    assert asked("POST", "/nodes/1/kill", HTTP_ORIGIN="http://127.0.0.1:8082")[0] == 403
    assert asked.kafka.states[1] == "running"
    for header in ({"HTTP_TRANSFER_ENCODING": "chunked"}, {"CONTENT_LENGTH": "x"}, {"CONTENT_LENGTH": str(2**21)}):
        status, answer = asked("POST", "/faults", **header)
        assert (status, "with its Content-Length" in answer["error"]) == (400, True)

    def fail():
        raise AssertionError("waited 30 s for brokers to be unfenced")

    monkeypatch.setattr(asked.kafka, "wait_ready", fail)
    assert asked("GET", "/ready") == (504, {"error": "waited 30 s for brokers to be unfenced"})
