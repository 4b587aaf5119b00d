"""The other ends of the wire: a client and follower for the broker under test, the controller, and scripted fake
brokers."""

import time

from conformance import wire
from conformance.wire import HOLD
from kafka_lab import HOST, new_uuid

from replica_suite import codec
from replica_suite.codec import (
    ALTER_PARTITION,
    API_VERSIONS,
    CODE,
    FETCH,
    LEADER_AND_ISR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from replica_suite.target import CONTROLLER_ID

LATEST, EARLIEST = -1, -2


# ---------------------------------------------------------------- client


def diverging(epoch, end, hwm=1):
    """What a fake leader's script answers to a follower whose log has gone another way."""
    return {
        "HighWatermark": hwm,
        "LastStableOffset": hwm,
        "LogStartOffset": 0,
        "Records": b"",
        "DivergingEpoch": {"Epoch": epoch, "EndOffset": end},
    }


class Client(wire.Client):
    release = codec.THIS


def call(port, key, version, body, timeout=20):
    with Client(port, timeout) as c:
        return c.call(key, version, body)


# ---------------------------------------------------------------- request bodies of clients and followers


def produce_body(topic, values, partition=0, acks=1, timeout_ms=10000, raw=None):
    return {
        "TransactionalId": None,
        "Acks": acks,
        "TimeoutMs": timeout_ms,
        "TopicData": [
            {
                "Name": topic.name,
                "PartitionData": [{"Index": partition, "Records": codec.batch(0, -1, values) if raw is None else raw}],
            }
        ],
    }


def fetch_body(
    topic,
    offset,
    partition=0,
    version=17,
    epoch=-1,
    last_epoch=-1,
    replica=-1,
    replica_epoch=-1,
    wait=0,
    min_bytes=1,
    max_bytes=1 << 20,
    log_start=0,
    topic_id=None,
    name=None,
):
    p = {
        "Partition": partition,
        "CurrentLeaderEpoch": epoch,
        "FetchOffset": offset,
        "LogStartOffset": log_start if replica >= 0 else -1,
        "PartitionMaxBytes": max_bytes,
    }
    if version >= 12:
        p["LastFetchedEpoch"] = last_epoch
    t = {"Partitions": [p], **({"TopicId": topic_id or topic.id} if version >= 13 else {"Topic": name or topic.name})}
    body = {"MaxWaitMs": wait, "MinBytes": min_bytes, "MaxBytes": max_bytes, "Topics": [t]}
    body.update(
        {"ReplicaState": {"ReplicaId": replica, "ReplicaEpoch": replica_epoch}}
        if version >= 15
        else {"ReplicaId": replica}
    )
    return body


def fetched(body):
    """The single partition of a Fetch response."""
    assert body["ErrorCode"] == 0, codec.err(body["ErrorCode"])
    return body["Responses"][0]["Partitions"][0]


class Peer:
    """Calls of a client (or follower) at one port of the broker, one connection each."""

    def __init__(self, port):
        self.port = port

    def produce(self, topic, values=(b"x",), version=9, partition=0, **kw):
        """-> the partition's answer; None with acks=0 (nothing is answered)."""
        body = produce_body(topic, list(values), partition, **kw)
        with Client(self.port) as c:
            correlation = c.send(PRODUCE, version, body)
            if body["Acks"] == 0:
                c.call(API_VERSIONS, 0, {})  # its answer is the next one: nothing came in between
                return None
            return c.reply(PRODUCE, version, correlation)["Responses"][0]["PartitionResponses"][0]

    def fetch(self, topic, offset=0, version=17, **kw):
        return fetched(call(self.port, FETCH, version, fetch_body(topic, offset, version=version, **kw)))

    def values(self, topic, offset=0, **kw):
        p = self.fetch(topic, offset, **kw)
        assert p["ErrorCode"] == 0, codec.err(p["ErrorCode"])
        return [v for b in codec.batches(p["Records"] or b"") for v in b.values]

    def list_offsets(self, topic, timestamp, partition=0, version=7, epoch=-1, replica=-1):
        body = {
            "ReplicaId": replica,
            "Topics": [
                {
                    "Name": topic.name,
                    "Partitions": [{"PartitionIndex": partition, "CurrentLeaderEpoch": epoch, "Timestamp": timestamp}],
                }
            ],
        }
        return call(self.port, LIST_OFFSETS, version, body)["Topics"][0]["Partitions"][0]

    def end_of_epoch(self, topic, epoch, current=-1, partition=0, replica=-1, version=4):
        body = {
            "ReplicaId": replica,
            "Topics": [
                {
                    "Topic": topic.name,
                    "Partitions": [{"Partition": partition, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}],
                }
            ],
        }
        return call(self.port, OFFSET_FOR_LEADER_EPOCH, version, body)["Topics"][0]["Partitions"][0]

    def metadata(self, *topics, version=12, ids=()):
        """All topics when none is named."""
        if topics or ids:
            wanted = [{"Name": getattr(t, "name", t)} for t in topics] + [{"Name": None, "TopicId": i} for i in ids]
        else:
            wanted = None
        return call(self.port, METADATA, version, {"Topics": wanted})

    def topic_metadata(self, topic, **kw):
        return self.metadata(topic, **kw)["Topics"][0]


# ---------------------------------------------------------------- the controller


class Topic:
    """A topic's name, and its id (None: the topic has none, requests carry the zero id or a version without ids)."""

    def __init__(self, name, topic_id=None):
        self.name, self.id = name, topic_id or new_uuid()

    def again(self):
        """The same name with another id, as after a deletion and a new creation."""
        return Topic(self.name)

    def __repr__(self):
        return f"{self.name}({self.id})"


class State:
    """A partition's state as LeaderAndIsr and UpdateMetadata carry it."""

    def __init__(self, topic, partition=0, leader=1, epoch=0, isr=None, replicas=(1,), partition_epoch=0, **more):
        self.topic, self.partition = topic, partition
        self.fields = {
            "Leader": leader,
            "LeaderEpoch": epoch,
            "Isr": list(replicas if isr is None else isr),
            "Replicas": list(replicas),
        }
        self.partition_epoch, self.more = partition_epoch, more

    def leader_and_isr(self, version, controller_epoch):
        out = {
            "PartitionIndex": self.partition,
            "ControllerEpoch": controller_epoch,
            "PartitionEpoch": self.partition_epoch,
            **self.fields,
            **self.more,
        }
        if version < 2:
            out["TopicName"] = self.topic.name
        return out

    def update_metadata(self, version, controller_epoch):
        out = {
            "PartitionIndex": self.partition,
            "ControllerEpoch": controller_epoch,
            "ZkVersion": self.partition_epoch,
            **self.fields,
            **self.more,
        }
        if version < 5:
            out["TopicName"] = self.topic.name
        return out


def by_topic(states, body):
    """[{TopicName, TopicId, PartitionStates}], topics in the order of their first state."""
    out = {}
    for s in states:
        t = out.setdefault(s.topic.name, {"TopicName": s.topic.name, "TopicId": s.topic.id, "PartitionStates": []})
        t["PartitionStates"].append(body(s))
    return list(out.values())


class Controller:
    """This suite as the controller of one broker. Its epoch rises only when a test wants so."""

    def __init__(self, broker, fakes=(), epoch=10):
        self.broker, self.fakes, self.epoch = broker, list(fakes), epoch
        self.used = []  # what was assigned: (topic, partition), for cleaning up

    # -- raw requests: any version, any epoch, the whole answer
    def leader_and_isr(self, *states, version=7, epoch=None, broker_epoch=-1, kind=0, live=()):
        epoch = self.epoch if epoch is None else epoch
        self.used += [(s.topic, s.partition) for s in states]
        body = {
            "ControllerId": CONTROLLER_ID,
            "ControllerEpoch": epoch,
            "LiveLeaders": [{"BrokerId": f.node, "HostName": HOST, "Port": f.port} for f in live or self.fakes],
        }
        if version >= 2:
            body["BrokerEpoch"] = broker_epoch
        if version >= 5:
            body["Type"] = kind
        if version < 2:
            body["UngroupedPartitionStates"] = [s.leader_and_isr(version, epoch) for s in states]
        else:
            body["TopicStates"] = by_topic(states, lambda s: s.leader_and_isr(version, epoch))
            if version < 5:
                for t in body["TopicStates"]:
                    del t["TopicId"]
        return call(self.broker.port, LEADER_AND_ISR, version, body)

    def stop_replica(self, *stops, version=4, epoch=None, broker_epoch=-1, delete=None):
        """stops: (topic, partition, leader epoch, delete) each; versions 0-2 take one delete for all."""
        body = {"ControllerId": CONTROLLER_ID, "ControllerEpoch": self.epoch if epoch is None else epoch}
        if version >= 1:
            body["BrokerEpoch"] = broker_epoch
        if version < 3:
            body["DeletePartitions"] = delete
        if version == 0:
            body["UngroupedPartitions"] = [{"TopicName": t.name, "PartitionIndex": p} for t, p, *_ in stops]
        else:
            names = {}
            for t, p, *rest in stops:
                names.setdefault(t.name, []).append((p, *rest))
            if version < 3:
                body["Topics"] = [{"Name": n, "PartitionIndexes": [p for p, *_ in ps]} for n, ps in names.items()]
            else:
                body["TopicStates"] = [
                    {
                        "TopicName": n,
                        "PartitionStates": [
                            {"PartitionIndex": p, "LeaderEpoch": e, "DeletePartition": d} for p, e, d in ps
                        ],
                    }
                    for n, ps in names.items()
                ]
        return call(self.broker.port, STOP_REPLICA, version, body)

    def update_metadata(self, *states, version=8, epoch=None, broker_epoch=-1, live=None, controller=CONTROLLER_ID):
        """live: brokers as live_broker() gives them; by default the broker under test and the fakes."""
        epoch = self.epoch if epoch is None else epoch
        live = self.everyone() if live is None else live
        if version == 0:
            live = [
                {"Id": b["Id"], "V0Host": b["Endpoints"][0]["Host"], "V0Port": b["Endpoints"][0]["Port"]} for b in live
            ]
        elif version < 3:
            live = [
                {**b, "Endpoints": [{k: v for k, v in e.items() if k != "Listener"} for e in b["Endpoints"]]}
                for b in live
            ]
        if 0 < version < 2:
            live = [{k: v for k, v in b.items() if k != "Rack"} for b in live]
        body = {"ControllerId": controller, "ControllerEpoch": epoch, "LiveBrokers": live}
        if version >= 5:
            body["BrokerEpoch"] = broker_epoch
            body["TopicStates"] = by_topic(states, lambda s: s.update_metadata(version, epoch))
            if version < 7:
                for t in body["TopicStates"]:
                    del t["TopicId"]
        else:
            body["UngroupedPartitionStates"] = [s.update_metadata(version, epoch) for s in states]
        return call(self.broker.port, UPDATE_METADATA, version, body)

    def everyone(self):
        b = self.broker
        return [live_broker(b.node, {"BROKER": b.port, "CLIENT": b.client_port})] + [
            live_broker(f.node, {"BROKER": f.port, "CLIENT": f.port}) for f in self.fakes
        ]

    # -- what most tests want: it has to succeed
    def assign(self, *states, **kw):
        """LeaderAndIsr, then UpdateMetadata of the same states; every partition without an error."""
        r = self.leader_and_isr(*states, **kw)
        assert r["ErrorCode"] == 0, codec.err(r["ErrorCode"])
        codes = [p["ErrorCode"] for t in r["Topics"] for p in t["PartitionErrors"]]
        assert codes == [0] * len(states), [codec.err(c) for c in codes]
        self.announce(*states)

    def announce(self, *states, **kw):
        known = [State(s.topic, s.partition, partition_epoch=s.partition_epoch) for s in states]
        for k, s in zip(known, states, strict=False):
            k.fields = s.fields
        assert self.update_metadata(*known, **kw) == {"ErrorCode": 0}


def live_broker(node, listeners, rack=None, host=HOST):
    return {
        "Id": node,
        "Rack": rack,
        "Endpoints": [{"Port": p, "Host": host, "Listener": n, "SecurityProtocol": 0} for n, p in listeners.items()],
    }


def lai_errors(response, version=7):
    """LeaderAndIsr: {(topic name before v5, id from v5 on, partition): error name}."""
    if version < 5:
        return {(p["TopicName"], p["PartitionIndex"]): codec.err(p["ErrorCode"]) for p in response["PartitionErrors"]}
    return {
        (t["TopicId"], p["PartitionIndex"]): codec.err(p["ErrorCode"])
        for t in response["Topics"]
        for p in t["PartitionErrors"]
    }


def stop_errors(response):
    """StopReplica: {(topic name, partition): error name}."""
    return {(p["TopicName"], p["PartitionIndex"]): codec.err(p["ErrorCode"]) for p in response["PartitionErrors"]}


# ---------------------------------------------------------------- fake brokers


class BrokerRequest(wire.Seen):
    """A request that may name partitions."""

    def part(self, topic, partition=0):
        """This topic's partition in the request, or None."""
        for t in self.body["Topics"]:
            if t.get("TopicId") == topic.id or topic.name in (t.get("Topic"), t.get("Name"), t.get("TopicName")):
                for p in t.get("Partitions", ()):
                    if p.get("Partition", p.get("PartitionIndex")) == partition:
                        return p
        return None


class FakeLog:
    """What a fake leader serves for one partition. script, if set, gets the fetch's partition and may answer for it."""

    def __init__(self, epoch=0, batches=(), hwm=0, start=0):
        self.epoch, self.batches, self.hwm, self.start, self.script = epoch, list(batches), hwm, start, None

    @property
    def end(self):
        return codec.Batch(self.batches[-1]).last + 1 if self.batches else self.start

    @property
    def bytes(self):
        return b"".join(self.batches)

    def append(self, *values, epoch=None, hwm=None):
        """Add one batch; the high watermark moves with it unless told otherwise."""
        self.batches.append(codec.batch(self.end, self.epoch if epoch is None else epoch, list(values)))
        self.hwm = self.end if hwm is None else hwm
        return self

    def answer(self, asked):
        """The partition of a Fetch response, without its index."""
        if self.script:
            told = self.script(asked)
            if told is not None:
                return told
        if asked["CurrentLeaderEpoch"] != self.epoch:
            return {
                "ErrorCode": CODE[
                    "FENCED_LEADER_EPOCH" if asked["CurrentLeaderEpoch"] < self.epoch else "UNKNOWN_LEADER_EPOCH"
                ],
                "HighWatermark": -1,
                "Records": b"",
            }
        offset = asked["FetchOffset"]
        if not self.start <= offset <= self.end:
            return {"ErrorCode": CODE["OFFSET_OUT_OF_RANGE"], "HighWatermark": -1, "Records": b""}
        data = b"".join(b for b in self.batches if codec.Batch(b).last >= offset)
        return {"HighWatermark": self.hwm, "LastStableOffset": self.hwm, "LogStartOffset": self.start, "Records": data}


class FakeBroker(wire.ScriptedNode):
    """A scripted broker: serves Fetch and ListOffsets from its logs, agrees to every ISR."""

    release = codec.THIS
    seen_as = BrokerRequest
    VERSIONS = {
        PRODUCE: (3, 11),
        FETCH: (0, 17),
        LIST_OFFSETS: (0, 9),
        METADATA: (0, 12),
        API_VERSIONS: (0, 4),
        LEADER_AND_ISR: (0, 7),
        STOP_REPLICA: (0, 4),
        UPDATE_METADATA: (0, 8),
        OFFSET_FOR_LEADER_EPOCH: (0, 4),
        ALTER_PARTITION: (0, 3),
    }

    def __init__(self, node, port):
        self.logs, self.names = {}, {}
        on = {
            FETCH: self.serve_fetch,
            LIST_OFFSETS: self.serve_list_offsets,
            ALTER_PARTITION: self.accept_isr,
            OFFSET_FOR_LEADER_EPOCH: lambda s: HOLD,
        }
        super().__init__(node, port, self.VERSIONS, on)

    # -- logs
    def lead(self, topic, partition=0, epoch=0, log=None):
        """Serve this partition from now on; the FakeLog is the test's to change (inside `with fake.lock` or by
        publish)."""
        with self.lock:
            log = log or FakeLog(epoch)
            log.epoch = epoch
            self.logs[topic.id, partition] = self.logs[topic.name, partition] = log
            self.names[topic.id] = topic.name
            self.lock.notify_all()
        return log

    def drop(self, topic, partition=0):
        with self.lock:
            self.logs.pop((topic.id, partition), None)
            self.logs.pop((topic.name, partition), None)

    def publish(self, change):
        """Run change() on a log and let waiting fetches look again."""
        with self.lock:
            out = change()
            self.lock.notify_all()
            return out

    # -- default script
    def serve_fetch(self, s):
        """Without new data the answer waits for up to the request's MaxWaitMs (0.2 s at most)."""
        end = time.monotonic() + min(s.body["MaxWaitMs"], 200) / 1000
        with self.lock:
            first = None
            while True:
                responses, interesting = [], False
                for t in s.body["Topics"]:
                    parts = []
                    for p in t["Partitions"]:
                        log = self.logs.get((t.get("TopicId", t.get("Topic")), p["Partition"]))
                        a = (
                            log.answer(p)
                            if log
                            else {"ErrorCode": CODE["UNKNOWN_TOPIC_OR_PARTITION"], "HighWatermark": -1, "Records": b""}
                        )
                        interesting |= bool(log) and bool(a.get("ErrorCode") or a["Records"] or a.get("DivergingEpoch"))
                        parts.append({"PartitionIndex": p["Partition"], "AbortedTransactions": None, **a})
                    responses.append({**{k: t[k] for k in ("Topic", "TopicId") if k in t}, "Partitions": parts})
                marks = [p.get("HighWatermark") for r in responses for p in r["Partitions"]]
                interesting |= first is not None and marks != first
                first = first or marks
                left = end - time.monotonic()
                if interesting or left <= 0:
                    return {"Responses": responses}
                self.lock.wait(left)

    def serve_list_offsets(self, s):
        out = []
        for t in s.body["Topics"]:
            parts = []
            for p in t["Partitions"]:
                log = self.logs[t["Name"], p["PartitionIndex"]]
                offset = log.end if p["Timestamp"] == LATEST else log.start
                epoch = next((codec.Batch(b).epoch for b in log.batches if codec.Batch(b).last >= offset), log.epoch)
                parts.append(
                    {"PartitionIndex": p["PartitionIndex"], "Timestamp": -1, "Offset": offset, "LeaderEpoch": epoch}
                )
            out.append({"Name": t["Name"], "Partitions": parts})
        return {"Topics": out}

    def accept_isr(self, s):
        """AlterPartition: agree, with the partition epoch raised by one."""
        out = []
        for t in s.body["Topics"]:
            parts = []
            for p in t["Partitions"]:
                isr = p["NewIsr"] if "NewIsr" in p else [r["BrokerId"] for r in p["NewIsrWithEpochs"]]
                a = {
                    "PartitionIndex": p["PartitionIndex"],
                    "LeaderId": s.body["BrokerId"],
                    "LeaderEpoch": p["LeaderEpoch"],
                    "Isr": isr,
                    "PartitionEpoch": p["PartitionEpoch"] + 1,
                }
                if s.version >= 1:
                    a["LeaderRecoveryState"] = 0
                parts.append(a)
            out.append({**{k: t[k] for k in ("TopicName", "TopicId") if k in t}, "Partitions": parts})
        return {"Topics": out}

    # -- what arrived
    def wait_fetch(self, topic, partition=0, after=0, timeout=20, **fields):
        """The first Fetch after the mark with this partition and these fields; -> (request, its partition)."""

        def match(s):
            p = s.part(topic, partition)
            return p is not None and all(p[k] == v for k, v in fields.items())

        s = self.wait(FETCH, match, after, timeout)
        return s, s.part(topic, partition)

    def quiet(self, topic, seconds, partition=0):
        """True when for so long no Fetch names the partition, but for one that may be on its way."""
        time.sleep(0.3)
        mark = self.mark()
        time.sleep(seconds)
        return not self.since(mark, FETCH, lambda s: s.part(topic, partition) is not None)
