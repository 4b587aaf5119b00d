"""Who answers which request, in which order, and what happens when there are too many."""

from __future__ import annotations

import pytest
import trio
from nodes import Lab, run
from noted_request import NotedRequest

from kraftcore.errors import LocalError
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.node.registry import (
    TASKS_MAX,
    WAITING_MAX,
    Access,
    ListenerType,
    Priority,
    Registry,
    RequestHandler,
    Waiting,
    WaitingRequests,
)
from kraftcore.node.serving import consensus_handlers
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kraftcore.protocol.messages.stop_replica import StopReplicaRequest
from kraftcore.protocol.registry import ApiKey

CONTEXT = NotedRequest()
ENVELOPE = EnvelopeRequest(request_data=b"a", request_principal=b"", client_host_address=bytes(4))


def never(request, context):
    raise AssertionError("nobody asked")


def keys(registry, listener="CONTROLLER"):
    return {each.api_key: (each.min_version, each.max_version) for each in registry.offers(listener)}


def test_what_is_offered_is_what_is_answered():
    registry = Registry()
    for handler in consensus_handlers():
        registry.register(handler)
    registry.register(RequestHandler(ListGroupsRequest, never, versions=(2, 3)))
    registry.register(RequestHandler(EnvelopeRequest, never, listeners=frozenset({"INTERNAL"})))
    offered = keys(registry)
    assert offered[ApiKey.LIST_GROUPS] == (2, 3)
    assert ApiKey.API_VERSIONS in offered
    assert ApiKey.ENVELOPE not in offered
    assert ApiKey.ENVELOPE in keys(registry, "INTERNAL")
    handler = registry.find(ListGroupsRequest)
    assert [handler.serves("CONTROLLER", version) for version in (1, 2, 3, 4)] == [False, True, True, False]
    assert registry.find(FetchRequest).access == Access("CLUSTER_ACTION")
    assert all(handler.access is not None for handler in registry.handlers[:-2] if handler.owner == "consensus")


def test_the_same_request_is_anothers_on_a_brokers_listener():
    registry = Registry(["CLIENTS"])
    for handler in consensus_handlers():
        registry.register(handler)
    fetch = RequestHandler(FetchRequest, never, versions=(4, 12), owner="broker", listener_type=ListenerType.BROKER)
    registry.register(fetch)
    registry.register(RequestHandler(ListGroupsRequest, never, listener_type=None))
    assert registry.type_of("CLIENTS") is ListenerType.BROKER
    assert registry.find(FetchRequest, "CLIENTS") is fetch
    assert registry.find(FetchRequest, "CONTROLLER").owner == "consensus"
    assert keys(registry, "CLIENTS").keys() == {ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.LIST_GROUPS}
    assert keys(registry, "CLIENTS")[ApiKey.FETCH] == (4, 12)
    assert keys(registry)[ApiKey.FETCH][1] > 12
    assert ApiKey.LIST_GROUPS in keys(registry)
    registry.withdraw(FetchRequest)
    assert registry.find(FetchRequest, "CLIENTS") is fetch
    assert registry.find(FetchRequest) is None
    with pytest.raises(LocalError, match="FetchRequest is answered by broker: plugin b cannot answer it, too"):
        registry.register(RequestHandler(FetchRequest, never, owner="plugin b", listener_type=None))


def test_versions_that_kafka_4_dropped_are_offered_when_they_are_named():
    registry = Registry()
    registry.register(RequestHandler(StopReplicaRequest, never, versions=(0, 99)))
    registry.register(RequestHandler(FetchRequest, never, versions=(2, 12)))
    offered = keys(registry)
    assert (offered[ApiKey.STOP_REPLICA], offered[ApiKey.FETCH]) == ((0, 4), (2, 12))
    assert [each.kind for each in registry.handlers] == [FetchRequest, StopReplicaRequest]


def test_a_plugin_takes_over_what_is_the_nodes_but_not_another_plugins():
    registry = Registry()
    registry.register(RequestHandler(DescribeClusterRequest, never))
    registry.register(RequestHandler(DescribeClusterRequest, never, owner="plugin a"))
    with pytest.raises(LocalError, match="answered by plugin a: plugin b cannot"):
        registry.register(RequestHandler(DescribeClusterRequest, never, owner="plugin b"))


def test_the_urgent_go_first_and_queues_are_bounded():
    queues = WaitingRequests(tasks_max=1, waiting_max=2)

    def item(priority):
        return Waiting(RequestHandler(EnvelopeRequest, never, priority=priority), CONTEXT, None)

    control, data = item(Priority.CONTROL), item(Priority.DATA)
    assert [queues.add(each) for each in (data, data, data, control)] == [True, True, False, True]
    assert queues.next() is control
    assert queues.next() is None  # one runs
    queues.done()
    assert queues.next() is data


def test_handlers_at_once_later_and_as_tasks():
    class Answering(Plugin):
        name = "answering"

        def __init__(self):
            self.seen = []

        def at_once(self, request, context):
            self.seen.append(context)
            return EnvelopeResponse(response_data=b"at once")

        def later(self, request, context):
            trio.lowlevel.spawn_system_task(self._answer, context)

        async def _answer(self, context):
            await trio.sleep(0.01)
            context.answer(ListGroupsResponse(error_code=7))

        async def task(self, request, context):
            await trio.sleep(0.01)
            raise ValueError("no")

        @property
        def handlers(self):
            return [
                RequestHandler(EnvelopeRequest, self.at_once),
                RequestHandler(ListGroupsRequest, self.later),
                RequestHandler(DescribeClusterRequest, self.task),
            ]

    async def main():
        lab = Lab()
        answering = Answering()
        async with lab.quorum(2) as (one, _), lab.node(3, plugins=[answering]):
            assert (await plugin_node(one).ask("n3", 9093, ENVELOPE, 5000)).response_data == b"at once"
            assert (await plugin_node(one).ask("n3", 9093, ListGroupsRequest(), 5000)).error_code == 7
            assert await plugin_node(one).ask("n3", 9093, DescribeClusterRequest(), 5000) is Failure.RESET
            (context,) = answering.seen
            assert str(context.asker.principal) == "User:ANONYMOUS"
            assert context.client_id == "kraftcore-1"
            assert context.asker.listener == "CONTROLLER"
            answer = await plugin_node(one).ask("n3", 9093, ApiVersionsRequest(), 5000)
            assert ApiKey.ENVELOPE in {each.api_key for each in answer.api_keys}

    run(main, limit_s=60)


def test_one_that_answers_twice_hurts_nobody_else(caplog):
    class Twice(Plugin):
        name = "twice"

        async def twice(self, request, context):
            context.answer(EnvelopeResponse())
            return EnvelopeResponse()

        @property
        def handlers(self):
            return [RequestHandler(EnvelopeRequest, self.twice)]

    async def main():
        lab = Lab()
        async with lab.node(1, plugins=[Twice()]) as node:
            assert isinstance(await plugin_node(node).ask("n1", 9093, ENVELOPE, 5000), EnvelopeResponse)
            await trio.sleep(0.01)
            assert not node.stopped.is_set()

    run(main, limit_s=60)
    assert "n1 cannot be told EnvelopeResponse" in caplog.text


def test_an_answer_that_cannot_be_written_costs_its_asker_the_connection(caplog):
    """Whoever's event it comes up in: here a timer's, and a handler's that the node cannot do without."""

    class Long(Plugin):
        name = "long"
        participates = True

        def later(self, request, context):
            def answer():
                context.answer(DescribeClusterResponse(error_message="x" * 40_000))
                context.close()  # nothing comes of it
                answered.set()

            trio.lowlevel.current_trio_token().run_sync_soon(answer)

        def at_once(self, request, context):
            return ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id="x" * 40_000)])

        @property
        def handlers(self):
            return [RequestHandler(DescribeClusterRequest, self.later), RequestHandler(ListGroupsRequest, self.at_once)]

    answered = trio.Event()

    async def main():
        lab = Lab()
        async with lab.node(1, plugins=[Long()]) as node:
            for request in (DescribeClusterRequest(), ListGroupsRequest()):
                assert await plugin_node(node).ask("n1", 9093, request, 5000) is Failure.RESET
            assert answered.is_set()
            assert not node.stopped.is_set()

    run(main, limit_s=60)
    assert "cannot be told DescribeClusterResponse" in caplog.text
    assert "cannot be told ListGroupsResponse" in caplog.text


def test_too_many_are_turned_away(caplog):
    """The queue of one priority is full: its askers' connections break; the other priority is served."""
    go_on = trio.Event()

    class Slow(Plugin):
        name = "slow"
        running = 0

        async def wait(self, request, context):
            Slow.running += 1
            await go_on.wait()
            return EnvelopeResponse()

        async def urgent(self, request, context):
            return ListGroupsResponse()

        @property
        def handlers(self):
            return [
                RequestHandler(EnvelopeRequest, self.wait),
                RequestHandler(ListGroupsRequest, self.urgent, priority=Priority.CONTROL),
            ]

    async def main():
        lab = Lab()
        async with (
            lab.node(1, plugins=[Slow()]) as node,
            lab.network.transport("crowd") as crowd,
            lab.network.transport("urgent") as urgent,
        ):
            many, one = [], []
            at = Address("n1", 9093)
            for number in range(TASKS_MAX + WAITING_MAX):
                crowd.request(at, [encode_request(ENVELOPE, 0, number)], 60_000, many.append)
            while Slow.running < TASKS_MAX:
                await trio.sleep(0.001)
            urgent.request(at, [encode_request(ListGroupsRequest(), 3, 1)], 60_000, one.append)
            assert await plugin_node(node).ask("n1", 9093, ENVELOPE, 60_000) is Failure.RESET
            assert Slow.running == TASKS_MAX
            assert many == one == []  # the urgent one waits in the queue of its priority
            go_on.set()
            while len(many) < TASKS_MAX + WAITING_MAX or not one:
                await trio.sleep(0.001)
            assert all(isinstance(answer, bytes) for answer in many + one)
            assert Slow.running == TASKS_MAX + WAITING_MAX

    run(main, limit_s=60)
    assert "data requests wait already" in caplog.text
