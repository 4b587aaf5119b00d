"""Brokers that exist only on the wire."""

import contextlib
import threading

from conformance.codec import CODE, ZERO_UUID, err
from conformance.target import new_uuid, until

from controller_suite.client import Client

FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}  # what 4.3.1 supports
MIGRATING, UNASSIGNED, LOST = ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"  # reserved directory ids


def features(**change):
    """The feature ranges of a 4.3.1 broker, changed by name (dots as _); None leaves one out."""
    out = dict(FEATURES)
    for k, v in change.items():
        k = k.replace("_", ".")
        out.pop(k, None) if v is None else out.__setitem__(k, v)
    return out


class FakeBroker:
    """A broker as the controller sees it. Nothing is sent unless a method is called (or beat() started)."""

    def __init__(self, cluster, broker_id, rack=None, dirs=1, listeners=None, features=None, incarnation=None):
        self.cluster, self.id, self.rack = cluster, broker_id, rack
        self.dirs = [new_uuid() for _ in range(dirs)] if isinstance(dirs, int) else list(dirs)
        self.listeners = listeners or [("PLAINTEXT", f"broker{broker_id}.example", 9092, 0)]
        self.features = dict(features or FEATURES)
        self.incarnation = incarnation or new_uuid()
        self.epoch, self.previous, self.beating = -1, -1, None

    # -- BrokerRegistration
    def registration(self, version=4, **change):
        body = {
            "BrokerId": self.id,
            "ClusterId": self.cluster.cluster_id,
            "IncarnationId": self.incarnation,
            "Rack": self.rack,
            "Listeners": [{"Name": n, "Host": h, "Port": p, "SecurityProtocol": s} for n, h, p, s in self.listeners],
            "Features": [
                {"Name": n, "MinSupportedVersion": lo, "MaxSupportedVersion": hi}
                for n, (lo, hi) in self.features.items()
            ],
        }
        if version >= 2:
            body["LogDirs"] = self.dirs
        if version >= 3:
            body["PreviousBrokerEpoch"] = self.previous
        return {**body, **change}

    def register(self, version=4, check=True, node=None, **change):
        """The answer; fields of the request can be replaced by name. On success self.epoch is the new broker epoch."""
        r = self.cluster.call("BrokerRegistration", self.registration(version, **change), version, node)
        assert not check or r["ErrorCode"] == 0, f"registration of {self.id}: {err(r['ErrorCode'])}"
        if r["ErrorCode"] == 0:
            self.epoch = r["BrokerEpoch"]
        return r

    def reincarnate(self, clean=True):
        """A new incarnation id for the next register(); clean.

        It will name the last broker epoch (a clean shutdown).
        """
        self.incarnation, self.previous = new_uuid(), self.epoch if clean else -1
        return self

    # -- BrokerHeartbeat
    def heartbeat(self, offset=None, version=2, check=False, node=None, **change):
        """The answer. offset None: as if all of the log were replayed. WantFence, WantShutDown, OfflineLogDirs, ...

        by name.
        """
        body = {
            "BrokerId": self.id,
            "BrokerEpoch": self.epoch,
            "CurrentMetadataOffset": (1 << 40) if offset is None else offset,
            **change,
        }
        r = self.cluster.call("BrokerHeartbeat", body, version, node)
        assert not check or r["ErrorCode"] == 0, f"heartbeat of {self.id}: {err(r['ErrorCode'])}"
        return r

    def unfence(self):
        r = self.heartbeat(check=True)
        assert r["IsFenced"] is False, r
        self.heartbeat(
            check=True
        )  # 4.3.1 forgets the offset of the heartbeat that unfences; a controlled shutdown asks for it
        return self

    def fence(self):
        r = self.heartbeat(WantFence=True, check=True)
        assert r["IsFenced"] is True, r
        return self

    def up(self):
        self.register()
        return self.unfence()

    def shutdown(self, timeout=15):
        """Controlled shutdown: heartbeats with WantShutDown until the controller lets it go."""
        return until(
            f"broker {self.id} may shut down",
            lambda: (r := self.heartbeat(WantShutDown=True, check=True))["ShouldShutDown"] and r,
            timeout,
            0.05,
        )

    def restart(self, clean=True):
        """Register as a new incarnation and unfence."""
        return self.reincarnate(clean).up()

    def beat(self, every=0.2, **change):
        """Heartbeats in the background until quiet(); self.beats has all the answers."""
        self.quiet()
        self.beats, stop = [], threading.Event()

        body = {"BrokerId": self.id, "BrokerEpoch": self.epoch, "CurrentMetadataOffset": 1 << 40, **change}

        def run():
            with contextlib.ExitStack() as connection:
                client = None
                while not stop.wait(every):
                    try:
                        client = client or connection.enter_context(Client(self.cluster.port))
                        self.beats.append(client.call("BrokerHeartbeat", body))
                        lost = self.beats[-1]["ErrorCode"] == CODE["NOT_CONTROLLER"]
                    except (OSError, KeyError, ValueError, AssertionError):
                        lost = True
                    if lost:
                        connection.close()
                        client = None

        t = threading.Thread(target=run, daemon=True)
        self.beating = (t, stop)
        t.start()
        return self

    def quiet(self):
        if self.beating:
            t, stop = self.beating
            stop.set()
            t.join(5)
            self.beating = None
        return self

    # -- other requests of brokers
    def alter(
        self,
        topic_id,
        isr,
        index=0,
        version=3,
        leader_epoch=None,
        partition_epoch=None,
        recovery=0,
        epochs=None,
        check=False,
        **change,
    ):
        """AlterPartition for one partition. Epochs not given are the current ones from the log. isr: brokers or ids.

        Epochs: {id: broker epoch} for those that are to differ from what the log says. -> (top-level error, partition
        or None)
        """
        p = self.cluster.log.partition(topic_id, index) or {"LeaderEpoch": 0, "PartitionEpoch": 0}
        ids = [getattr(b, "id", b) for b in isr]
        part = {
            "PartitionIndex": index,
            "LeaderEpoch": p["LeaderEpoch"] if leader_epoch is None else leader_epoch,
            "LeaderRecoveryState": recovery,
            "PartitionEpoch": p["PartitionEpoch"] if partition_epoch is None else partition_epoch,
        }
        if version >= 3:
            known = {i: (self.cluster.log.broker(i) or {"BrokerEpoch": -1})["BrokerEpoch"] for i in ids}
            part["NewIsrWithEpochs"] = [{"BrokerId": i, "BrokerEpoch": (epochs or {}).get(i, known[i])} for i in ids]
        else:
            part["NewIsr"] = ids
        body = {
            "BrokerId": self.id,
            "BrokerEpoch": self.epoch,
            "Topics": [{"TopicId": topic_id, "Partitions": [part]}],
            **change,
        }
        r = self.cluster.call("AlterPartition", body, version)
        out = r["Topics"][0]["Partitions"][0] if r["Topics"] else None
        assert not check or (r["ErrorCode"] == 0 and out["ErrorCode"] == 0), (
            f"{err(r['ErrorCode'])}, {out and err(out['ErrorCode'])}"
        )
        return r["ErrorCode"], out

    def assign(self, places, check=False, **change):
        """AssignReplicasToDirs: places is {directory id: [(topic id, partition), ...]}; the answer."""
        dirs = []
        for d, parts in places.items():
            by = {}
            for t, p in parts:
                by.setdefault(t, []).append({"PartitionIndex": p})
            dirs.append({"Id": d, "Topics": [{"TopicId": t, "Partitions": ps} for t, ps in by.items()]})
        return self.cluster.call(
            "AssignReplicasToDirs", {"BrokerId": self.id, "BrokerEpoch": self.epoch, "Directories": dirs, **change}
        )

    def producer_ids(self, **change):
        return self.cluster.call("AllocateProducerIds", {"BrokerId": self.id, "BrokerEpoch": self.epoch, **change})

    def __repr__(self):
        return f"<broker {self.id} epoch {self.epoch}>"
