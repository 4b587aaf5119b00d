"""The observer that reads the metadata log of a side, batch by batch, and the client it shares with the script."""

from conformance import codec, peers

FETCH_VERSION = 17


class Client:
    """Connects when first used, and again after the other end closed; one request at a time."""

    def __init__(self, port, timeout):
        self.port, self.timeout, self.connection = port, timeout, None

    def call(self, key, version, body):
        if self.connection is None:
            self.connection = peers.Client(self.port, self.timeout)
        try:
            return self.connection.call(key, version, body)
        except Exception:
            self.close()
            raise

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Truncated(Exception):
    """Records that had been read are not in the log any more."""


class Observer:
    """Reads the metadata log from the start, batch by batch, following leader epochs."""

    def __init__(self, client):
        self.client, self.epoch, self.offset, self.last_epoch = client, 0, 0, 0

    def read(self):
        """Batches appended since the last call.

        Raises:
            LookupError: there is no leader, or the log starts above what was read.
            Truncated: what was read is not in the log any more.
        """
        out = []
        for _ in range(1000):
            try:
                new = self.next_batches()
            except (LookupError, OSError):
                if out:  # they have been read: whatever is wrong shows in the next call
                    return out
                raise
            if not new:
                return out
            out += new
        raise LookupError("the log grows without end")

    def next_batches(self):
        """What one Fetch gives, and goes behind it; an older epoch than the leader's is corrected first."""
        p = self.fetch()
        while p["ErrorCode"] in (74, 75) and p["CurrentLeader"]["LeaderEpoch"] != self.epoch:
            self.epoch = p["CurrentLeader"]["LeaderEpoch"]
            p = self.fetch()
        if p["ErrorCode"]:
            raise LookupError(f"Fetch answered error {p['ErrorCode']}")
        if p["SnapshotId"]["EndOffset"] >= 0:
            p = self.fetch_below(p["SnapshotId"])
        if p["DivergingEpoch"]["EndOffset"] >= 0:
            raise Truncated(
                f"offset {self.offset} of epoch {self.last_epoch} is not in the log any more: {p['DivergingEpoch']}"
            )
        new = [b for b in codec.batches(p["Records"] or b"") if b.last >= self.offset]
        if new:
            self.offset, self.last_epoch = new[-1].last + 1, new[-1].epoch
        return new

    def fetch_below(self, snapshot):
        """Who is in an epoch before a snapshot's is sent to it, also while the log still holds what comes next."""
        before, self.last_epoch = self.last_epoch, snapshot["Epoch"]
        p = self.fetch()
        if p["ErrorCode"] or p["SnapshotId"]["EndOffset"] >= 0 or p["DivergingEpoch"]["EndOffset"] >= 0:
            self.last_epoch = before
            raise LookupError(f"the log starts above offset {self.offset}: {snapshot}")
        return p

    def fetch(self):
        part = {
            "Partition": 0,
            "CurrentLeaderEpoch": self.epoch,
            "FetchOffset": self.offset,
            "LastFetchedEpoch": self.last_epoch,
            "LogStartOffset": 0,
            "PartitionMaxBytes": 8 << 20,
        }
        body = {
            "MaxWaitMs": 0,
            "MinBytes": 0,
            "MaxBytes": 8 << 20,
            "ReplicaState": {"ReplicaId": -1, "ReplicaEpoch": -1},
            "Topics": [{"TopicId": codec.METADATA_TOPIC_ID, "Partitions": [part]}],
        }
        answer = self.client.call(codec.FETCH, FETCH_VERSION, body)
        if answer["ErrorCode"]:
            raise LookupError(f"Fetch answered error {answer['ErrorCode']}")
        return answer["Responses"][0]["Partitions"][0]
