"""Small helpers of the sections about brokers."""

from conformance.codec import err

from controller_suite.metadata_log import full

KEYS = ("Isr", "Leader", "LeaderEpoch", "PartitionEpoch")


def code(r):
    return err(r["ErrorCode"])


def beat(r):
    """A heartbeat's answer in short: (error, caught up, fenced, should shut down)"""
    return code(r), r["IsCaughtUp"], r["IsFenced"], r["ShouldShutDown"]


UNFENCED, FENCED, MAY_GO = ("NONE", True, False, False), ("NONE", True, True, False), ("NONE", True, True, True)
STALE = ("STALE_BROKER_EPOCH", False, True, False)


def by_name(features):
    """Feature lists compare without order."""
    return {f["Name"]: (f["MinSupportedVersion"], f["MaxSupportedVersion"]) for f in features}


def state(cluster, topic, index=0):
    """(ISR, leader, leader epoch, partition epoch) of a partition, from the log."""
    p = cluster.log.partition(topic, index)
    return tuple(p[k] for k in KEYS)


def elr(cluster, topic, index=0):
    """(eligible leader replicas, last known ones), sorted."""
    p = cluster.log.partition(topic, index)
    return sorted(p["EligibleLeaderReplicas"] or []), sorted(p["LastKnownElr"] or [])


def change(topic, index=0, version=2, **fields):
    """The whole PartitionChange record that sets these fields and no others."""
    return full("PartitionChange", version, TopicId=topic, PartitionId=index, **fields)


def fence(b):
    return full("BrokerRegistrationChange", 0, BrokerId=b.id, BrokerEpoch=b.epoch, Fenced=1)


def unfence(b):
    return full("BrokerRegistrationChange", 0, BrokerId=b.id, BrokerEpoch=b.epoch, Fenced=-1)


def leaving(b):
    return full("BrokerRegistrationChange", 1, BrokerId=b.id, BrokerEpoch=b.epoch, InControlledShutdown=1)


def alter(result):
    """AlterPartition's answer in short: (top-level error, partition error)"""
    return err(result[0]), result[1] and err(result[1]["ErrorCode"])


def ids(brokers):
    return [b.id for b in brokers]


OK = ("NONE", "NONE")
BLANK = {
    "LeaderId": 0,
    "LeaderEpoch": 0,
    "Isr": [],
    "LeaderRecoveryState": 0,
    "PartitionEpoch": 0,
}  # a refused partition's other fields
