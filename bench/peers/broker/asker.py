"""A client that makes and deletes topics, and has every leader take a record."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from bench.peers.broker.cluster import Brokers
from bench.peers.controller.wire import Client, Frame, Topic, Unexpected, create, refuse
from kraftcore.core.batch import build_batch
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.schema import Response

TRY_PAUSE_S = 0.005
SERVED_S = 600.0
REQUEST_MS = 120_000
LEADER_ALONE = 1
NOT_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
Places = set[tuple[Uuid, int]]
"""Partitions: a topic's id, and the index in it."""


class Made(NamedTuple):
    """Seconds from the request to its answer, and to when the last leader took a record; and what was made."""

    answered_s: float
    served_s: float
    places: Places


class Asker:
    """A client, one broker of which answers all that is no record.

    Records name a topic by its id: nobody answers for one of the same name that is being deleted.

    Args:
        brokers: a running cluster.
        through: the id of that broker.
    """

    def __init__(self, brokers: Brokers, through: int) -> None:
        self._brokers, self._through = brokers, through
        self._clients: dict[int, Client] = {}
        self._batch = bytes(build_batch([b"probe"], timestamp_ms=int(time.time() * 1000)))

    def make(self, topics: list[Topic]) -> Made:
        """Make topics, and have the leader of each partition take a record."""
        begun = time.perf_counter()
        ids = create(self._client(self._through), topics)
        answered_s = time.perf_counter() - begun
        counts = [len(topic.assignments) or topic.num_partitions for topic in topics]
        places = {(each, index) for each, count in zip(ids, counts, strict=True) for index in range(count)}
        self.serve(places)
        return Made(answered_s, time.perf_counter() - begun, places)

    def delete(self, topics: list[Topic]) -> None:
        """Delete topics; they are when this returns, as far as the broker that is asked knows."""
        states = [DeleteTopicsRequest.DeleteTopicState(name=topic.name) for topic in topics]
        request = DeleteTopicsRequest(topics=states, timeout_ms=REQUEST_MS)
        for topic in self._client(self._through).call(request).responses:
            refuse(topic.error_code, f"deleting topic {topic.name}")

    def serve(self, left: Places) -> None:
        """Send a record to each of these partitions, until its leader takes it.

        Raises:
            Unexpected: one did not in time, or answered an error that waiting does not mend.
        """
        end = time.monotonic() + SERVED_S
        while left := left - self._produce(self._leaders(left)):
            self._brokers.check()
            if time.monotonic() > end:
                raise Unexpected(f"{len(left)} partitions do not serve after {SERVED_S:g} s")
            time.sleep(TRY_PAUSE_S)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, broker_id: int) -> Client:
        client = self._clients.get(broker_id)
        if client is None:
            client = self._clients[broker_id] = Client(self._brokers.ports[broker_id])
        return client

    def _leaders(self, places: Places) -> dict[int, Places]:
        """Who leads, as far as somebody does and the one broker knows."""
        kind = MetadataRequest.MetadataRequestTopic
        asked = [kind(topic_id=each, name=None) for each in {topic_id for topic_id, _ in places}]
        found: dict[int, Places] = defaultdict(set)
        for topic in self._client(self._through).call(MetadataRequest(topics=asked)).topics:
            for each in topic.partitions:
                place = (topic.topic_id, each.partition_index)
                if each.leader_id >= 0 and place in places:
                    found[each.leader_id].add(place)
        return found

    def _produce(self, leaders: Mapping[int, Places]) -> Places:
        """Send a record to each partition, to all leaders at once; those that took it."""
        sent: list[tuple[int, Frame]] = []
        for broker_id, places in leaders.items():
            frame = Frame(self._records(places))
            try:
                self._client(broker_id).socket.sendall(frame.raw)
            except OSError:
                self._drop(broker_id)
            else:
                sent.append((broker_id, frame))
        taken: Places = set()
        for broker_id, frame in sent:
            try:
                answer = self._client(broker_id).read()
            except OSError:
                self._drop(broker_id)
            else:
                taken |= accepted(frame.decode(answer))
        return taken

    def _drop(self, broker_id: int) -> None:
        """Of a broker that is not there: the next try connects anew."""
        if (client := self._clients.pop(broker_id, None)) is not None:
            client.close()

    def _records(self, places: Places) -> ProduceRequest:
        topic = ProduceRequest.TopicProduceData
        by_topic: dict[Uuid, list[ProduceRequest.TopicProduceData.PartitionProduceData]] = defaultdict(list)
        for topic_id, index in places:
            by_topic[topic_id].append(topic.PartitionProduceData(index=index, records=self._batch))
        data = [topic(topic_id=each, partition_data=partitions) for each, partitions in by_topic.items()]
        return ProduceRequest(acks=LEADER_ALONE, timeout_ms=REQUEST_MS, topic_data=data)


def accepted(answer: Response) -> Places:
    """The partitions that took their records.

    Raises:
        Unexpected: one refused them for good.
    """
    taken: Places = set()
    for topic in answer.responses:
        for each in topic.partition_responses:
            if not each.error_code:
                taken.add((topic.topic_id, each.index))
            elif each.error_code not in NOT_YET:
                refuse(each.error_code, f"partition {each.index} of topic {topic.topic_id}")
    return taken
