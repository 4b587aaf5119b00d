"""Closed loops: so many connections, each with one request in flight, for a few seconds."""

from __future__ import annotations

import multiprocessing
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from bench.peers.controller.load import INT, Load, Result
from bench.peers.controller.nodes import BROKERS, Contender, Quorum
from bench.peers.controller.sizes import Found, Sample, Sizes
from bench.peers.controller.wire import FETCH_VERSION, Broker, Client, Frame, Position, Unexpected, create, placed
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

NAME_MARK = b"@" * 8
EPOCH_MARK, INDEX_MARK = 0x7A6B5C4D, 0x6F6E6D6C
VALUE_MARK = b"1" * 9
CREATE_CONNECTIONS = (1, 16, 64)
IN_FLIGHT = 16
TOPIC_RESOURCE, SET = 2, 0
OBSERVERS_S = 120.0
_FETCH = Frame(Position().request(0), FETCH_VERSION)


@dataclass(frozen=True)
class Traffic:
    """What is asked: a frame for each slot, whether an answer (size included) is good, and a frame to decode it by."""

    frame: Frame
    request: Callable[[int], bytearray]
    is_good: Callable[[bytes], bool]


def run(quorum: Quorum, connections: int, traffic: Traffic, warm_s: float, measure_s: float) -> Result:
    with Load(quorum.leader.port, connections) as load:
        try:
            return load.run(traffic.request, traffic.is_good, warm_s, measure_s, quorum.leader.cpu_s)
        except Unexpected as error:
            if len(error.args) > 1:
                raise Unexpected(f"{error.args[0]}: {traffic.frame.decode(error.args[1][4:])}"[:400]) from None
            raise


def measured(quorum: Quorum, sizes: Sizes, connections: int, traffic: Traffic, each: int = 1, note: str = "") -> Sample:
    """Slices of a loop whose requests do ``each`` units of work."""
    results = [run(quorum, connections, traffic, sizes.warm_s, sizes.measure_s) for _ in range(sizes.slices)]
    middle = sorted(results, key=lambda result: len(result.latencies_s) / result.seconds)[len(results) // 2]
    units = len(middle.latencies_s) * each
    text = f"p50 {middle.quantile_ms(0.5):.3g} ms, p99 {middle.quantile_ms(0.99):.3g} ms"
    text += f", {1e6 * middle.cpu_s / units:.3g} us of processor each{note}"
    figures = [result.seconds / (len(result.latencies_s) * each) for result in results]
    return Sample(figures, sum(len(result.latencies_s) for result in results), text)


def creating(prefix: str) -> Traffic:
    """A topic of one partition on one broker a request, ever new names."""
    name = f"{prefix}-{NAME_MARK.decode()}"
    frame = Frame(CreateTopicsRequest(topics=[placed(name, BROKERS[:1], 1)], timeout_ms=60_000))
    (place,) = frame.at(NAME_MARK)
    # Size, correlation id, tags, throttle time, two lengths, the name and the id of the topic stand before its error.
    error = 4 + 4 + 1 + 4 + 1 + 1 + len(name) + 16
    made = 0

    def request(slot: int) -> bytearray:
        nonlocal made
        made += 1
        out = bytearray(frame.raw)
        out[place : place + 8] = b"%08d" % made
        return out

    return Traffic(frame, request, lambda answer: answer[error : error + 2] == b"\0\0")


def create_topics(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    with Quorum(contender, folder) as quorum:
        quorum.brokers()
        traffic = creating("one")
        run(quorum, IN_FLIGHT, traffic, sizes.warm_s, sizes.warm_s)
        for connections in CREATE_CONNECTIONS:
            if (name := f"create-topic-1/{connections}") in wanted:
                yield name, measured(quorum, sizes, connections, traffic)


def altering(brokers: list[Broker], topic: Uuid, isr: list[Broker], partitions: list[int]) -> Frame:
    """AlterPartition by the first broker; its partition epochs, and a single index, are marks to be patched."""
    data = AlterPartitionRequest.TopicData
    member = data.PartitionData.BrokerState
    members = [member(broker_id=each.id, broker_epoch=each.epoch) for each in isr]
    asked = [
        data.PartitionData(
            partition_index=index, leader_epoch=0, partition_epoch=EPOCH_MARK, new_isr_with_epochs=members
        )
        for index in partitions
    ]
    first = brokers[0]
    return Frame(
        AlterPartitionRequest(
            broker_id=first.id, broker_epoch=first.epoch, topics=[data(topic_id=topic, partitions=asked)]
        )
    )


def alter_partitions(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    with Quorum(contender, folder) as quorum:
        brokers = quorum.brokers()
        if "alter-partition/16" in wanted:
            traffic = alter_one(quorum, brokers)
            run(quorum, IN_FLIGHT, traffic, sizes.warm_s, sizes.warm_s)
            yield "alter-partition/16", measured(quorum, sizes, IN_FLIGHT, traffic)
        if "alter-partition-1000" in wanted:
            traffic = alter_many(quorum, brokers, sizes.altered)
            yield "alter-partition-1000", measured(quorum, sizes, 1, traffic, sizes.altered)


def alter_one(quorum: Quorum, brokers: list[Broker]) -> Traffic:
    """One partition a request: its ISR shrinks when its epoch is even, grows when it is odd."""
    (topic,) = create(quorum.client, [placed(quorum.name(), BROKERS, IN_FLIGHT)])
    frames = [altering(brokers, topic, isr, [INDEX_MARK]) for isr in (brokers[:2], brokers)]
    places = [(frame.at(INT.pack(INDEX_MARK))[0], frame.at(INT.pack(EPOCH_MARK))[0]) for frame in frames]
    epochs = [0] * IN_FLIGHT

    def request(slot: int) -> bytearray:
        epoch = epochs[slot]
        epochs[slot] += 1
        out = bytearray(frames[epoch % 2].raw)
        index_place, epoch_place = places[epoch % 2]
        INT.pack_into(out, index_place, slot)
        INT.pack_into(out, epoch_place, epoch)
        return out

    # The request's error, and the partition's behind the topic's id and two lengths.
    return Traffic(frames[0], request, lambda answer: answer[13:15] == b"\0\0" and answer[37:39] == b"\0\0")


def alter_many(quorum: Quorum, brokers: list[Broker], count: int) -> Traffic:
    """Many partitions of a topic a request, one request in flight."""
    (topic,) = create(quorum.client, [placed(quorum.name(), BROKERS, count)])
    frames = [altering(brokers, topic, isr, list(range(count))) for isr in (brokers[:2], brokers)]
    places = [frame.at(INT.pack(EPOCH_MARK)) for frame in frames]
    epoch = 0

    def request(slot: int) -> bytearray:
        nonlocal epoch
        out = bytearray(frames[epoch % 2].raw)
        for place in places[epoch % 2]:
            INT.pack_into(out, place, epoch)
        epoch += 1
        return out

    def is_good(answer: bytes) -> bool:
        if answer[13:15] != b"\0\0":
            return False
        # Each partition of every fiftieth answer: decoding all would measure the decoder.
        return epoch % 50 != 1 or not any(
            partition.error_code for partition in frames[0].decode(answer[4:]).topics[0].partitions
        )

    return Traffic(frames[0], request, is_good)


def set_configs(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    with Quorum(contender, folder) as quorum:
        quorum.brokers()
        names = [quorum.name() for _ in range(IN_FLIGHT)]
        create(quorum.client, [placed(name, BROKERS[:1], 1) for name in names])
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(name="retention.ms", config_operation=SET, value=VALUE_MARK.decode())
        frames = [
            Frame(
                IncrementalAlterConfigsRequest(
                    resources=[resource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[change])]
                )
            )
            for name in names
        ]
        places = [frame.at(VALUE_MARK)[0] for frame in frames]
        value = 10**8

        def request(slot: int) -> bytearray:
            nonlocal value
            value += 1
            out, place = bytearray(frames[slot].raw), places[slot]
            out[place : place + 9] = b"%d" % value
            return out

        traffic = Traffic(frames[0], request, lambda answer: answer[14:16] == b"\0\0")
        run(quorum, IN_FLIGHT, traffic, sizes.warm_s, sizes.warm_s)
        yield "configs/16", measured(quorum, sizes, IN_FLIGHT, traffic)


def heartbeats(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    with Quorum(contender, folder) as quorum:
        brokers = quorum.brokers(range(BROKERS[0], BROKERS[0] + sizes.brokers))
        frames = [Frame(broker.beat()) for broker in brokers]
        copies = [bytearray(frame.raw) for frame in frames]  # one is in flight: its correlation id is patched in place
        # No error, caught up, not fenced, may not shut down.
        traffic = Traffic(frames[0], lambda slot: copies[slot], lambda answer: answer[13:18] == b"\0\0\1\0\0")
        run(quorum, sizes.brokers, traffic, sizes.warm_s, sizes.warm_s)
        yield "heartbeats", measured(quorum, sizes, sizes.brokers, traffic)


def observed(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """Topics are made while every broker's fetcher waits at the end of the log, in a process of their own."""
    with Quorum(contender, folder) as quorum:
        quorum.brokers(range(BROKERS[0], BROKERS[0] + sizes.brokers))
        traffic = creating("seen")
        run(quorum, IN_FLIGHT, traffic, sizes.warm_s, sizes.warm_s)
        with Observers(quorum.leader.port, sizes.brokers) as observers:
            sample = measured(quorum, sizes, IN_FLIGHT, traffic)
            (topic,) = create(quorum.client, [placed(quorum.name(), BROKERS[:1], 1)])
            begun = time.monotonic()
            fetched = observers.end_with(bytes(topic))
            late_ms = 1e3 * (time.monotonic() - begun)
        note = (
            f", {fetched} fetches with records; the last observer had all of it {late_ms:.0f} ms after the last commit"
        )
        yield "observers-100", Sample(sample.figures, sample.calls, sample.note + note)


class Observers:
    """Fetchers at the end of the log, all in one process of their own: each asks again as soon as it is answered."""

    def __init__(self, port: int, count: int) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_observe, args=(port, count, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.told()  # all of them are at the end

    def told(self) -> int:
        if not self.pipe.poll(OBSERVERS_S):
            raise Unexpected("the observers do not come to the log's end")
        answer = self.pipe.recv()
        if isinstance(answer, str):
            raise Unexpected(f"observers: {answer}")
        assert isinstance(answer, int)
        return answer

    def end_with(self, mark: bytes) -> int:
        """Wait until each has read a batch with these bytes; how many fetches had records."""
        self.pipe.send(mark)
        return self.told()

    def __enter__(self) -> Observers:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _observe(port: int, count: int, pipe: Connection) -> None:
    try:
        _observe_all(port, count, pipe)
    except (OSError, EOFError, Unexpected) as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _observe_all(port: int, count: int, pipe: Connection) -> None:
    poll = select.epoll()
    clients = {}
    position = Position()
    with Client(port) as first:
        while not position.take(first.call(position.request(0), FETCH_VERSION))[1]:
            pass
    for _ in range(count):
        client, own = Client(port), Position()
        own.next, own.epoch, own.last_epoch = position.next, position.epoch, position.last_epoch
        clients[client.socket.fileno()] = (client, own)
        poll.register(client.socket.fileno(), select.EPOLLIN)
        _ask(client, own)
    pipe.send(0)
    poll.register(pipe.fileno(), select.EPOLLIN)
    fetches, mark, behind = 0, None, set(clients)
    tails = dict.fromkeys(clients, b"")
    while behind:
        for descriptor, _ in poll.poll():
            if descriptor == pipe.fileno():
                mark = pipe.recv()
                behind = {each for each in clients if mark not in tails[each]}
                continue
            client, own = clients[descriptor]
            batches, _ = own.take(_FETCH.decode(client.read()))
            if batches:
                fetches += 1
                tails[descriptor] = batches[-1][2]
                if mark is not None and any(mark in raw for _, _, raw in batches):
                    behind.discard(descriptor)
            _ask(client, own)
    pipe.send(fetches)


def _ask(client: Client, own: Position) -> None:
    client.socket.sendall(Frame(own.request(500), FETCH_VERSION).raw)
