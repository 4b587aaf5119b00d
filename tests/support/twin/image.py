"""The metadata a log describes: what a reader of the records knows.

Used to resolve symbols and to compare at the end.
"""

import copy

from conformance.codec import ZERO_UUID

PARTITION_CHANGE = {
    "Isr": "isr",
    "Replicas": "replicas",
    "RemovingReplicas": "removing",
    "AddingReplicas": "adding",
    "Directories": "directories",
    "EligibleLeaderReplicas": "elr",
    "LastKnownElr": "last_known_elr",
}


class Image:
    def __init__(self):
        self.brokers, self.controllers, self.features = {}, {}, {}
        self.topics, self.topic_names, self.configs = {}, {}, {}
        self.acls, self.quotas, self.scram, self.tokens = {}, {}, {}, {}
        self.next_producer_id, self.zk = None, None
        self.open, self.pending, self.problems = False, [], []

    # -- reading the log
    def take(self, record):
        """One decoded record; those of a transaction wait for its end."""
        kind = record["kind"]
        if kind == "BeginTransactionRecord":
            self.open, self.pending = True, []
        elif kind == "AbortTransactionRecord":
            self.open, self.pending = False, []
        elif kind == "EndTransactionRecord":
            waiting, self.open, self.pending = self.pending, False, []
            for r in waiting:
                self.apply(r)
        elif self.open:
            self.pending.append(record)
        else:
            self.apply(record)

    def apply(self, r):
        f = getattr(self, "on_" + r["kind"], None)
        if f is None:
            self.problems.append(f"no rule for {r['kind']}")
            return
        try:
            f(r)
        except (KeyError, IndexError, TypeError) as e:
            self.problems.append(f"{r['kind']} does not fit: {e!r}")

    # -- brokers
    def on_RegisterBrokerRecord(self, r):
        self.brokers[r["BrokerId"]] = {
            "incarnation": r["IncarnationId"],
            "epoch": r["BrokerEpoch"],
            "fenced": r["Fenced"],
            "rack": r["Rack"],
            "shutdown": r.get("InControlledShutdown", False),
            "dirs": r.get("LogDirs", []),
            "cordoned": r.get("CordonedLogDirs"),
            "listeners": {e["Name"]: (e["Host"], e["Port"], e["SecurityProtocol"]) for e in r["EndPoints"]},
            "features": {f["Name"]: (f["MinSupportedVersion"], f["MaxSupportedVersion"]) for f in r["Features"]},
        }

    def on_UnregisterBrokerRecord(self, r):
        del self.brokers[r["BrokerId"]]

    def on_FenceBrokerRecord(self, r):
        self.brokers[r["Id"]]["fenced"] = True

    def on_UnfenceBrokerRecord(self, r):
        self.brokers[r["Id"]]["fenced"] = False

    def on_BrokerRegistrationChangeRecord(self, r):
        b = self.brokers[r["BrokerId"]]
        if r["Fenced"]:
            b["fenced"] = r["Fenced"] > 0  # -1 unfence, 1 fence
        if r.get("InControlledShutdown"):
            b["shutdown"] = r["InControlledShutdown"] > 0
        if r.get("LogDirs"):
            b["dirs"] = r["LogDirs"]
        if r.get("CordonedLogDirs") is not None:
            b["cordoned"] = r["CordonedLogDirs"]

    def on_RegisterControllerRecord(self, r):
        self.controllers[r["ControllerId"]] = {
            "zk": r["ZkMigrationReady"],
            "listeners": sorted(e["Name"] for e in r["EndPoints"]),
            "features": {f["Name"]: (f["MinSupportedVersion"], f["MaxSupportedVersion"]) for f in r["Features"]},
        }

    # -- topics
    def on_TopicRecord(self, r):
        self.topics[r["TopicId"]] = {"name": r["Name"], "partitions": {}}
        self.topic_names[r["Name"]] = r["TopicId"]

    def on_RemoveTopicRecord(self, r):
        name = self.topics.pop(r["TopicId"])["name"]
        del self.topic_names[name]
        self.configs.pop((2, name), None)

    def on_PartitionRecord(self, r):
        self.topics[r["TopicId"]]["partitions"][r["PartitionId"]] = {
            "replicas": r["Replicas"],
            "isr": r["Isr"],
            "removing": r["RemovingReplicas"],
            "adding": r["AddingReplicas"],
            "leader": r["Leader"],
            "leader_epoch": r["LeaderEpoch"],
            "partition_epoch": r["PartitionEpoch"],
            "recovery": r["LeaderRecoveryState"],
            # Of a record from before metadata.version 3.7-IV2 they are still to be told (PartitionRegistration).
            "directories": r.get("Directories") or [ZERO_UUID] * len(r["Replicas"]),
            "elr": r.get("EligibleLeaderReplicas") or [],
            "last_known_elr": r.get("LastKnownElr") or [],
        }

    def on_PartitionChangeRecord(self, r):
        p = self.topics[r["TopicId"]]["partitions"][r["PartitionId"]]
        for field, name in PARTITION_CHANGE.items():
            if r.get(field) is not None:
                p[name] = r[field]
        if r["Leader"] != -2:
            p["leader"] = r["Leader"]
            p["leader_epoch"] += 1
        if r["LeaderRecoveryState"] != -1:
            p["recovery"] = r["LeaderRecoveryState"]
        p["partition_epoch"] += 1

    def on_ClearElrRecord(self, r):
        ids = [self.topic_names[r["TopicName"]]] if r["TopicName"] else list(self.topics)
        for i in ids:
            for p in self.topics[i]["partitions"].values():
                if p["elr"] or p["last_known_elr"]:  # measured: counts as a change of the partition
                    p["elr"], p["last_known_elr"] = [], []
                    p["partition_epoch"] += 1

    # -- the rest
    def on_ConfigRecord(self, r):
        configs = self.configs.setdefault((r["ResourceType"], r["ResourceName"]), {})
        if r["Value"] is None:
            configs.pop(r["Name"], None)
        else:
            configs[r["Name"]] = r["Value"]
        if not configs:
            del self.configs[r["ResourceType"], r["ResourceName"]]

    def on_FeatureLevelRecord(self, r):
        if r["FeatureLevel"] == 0:
            self.features.pop(r["Name"], None)
        else:
            self.features[r["Name"]] = r["FeatureLevel"]

    def on_AccessControlEntryRecord(self, r):
        self.acls[r["Id"]] = acl_text(r)

    def on_RemoveAccessControlEntryRecord(self, r):
        del self.acls[r["Id"]]

    def on_ClientQuotaRecord(self, r):
        entity = tuple(sorted((e["EntityType"], e["EntityName"]) for e in r["Entity"]))
        quotas = self.quotas.setdefault(str(entity), {})
        if r["Remove"]:
            quotas.pop(r["Key"], None)
        else:
            quotas[r["Key"]] = r["Value"]
        if not quotas:
            del self.quotas[str(entity)]

    def on_UserScramCredentialRecord(self, r):
        self.scram[r["Name"], r["Mechanism"]] = (
            r["Salt"].hex(),
            r["StoredKey"].hex(),
            r["ServerKey"].hex(),
            r["Iterations"],
        )

    def on_RemoveUserScramCredentialRecord(self, r):
        del self.scram[r["Name"], r["Mechanism"]]

    def on_DelegationTokenRecord(self, r):
        self.tokens[r["TokenId"]] = {"owner": r["Owner"], "renewers": r["Renewers"]}

    def on_RemoveDelegationTokenRecord(self, r):
        del self.tokens[r["TokenId"]]

    def on_ProducerIdsRecord(self, r):
        self.next_producer_id = r["NextProducerId"]

    def on_ZkMigrationStateRecord(self, r):
        self.zk = r["ZkMigrationState"]

    def on_NoOpRecord(self, r):
        pass

    # -- questions
    def partition(self, topic, index):
        t = self.topics.get(self.topic_names.get(topic))
        return t["partitions"].get(index) if t else None

    def copy(self):
        return copy.deepcopy(self)

    def view(self, symbols):
        """Everything, with this side's names for random values replaced by symbols."""

        def broker(i, b):
            return {
                **b,
                "epoch": symbols.epoch(i, b["epoch"]),
                "incarnation": symbols.uuid(b["incarnation"]),
                "dirs": sorted(map(symbols.uuid, b["dirs"])),
                "cordoned": None if b["cordoned"] is None else sorted(map(symbols.uuid, b["cordoned"])),
            }

        def part(p):
            return {**p, "directories": [symbols.uuid(d) for d in p["directories"]]}

        return {
            "brokers": {str(i): broker(i, b) for i, b in self.brokers.items()},
            "controllers": {str(i): c for i, c in self.controllers.items()},
            "features": self.features,
            "topics": {
                symbols.topic(i): {str(n): part(p) for n, p in t["partitions"].items()} for i, t in self.topics.items()
            },
            "configs": {f"{t} {n!r}": c for (t, n), c in self.configs.items()},
            "acls": sorted(self.acls.values()),
            "quotas": self.quotas,
            "scram": {f"{n} {m}": v for (n, m), v in self.scram.items()},
            "tokens": len(self.tokens),
            "producer ids": self.next_producer_id,
            "problems": self.problems,
        }


def acl_text(r):
    return " ".join(
        str(r[k])
        for k in ("ResourceType", "ResourceName", "PatternType", "Principal", "Host", "Operation", "PermissionType")
    )
