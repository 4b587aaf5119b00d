"""The other end of the wire: calls and request bodies for the node under test, and fake voters it talks to."""

import threading
import time

from conformance import codec
from conformance.codec import (
    ADD_VOTER,
    API_VERSIONS,
    BEGIN,
    DESCRIBE_QUORUM,
    END,
    FETCH,
    FETCH_SNAPSHOT,
    METADATA_TOPIC_ID,
    PARTITION,
    REGISTER_CONTROLLER,
    REMOVE_VOTER,
    TOPIC,
    UPDATE_FEATURES,
    UPDATE_VOTER,
    VOTE,
    ZERO_UUID,
)
from conformance.target import HOST, new_uuid, until
from conformance.wire import HOLD, Client, ScriptedNode, Seen

# ---------------------------------------------------------------- request bodies


def one(**partition):
    return [{"TopicName": TOPIC, "Partitions": [{"PartitionIndex": PARTITION, **partition}]}]


def vote(
    epoch,
    candidate,
    last_epoch,
    last_offset,
    cluster=None,
    candidate_dir=ZERO_UUID,
    voter=-1,
    voter_dir=ZERO_UUID,
    pre=False,
    topic=TOPIC,
    partition=PARTITION,
):
    return {
        "ClusterId": cluster,
        "VoterId": voter,
        "Topics": [
            {
                "TopicName": topic,
                "Partitions": [
                    {
                        "PartitionIndex": partition,
                        "ReplicaEpoch": epoch,
                        "ReplicaId": candidate,
                        "ReplicaDirectoryId": candidate_dir,
                        "VoterDirectoryId": voter_dir,
                        "LastOffsetEpoch": last_epoch,
                        "LastOffset": last_offset,
                        "PreVote": pre,
                    }
                ],
            }
        ],
    }


def begin(epoch, leader, cluster=None, voter=-1, voter_dir=ZERO_UUID, endpoints=(), topic=TOPIC):
    return {
        "ClusterId": cluster,
        "VoterId": voter,
        "Topics": [
            {
                "TopicName": topic,
                "Partitions": [
                    {
                        "PartitionIndex": PARTITION,
                        "VoterDirectoryId": voter_dir,
                        "LeaderId": leader,
                        "LeaderEpoch": epoch,
                    }
                ],
            }
        ],
        "LeaderEndpoints": [{"Name": n, "Host": h, "Port": p} for n, h, p in endpoints],
    }


def end(epoch, leader, candidates=(), cluster=None, endpoints=(), successors=()):
    return {
        "ClusterId": cluster,
        "Topics": one(
            LeaderId=leader,
            LeaderEpoch=epoch,
            PreferredSuccessors=list(successors),
            PreferredCandidates=[{"CandidateId": i, "CandidateDirectoryId": d} for i, d in candidates],
        ),
        "LeaderEndpoints": [{"Name": n, "Host": h, "Port": p} for n, h, p in endpoints],
    }


def fetch(
    epoch,
    offset,
    last_epoch,
    replica=-1,
    directory=ZERO_UUID,
    wait=0,
    min_bytes=1,
    max_bytes=8 << 20,
    cluster=None,
    version=17,
    topic_id=METADATA_TOPIC_ID,
    partition=PARTITION,
    hwm=None,
    topic=TOPIC,
):
    p = {
        "Partition": partition,
        "CurrentLeaderEpoch": epoch,
        "FetchOffset": offset,
        "LastFetchedEpoch": last_epoch,
        "LogStartOffset": 0,
        "PartitionMaxBytes": max_bytes,
    }
    if version >= 17:
        p["ReplicaDirectoryId"] = directory
    if hwm is not None:
        p["HighWatermark"] = hwm
    t = {"Partitions": [p], **({"TopicId": topic_id} if version >= 13 else {"Topic": topic})}
    body = {"ClusterId": cluster, "MaxWaitMs": wait, "MinBytes": min_bytes, "MaxBytes": max_bytes, "Topics": [t]}
    body.update(
        {"ReplicaState": {"ReplicaId": replica, "ReplicaEpoch": -1}} if version >= 15 else {"ReplicaId": replica}
    )
    return body


def fetch_snapshot(
    epoch,
    end_offset,
    end_epoch,
    position=0,
    max_bytes=8 << 20,
    cluster=None,
    replica=-1,
    directory=None,
    topic=TOPIC,
    partition=PARTITION,
):
    p = {
        "Partition": partition,
        "CurrentLeaderEpoch": epoch,
        "SnapshotId": {"EndOffset": end_offset, "Epoch": end_epoch},
        "Position": position,
    }
    if directory:
        p["ReplicaDirectoryId"] = directory
    return {
        "ClusterId": cluster,
        "ReplicaId": replica,
        "MaxBytes": max_bytes,
        "Topics": [{"Name": topic, "Partitions": [p]}],
    }


def describe(topic=TOPIC, partition=PARTITION):
    return {"Topics": [{"TopicName": topic, "Partitions": [{"PartitionIndex": partition}]}]}


def listeners(*items):
    return [{"Name": n, "Host": h, "Port": p} for n, h, p in items]


def first(body):
    """The single partition of a response."""
    t = (body.get("Topics") if "Topics" in body else body["Responses"])[0]
    return t["Partitions"][0]


# ---------------------------------------------------------------- client


def call(port, key, version, body, timeout=20, **kw):
    with Client(port, timeout) as c:
        return c.call(key, version, body, **kw)


def quorum_info(port, version=2):
    """DescribeQuorum's partition, or None while the node cannot be asked or is not the leader."""
    try:
        p = first(call(port, DESCRIBE_QUORUM, version, describe(), timeout=5))
        return p if p["ErrorCode"] == 0 else None
    except (OSError, ValueError, IndexError):
        return None


def wait_leader(node, timeout=40, hwm=True):
    """Wait until the node leads, with its epoch's first record committed."""

    def ready():
        q = quorum_info(node.port)
        if not q or q["LeaderId"] != node.node:
            return None
        if hwm and q["HighWatermark"] < 1:
            return None
        return q

    return until(f"node {node.node} leads", ready, timeout, 0.1)


def settled(node, timeout=30):
    """Wait until the leader's log is committed to its end and has stopped growing; its quorum description."""
    seen = []

    def quiet():
        q = quorum_info(node.port)
        if not q:
            return None
        leo = next(v["LogEndOffset"] for v in q["CurrentVoters"] if v["ReplicaId"] == node.node)
        seen.append((leo, q["HighWatermark"]))
        return q if len(seen) > 5 and len(set(seen[-6:])) == 1 and leo == q["HighWatermark"] else None

    return until("the log settles", quiet, timeout, 0.15)


def leo_of(q, node):
    return next(v["LogEndOffset"] for v in q["CurrentVoters"] + q["Observers"] if v["ReplicaId"] == node)


# ---------------------------------------------------------------- fake voters


class RaftRequest(Seen):
    """A request about the one partition there is."""

    @property
    def part(self):
        return self.body["Topics"][0]["Partitions"][0]


VERSIONS = {
    FETCH: (4, 18),
    API_VERSIONS: (0, 4),
    VOTE: (0, 2),
    BEGIN: (0, 1),
    END: (0, 1),
    DESCRIBE_QUORUM: (0, 2),
    UPDATE_FEATURES: (0, 2),
    FETCH_SNAPSHOT: (0, 1),
    REGISTER_CONTROLLER: (0, 0),
    ADD_VOTER: (0, 1),
    REMOVE_VOTER: (0, 0),
    UPDATE_VOTER: (0, 0),
}


class FakeVoter(ScriptedNode):
    """A scripted controller. By default votes are granted, Begin and End are accepted, Fetch is answered as by a node
    that knows no leader.
    """

    seen_as = RaftRequest

    def __init__(self, node, port, directory=None, cluster=None):
        self.directory, self.cluster = directory or new_uuid(), cluster
        self.kraft = (0, 1)
        self.epoch, self.leader, self.leader_port = 0, -1, None
        on = {
            VOTE: self.grant,
            BEGIN: self.accept_begin,
            END: self.accept_end,
            FETCH: self.no_leader,
            REGISTER_CONTROLLER: lambda s: {},
            FETCH_SNAPSHOT: lambda s: HOLD,
            UPDATE_VOTER: lambda s: {},
            ADD_VOTER: lambda s: {},
        }
        super().__init__(node, port, VERSIONS, on)

    @property
    def entry(self):
        return codec.voter(self.node, self.directory, self.port)

    @property
    def endpoint(self):
        return ("CONTROLLER", HOST, self.port)

    # -- default script
    def api_versions(self, s):
        body = super().api_versions(s)
        if s.version >= 3:
            body["SupportedFeatures"] = [{"Name": "metadata.version", "MinVersion": 7, "MaxVersion": 30}]
            if self.kraft:
                body["SupportedFeatures"].append(
                    {"Name": "kraft.version", "MinVersion": self.kraft[0], "MaxVersion": self.kraft[1]}
                )
        return body

    def grant(self, s):
        return {"Topics": one(LeaderId=-1, LeaderEpoch=s.part["ReplicaEpoch"], VoteGranted=True)}

    def reject(self, s):
        return {"Topics": one(LeaderId=-1, LeaderEpoch=s.part["ReplicaEpoch"], VoteGranted=False)}

    def accept_begin(self, s):
        return {"Topics": one(LeaderId=s.part["LeaderId"], LeaderEpoch=s.part["LeaderEpoch"])}

    def accept_end(self, s):
        return {"Topics": one(LeaderId=s.part["LeaderId"], LeaderEpoch=s.part["LeaderEpoch"])}

    def fetch_reply(self, s, error=0, leader=None, epoch=None, hwm=-1, records=b"", **more):
        leader = self.leader if leader is None else leader
        p = {
            "PartitionIndex": 0,
            "ErrorCode": error,
            "HighWatermark": hwm,
            "LogStartOffset": -1,
            "CurrentLeader": {"LeaderId": leader, "LeaderEpoch": self.epoch if epoch is None else epoch},
            "AbortedTransactions": None,
            "Records": records,
            **more,
        }
        t = {"Partitions": [p], **({"TopicId": METADATA_TOPIC_ID} if s.version >= 13 else {"Topic": TOPIC})}
        body = {"Responses": [t]}
        if leader >= 0 and s.version >= 16 and self.leader_port:
            body["NodeEndpoints"] = [{"NodeId": leader, "Host": HOST, "Port": self.leader_port}]
        return body

    def no_leader(self, s):
        time.sleep(0.05)
        return self.fetch_reply(s, error=6, epoch=max(self.epoch, s.part["CurrentLeaderEpoch"]))


class FakeLeader(FakeVoter):
    """A fake voter that can lead: it serves Fetch from a list of raw batches, and snapshots by chunks."""

    def __init__(self, *a, **kw):
        super().__init__(*a, **kw)
        self.log, self.hwm, self.start, self.snapshot_id, self.snapshot = [], 0, 0, None, b""
        self.chunk = 1 << 20
        self.change = threading.Condition()
        self.on[FETCH] = self.serve_fetch
        self.on[FETCH_SNAPSHOT] = self.serve_snapshot

    def lead(self, epoch, log=None, hwm=None):
        self.epoch, self.leader, self.leader_port = epoch, self.node, self.port
        if log is not None:
            self.log = list(log)
        self.hwm = self.end if hwm is None else hwm
        return self

    def resign(self):
        """Stop answering as leader; returns when a fetch that gets no success any more has arrived."""
        mark = self.mark()
        with self.change:
            self.leader = -1
            self.change.notify_all()
        self.wait(FETCH, after=mark)

    @property
    def end(self):
        return codec.Batch(self.log[-1]).last + 1 if self.log else self.start

    def append(self, *raw, hwm=None):
        with self.change:
            self.log += raw
            self.hwm = self.end if hwm is None else hwm
            self.change.notify_all()

    def epochs(self):
        """Epoch -> end offset, over the log (and the snapshot under it)."""
        out = {}
        if self.snapshot_id:
            out[self.snapshot_id[1]] = self.snapshot_id[0]
        for raw in self.log:
            b = codec.Batch(raw)
            out[b.epoch] = b.last + 1
        return out

    def serve_fetch(self, s):
        p = s.part
        if self.leader != self.node:
            return self.no_leader(s)
        if p["CurrentLeaderEpoch"] != self.epoch:
            return self.fetch_reply(s, error=74 if p["CurrentLeaderEpoch"] < self.epoch else 75)
        offset, last = p["FetchOffset"], p["LastFetchedEpoch"]
        if self.snapshot_id and (offset < self.start or (offset == 0 and self.start == 0)):
            return self.fetch_reply(
                s, hwm=self.hwm, SnapshotId={"EndOffset": self.snapshot_id[0], "Epoch": self.snapshot_id[1]}
            )
        if offset > 0:
            ends = self.epochs()
            below = [e for e in ends if e <= last]
            if not below:
                return self.fetch_reply(s, hwm=self.hwm, DivergingEpoch={"Epoch": 0, "EndOffset": 0})
            e = max(below)
            if e != last or offset > ends[e]:
                return self.fetch_reply(s, hwm=self.hwm, DivergingEpoch={"Epoch": e, "EndOffset": ends[e]})
        deadline = time.monotonic() + min(s.body["MaxWaitMs"], 500) / 1000
        with self.change:
            while self.end <= offset and not self.down and self.leader == self.node and time.monotonic() < deadline:
                self.change.wait(max(0.0, deadline - time.monotonic()))
            records = b"".join(raw for raw in self.log if codec.Batch(raw).last >= offset)
        if self.leader != self.node:
            return self.no_leader(s)
        return self.fetch_reply(s, hwm=self.hwm, records=records)

    def serve_snapshot(self, s):
        p = s.part
        wanted = (p["SnapshotId"]["EndOffset"], p["SnapshotId"]["Epoch"])
        part = {
            "Index": 0,
            "SnapshotId": p["SnapshotId"],
            "CurrentLeader": {"LeaderId": self.node, "LeaderEpoch": self.epoch},
        }
        if wanted != self.snapshot_id:
            part["ErrorCode"] = 98
        else:
            at = p["Position"]
            part.update(
                Size=len(self.snapshot),
                Position=at,
                UnalignedRecords=self.snapshot[at : at + min(self.chunk, s.body["MaxBytes"])],
            )
        return {"Topics": [{"Name": TOPIC, "Partitions": [part]}]}


class Follower:
    """A fake voter's fetching side: copies the node's log, acknowledging what it has."""

    def __init__(self, port, node, directory, version=17, wait=200, cluster=None):
        self.port, self.node, self.directory, self.version, self.wait_ms, self.cluster = (
            port,
            node,
            directory,
            version,
            wait,
            cluster,
        )
        self.batches, self.hwm, self.last, self.stopped = [], -1, None, False
        self.epoch = None
        self.offset, self.last_epoch = 0, 0
        self.thread = None
        self.error = None

    def step(self, epoch, wait=0):
        """One fetch from where we are; the partition of the answer."""
        body = call(
            self.port,
            FETCH,
            self.version,
            fetch(
                epoch,
                self.offset,
                self.last_epoch,
                replica=self.node,
                directory=self.directory,
                wait=wait,
                version=self.version,
                cluster=self.cluster,
            ),
        )
        self.take(first(body))
        return first(body)

    def take(self, p):
        self.last = p
        if p["ErrorCode"]:
            return
        for b in codec.batches(p["Records"] or b""):
            if b.base >= self.offset:
                self.batches.append(b)
                self.offset, self.last_epoch = b.last + 1, b.epoch
        snap = p["SnapshotId"]
        if snap["EndOffset"] >= 0:
            self.offset, self.last_epoch = snap["EndOffset"], snap["Epoch"]
        self.hwm = p["HighWatermark"]

    def follow(self, epoch):
        """Keep fetching in a thread until stop()."""
        self.epoch = epoch
        self.stopped = False

        def copy(c):
            while not self.stopped:
                wanted = fetch(
                    self.epoch,
                    self.offset,
                    self.last_epoch,
                    replica=self.node,
                    directory=self.directory,
                    wait=self.wait_ms,
                    version=self.version,
                )
                self.take(first(c.call(FETCH, self.version, wanted)))
                if self.last["ErrorCode"]:
                    time.sleep(0.05)

        def run():
            while not self.stopped:
                try:
                    with Client(self.port, 10) as c:
                        copy(c)
                except (OSError, ValueError, AssertionError) as e:
                    self.error = e
                    time.sleep(0.05)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        return self

    def stop(self):
        self.stopped = True
        if self.thread:
            self.thread.join(15)
        return self
