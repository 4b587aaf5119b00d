"""The metadata log as an observer of the active controller sees it, and what its records add up to."""

import threading
import time

from conformance import codec
from conformance.codec import METADATA_TOPIC_ID, TOPIC, ZERO_UUID, err
from conformance.target import PATIENCE, until


class Rec(dict):
    """A record: a dict of its fields, plus kind (without "Record"), version, offset, base (offset of its batch), epoch,
    present (names of the tagged fields that were on the wire).
    """

    def __init__(self, raw, batch):
        kind = raw.pop("kind")
        self.control = batch.control
        self.kind = kind.removesuffix("Record")
        self.version = raw.pop("Version" if batch.control else "version", None)
        self.offset, self.base, self.epoch = raw.pop("offset"), batch.base, batch.epoch
        self.present = raw.pop("_present", [])
        super().__init__(raw)

    def has(self, **fields):
        return all(k in self and self[k] == v for k, v in fields.items())

    def __repr__(self):
        return f"<{self.offset} {self.kind} v{self.version} {dict(self)}>"


def full(kind, version, **fields):
    """All fields of a record of that version, defaults filled in: compare it with a Rec."""
    c = codec.Codec(kind + "Record", version)
    unknown = set(fields) - {f["name"] for f in c.msg["fields"]}
    assert not unknown, f"{kind} has no {unknown}"
    return {**c.blank(c.msg["fields"]), **fields}


def shape(records):
    """Kinds and versions: ["Topic v0", "Partition v2"]"""
    return [f"{r.kind} v{r.version}" for r in records]


def groups(records):
    """The records by batch: a list of lists."""
    out = []
    for r in records:
        if out and out[-1][0].base == r.base:
            out[-1].append(r)
        else:
            out.append([r])
    return out


class MetadataLog:
    """An observer of the log: committed records only, from the offset it started at."""

    def __init__(self, cluster):
        self.cluster, self.next, self.epoch, self.last_epoch = cluster, 0, 0, 0
        self.records, self.snapshot_id, self.lock = [], None, threading.RLock()

    def fetch(self, wait=0):
        body = {
            "MaxWaitMs": wait,
            "MinBytes": 1,
            "MaxBytes": 8 << 20,
            "ReplicaState": {"ReplicaId": -1, "ReplicaEpoch": -1},
            "Topics": [
                {
                    "TopicId": METADATA_TOPIC_ID,
                    "Partitions": [
                        {
                            "Partition": 0,
                            "CurrentLeaderEpoch": self.epoch,
                            "FetchOffset": self.next,
                            "LastFetchedEpoch": self.last_epoch,
                            "LogStartOffset": 0,
                            "PartitionMaxBytes": 8 << 20,
                            "ReplicaDirectoryId": ZERO_UUID,
                        }
                    ],
                }
            ],
        }
        return self.cluster.call("Fetch", body, version=17)["Responses"][0]["Partitions"][0]

    def pull(self):
        """Read to the high watermark; the next offset."""
        with self.lock:
            end = time.monotonic() + 20 * PATIENCE
            while time.monotonic() < end:
                p = self.fetch()
                if p["ErrorCode"] in (74, 75, 6):
                    self.epoch = p["CurrentLeader"]["LeaderEpoch"]
                    if p["ErrorCode"] == 6:
                        self.cluster.forget()
                        time.sleep(0.05)
                    continue
                assert p["ErrorCode"] == 0, f"Fetch: {err(p['ErrorCode'])}"
                if p["SnapshotId"]["EndOffset"] >= 0:
                    self.load_snapshot(p["SnapshotId"])
                    continue
                assert p["DivergingEpoch"]["EndOffset"] < 0, (
                    f"a committed log diverges: {p['DivergingEpoch']}, observer at {self.next}"
                )
                for b in codec.batches(p["Records"] or b""):
                    if b.base >= self.next and b.last < p["HighWatermark"]:
                        assert b.valid and b.base == self.next, f"{b} after {self.next}"
                        self.records += [Rec(r, b) for r in b.records]
                        self.next, self.last_epoch = b.last + 1, b.epoch
                if self.next >= p["HighWatermark"]:
                    if p["HighWatermark"] < 0:
                        time.sleep(0.02)
                        continue
                    return self.next
            raise TimeoutError("the metadata log cannot be read")

    def load_snapshot(self, sid):
        data, size = b"", 1
        while len(data) < size:
            p = self.cluster.call(
                "FetchSnapshot",
                {
                    "ReplicaId": -1,
                    "MaxBytes": 8 << 20,
                    "Topics": [
                        {
                            "Name": TOPIC,
                            "Partitions": [
                                {
                                    "Partition": 0,
                                    "CurrentLeaderEpoch": self.epoch,
                                    "SnapshotId": sid,
                                    "Position": len(data),
                                }
                            ],
                        }
                    ],
                },
                version=1,
            )["Topics"][0]["Partitions"][0]
            assert p["ErrorCode"] == 0, err(p["ErrorCode"])
            data, size = data + p["UnalignedRecords"], p["Size"]
        self.records += [Rec(r, b) for b in codec.batches(data, partial=False) for r in b.records]
        self.snapshot_id = (sid["EndOffset"], sid["Epoch"])
        self.next, self.last_epoch = self.snapshot_id

    def mark(self):
        return self.pull()

    def since(self, mark, kind=None, **fields):
        """Records from this offset on (up to the high watermark now), of one kind if asked, with these field values."""
        self.pull()
        return [r for r in self.records if r.offset >= mark and kind in (None, r.kind) and r.has(**fields)]

    def wait(self, mark, kind, timeout=15, match=None, **fields):
        """The first such record after the mark; polls until it is there."""
        return until(
            f"{kind} {fields}",
            lambda: next((r for r in self.since(mark, kind, **fields) if match is None or match(r)), None),
            timeout,
            0.03,
        )

    # -- what the records add up to
    def topics(self):
        """Name -> topic id, of the topics that exist."""
        self.pull()
        out = {}
        for r in self.records:
            if r.kind == "Topic":
                out[r["TopicId"]] = r["Name"]
            elif r.kind == "RemoveTopic":
                out.pop(r["TopicId"], None)
        return {n: i for i, n in out.items()}

    def topic_name(self, topic_id):
        """Name of a topic that exists or did."""
        self.pull()
        return next((r["Name"] for r in self.records if r.kind == "Topic" and r["TopicId"] == topic_id), None)

    def partition(self, topic_id, index=0):
        """The partition's state after all records (a dict like PartitionRecord v2)."""
        self.pull()
        p = None
        for r in self.records:
            if r.kind == "Partition" and r.has(TopicId=topic_id, PartitionId=index):
                p = {**full("Partition", 2), **r}
                for k in ("EligibleLeaderReplicas", "LastKnownElr"):
                    p[k] = p[k] or []
            elif r.kind == "PartitionChange" and r.has(TopicId=topic_id, PartitionId=index):
                p["PartitionEpoch"] += 1
                if r["Leader"] != -2:
                    p["Leader"], p["LeaderEpoch"] = r["Leader"], p["LeaderEpoch"] + 1
                if r["LeaderRecoveryState"] != -1:
                    p["LeaderRecoveryState"] = r["LeaderRecoveryState"]
                for k in (
                    "Isr",
                    "Replicas",
                    "RemovingReplicas",
                    "AddingReplicas",
                    "Directories",
                    "EligibleLeaderReplicas",
                    "LastKnownElr",
                ):
                    if r.get(k) is not None:
                        p[k] = r[k]
            elif r.kind == "RemoveTopic" and r.has(TopicId=topic_id):
                p = None
            elif r.kind == "ClearElr" and p and r["TopicName"] in ("", self.topic_name(topic_id)):
                # It counts as a change of each partition that had any.
                p["PartitionEpoch"] += bool(p["EligibleLeaderReplicas"] or p["LastKnownElr"])
                p["EligibleLeaderReplicas"], p["LastKnownElr"] = [], []
        return p

    def broker(self, broker_id):
        """The broker's registration after all records, or None."""
        self.pull()
        b = None
        for r in self.records:
            if r.get("BrokerId") != broker_id:
                continue
            if r.kind == "RegisterBroker":
                b = {**r}
            elif r.kind == "UnregisterBroker":
                b = None
            elif r.kind == "BrokerRegistrationChange":
                if r["Fenced"]:
                    b["Fenced"] = r["Fenced"] > 0
                if r.get("InControlledShutdown"):
                    b["InControlledShutdown"] = r["InControlledShutdown"] > 0
                if r.get("LogDirs"):
                    b["LogDirs"] = r["LogDirs"]
                if r.get("CordonedLogDirs") is not None:
                    b["CordonedLogDirs"] = r["CordonedLogDirs"]
        return b

    def brokers(self):
        self.pull()
        return {
            i: b for i in {r["BrokerId"] for r in self.records if r.kind == "RegisterBroker"} if (b := self.broker(i))
        }
