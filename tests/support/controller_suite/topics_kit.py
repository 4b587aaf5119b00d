"""Helpers of sections 20-25: admin requests to the controller, and what they write.

def test_x(w): # w, lone, worn: shared controllers; Admin(cluster(...)) for one of your own a, b, c = w.up(3) # scripted
brokers (see wire.py) t, i = w.topic([a, b], [b, a]) # name and id of a new topic, one replica list per partition r, log
= w.did(w.create_partitions, t, 3) # an answer and the records written meanwhile assert said(r) == OK and changes(log)
== {...}
"""

import itertools

from conformance.codec import err

from controller_suite.brokers import UNASSIGNED
from controller_suite.metadata_log import full

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32  # config resource types
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # config operations
PREFERRED, UNCLEAN = 0, 1  # election types
OK = ("NONE", None)
counter = itertools.count(1)


def fresh(base="t"):
    """A topic name no other test has."""
    return f"{base}-{next(counter)}"


def error(result):
    return err(result["ErrorCode"])


def said(result):
    """(error, message)"""
    return err(result["ErrorCode"]), result["ErrorMessage"]


def ints(items):
    return [getattr(i, "id", i) for i in items]


NOT_SENT = {
    "Isr": None,
    "Leader": -2,
    "Replicas": None,
    "RemovingReplicas": None,
    "AddingReplicas": None,
    "LeaderRecoveryState": -1,
    "Directories": None,
    "EligibleLeaderReplicas": None,
    "LastKnownElr": None,
}


def sent(record):
    """The fields of a PartitionChange record that say something; the ELR, which comes in any order, sorted."""
    out = {k: record[k] for k, nothing in NOT_SENT.items() if record.get(k, nothing) != nothing}
    return {k: sorted(v) if k in ("EligibleLeaderReplicas", "LastKnownElr") else v for k, v in out.items()}


def changes(records):
    """The PartitionChange records: {(topic id, partition): fields}. One per partition, or a list of them in order."""
    out = {}
    for r in records:
        if r.kind == "PartitionChange":
            out.setdefault((r["TopicId"], r["PartitionId"]), []).append(sent(r))
    return {k: v[0] if len(v) == 1 else v for k, v in out.items()}


def configs(records):
    """The Config records as a set: {(type, resource, name, value)}"""
    return {(r["ResourceType"], r["ResourceName"], r["Name"], r["Value"]) for r in records if r.kind == "Config"}


def born(topic_id, index, replicas, isr=None):
    """The Partition v2 record of a new partition; replicas and isr are brokers. The first of the ISR leads.

    A broker with one log directory is assigned to it, one with several is left to choose.
    """
    isr = replicas if isr is None else isr
    return full(
        "Partition",
        2,
        PartitionId=index,
        TopicId=topic_id,
        Replicas=ints(replicas),
        Isr=ints(isr),
        Leader=isr[0].id,
        LeaderEpoch=0,
        PartitionEpoch=0,
        Directories=[b.dirs[0] if len(b.dirs) == 1 else UNASSIGNED for b in replicas],
    )


def dirs(*brokers):
    return [b.dirs[0] for b in brokers]


# ---------------------------------------------------------------- parts of requests


def new_topic(name, n=None, rf=None, assign=None, configs=None):
    """assign: replica lists of the partitions 0, 1, ... or (index, replicas) pairs."""
    default = 1 if assign is None else -1
    pairs = [a if isinstance(a, tuple) else (i, a) for i, a in enumerate(assign or [])]
    return {
        "Name": name,
        "NumPartitions": default if n is None else n,
        "ReplicationFactor": default if rf is None else rf,
        "Assignments": [{"PartitionIndex": i, "BrokerIds": ints(a)} for i, a in pairs],
        "Configs": [{"Name": k, "Value": v} for k, v in (configs or {}).items()],
    }


def more(name, count, assign=None):
    return {
        "Name": name,
        "Count": count,
        "Assignments": None if assign is None else [{"BrokerIds": ints(a)} for a in assign],
    }


def change(kind, resource, *ops):
    """ops: (name, operation, value)"""
    return {
        "ResourceType": kind,
        "ResourceName": str(resource),
        "Configs": [{"Name": n, "ConfigOperation": o, "Value": v} for n, o, v in ops],
    }


def elected(answer):
    """{(topic, partition): (error, message)} of an ElectLeaders answer without a top-level error."""
    assert answer.get("ErrorCode", 0) == 0, answer
    return {
        (t["Topic"], p["PartitionId"]): said(p) for t in answer["ReplicaElectionResults"] for p in t["PartitionResult"]
    }


# ---------------------------------------------------------------- the controller


class Admin:
    def __init__(self, cluster):
        self.cluster, self.log = cluster, cluster.log

    def did(self, step, *a, **kw):
        """Run a step; its result and the records it wrote."""
        m = self.log.mark()
        result = step(*a, **kw)
        return result, self.log.since(m)

    def up(self, n=1, racks=None, **kw):
        """Registered, unfenced brokers."""
        return [self.cluster.broker(rack=racks[k] if racks else None, **kw).up() for k in range(n)]

    def fenced(self, **kw):
        """A registered broker that is still fenced."""
        b = self.cluster.broker(**kw)
        b.register()
        return b

    def part(self, topic_id, index=0):
        return self.log.partition(topic_id, index)

    # -- requests: the whole answer's list, or the one result of a single item
    def create_all(self, topics, version=7, validate=False, timeout=30_000):
        return self.cluster.call(
            "CreateTopics", {"Topics": topics, "timeoutMs": timeout, "validateOnly": validate}, version
        )["Topics"]

    def create(self, name, n=None, rf=None, assign=None, configs=None, **kw):
        return self.create_all([new_topic(name, n, rf, assign, configs)], **kw)[0]

    def topic(self, *assign, **configs):
        """Create a topic that must succeed: (name, id). Config names with _ for dots."""
        name = fresh()
        r = self.create(name, assign=list(assign), configs={k.replace("_", "."): v for k, v in configs.items()})
        assert said(r) == OK, r
        return name, r["TopicId"]

    def delete(self, *topics, version=6):
        """Names, ids as ("id", x), or whole entries; before version 6 names."""
        if version < 6:
            body = {"TopicNames": list(topics)}
        else:
            body = {
                "Topics": [
                    t if isinstance(t, dict) else {"TopicId": t[1]} if isinstance(t, tuple) else {"Name": t}
                    for t in topics
                ]
            }
        return self.cluster.call("DeleteTopics", {**body, "TimeoutMs": 30_000}, version)["Responses"]

    def create_partitions_all(self, topics, validate=False, version=3):
        return self.cluster.call(
            "CreatePartitions", {"Topics": topics, "TimeoutMs": 30_000, "ValidateOnly": validate}, version
        )["Results"]

    def create_partitions(self, name, count, assign=None, **kw):
        return self.create_partitions_all([more(name, count, assign)], **kw)[0]

    def elect(self, kind, parts, version=2):
        """parts: {topic: [partitions]}, a list of such pairs, or None for all; the whole answer"""
        if parts is not None:
            parts = [
                {"Topic": t, "Partitions": list(p)} for t, p in (parts.items() if isinstance(parts, dict) else parts)
            ]
        return self.cluster.call(
            "ElectLeaders",
            {**({"ElectionType": kind} if version else {}), "TopicPartitions": parts, "TimeoutMs": 30_000},
            version,
        )

    def reassign_all(self, topics, rf_change=True, version=1):
        """topics: [(name, [(partition, replicas or None to cancel)])]; the whole answer"""
        body = {
            "TimeoutMs": 30_000,
            "Topics": [
                {
                    "Name": t,
                    "Partitions": [{"PartitionIndex": i, "Replicas": None if r is None else ints(r)} for i, r in parts],
                }
                for t, parts in topics
            ],
        }
        if version >= 1:
            body["AllowReplicationFactorChange"] = rf_change
        return self.cluster.call("AlterPartitionReassignments", body, version)

    def reassign(self, name, replicas, index=0, **kw):
        return self.reassign_all([(name, [(index, replicas)])], **kw)["Responses"][0]["Partitions"][0]

    def reassignments(self, topics=None):
        """{(topic, partition): (replicas, adding, removing)}"""
        body = {
            "TimeoutMs": 30_000,
            "Topics": None if topics is None else [{"Name": t, "PartitionIndexes": list(p)} for t, p in topics.items()],
        }
        r = self.cluster.call("ListPartitionReassignments", body)
        assert r["ErrorCode"] == 0, r
        return {
            (t["Name"], p["PartitionIndex"]): (p["Replicas"], p["AddingReplicas"], p["RemovingReplicas"])
            for t in r["Topics"]
            for p in t["Partitions"]
        }

    def isr(self, leader, topic_id, isr, index=0, **kw):
        """AlterPartition by the leader that must succeed; the partition of the answer."""
        top, p = leader.alter(topic_id, isr, index, **kw)
        assert top == 0 and p["ErrorCode"] == 0, (err(top), p and err(p["ErrorCode"]))
        return p

    def configure_all(self, resources, validate=False, version=1):
        return self.cluster.call(
            "IncrementalAlterConfigs", {"Resources": resources, "ValidateOnly": validate}, version
        )["Responses"]

    def configure(self, kind, resource, *ops, **kw):
        """ops: (name, operation, value)"""
        return self.configure_all([change(kind, resource, *ops)], **kw)[0]

    def legacy_all(self, resources, validate=False, version=2):
        """resources: [(type, name, {key: value})]"""
        return self.cluster.call(
            "AlterConfigs",
            {
                "ValidateOnly": validate,
                "Resources": [
                    {
                        "ResourceType": k,
                        "ResourceName": str(n),
                        "Configs": [{"Name": x, "Value": v} for x, v in values.items()],
                    }
                    for k, n, values in resources
                ],
            },
            version,
        )["Responses"]

    def legacy(self, kind, resource, values, **kw):
        return self.legacy_all([(kind, resource, values)], **kw)[0]

    def describe(self, kind, resource, keys=None, synonyms=False, documentation=False, version=4):
        return self.cluster.call(
            "DescribeConfigs",
            {
                "Resources": [{"ResourceType": kind, "ResourceName": str(resource), "ConfigurationKeys": keys}],
                "IncludeSynonyms": synonyms,
                "IncludeDocumentation": documentation,
            },
            version,
        )["Results"][0]

    def value(self, kind, resource, key):
        """One config's value, as DescribeConfigs says."""
        r = self.describe(kind, resource, [key])
        assert r["ErrorCode"] == 0, r
        return next((c["Value"] for c in r["Configs"]), None)
