"""Steps that change partitions: ISRs, elections, reassignments."""

from twin.steps.brokers import BrokerSteps
from twin.steps.draws import BROKERS, ref


class PartitionSteps(BrokerSteps):
    def alter_partition(self, bad):
        w = self.where()
        version = self.pick(3, 3, 2)
        sender = ref("leader", **w)
        isr, epochs = {"of": "isr"}, "right"
        part = {
            "PartitionIndex": w["partition"],
            "LeaderEpoch": ref("leader_epoch", **w),
            "LeaderRecoveryState": 0,
            "PartitionEpoch": ref("partition_epoch", **w),
        }
        body = {"BrokerId": sender, "BrokerEpoch": ref("broker_epoch", broker=sender)}
        topic_id = ref("topic_id", topic=w["topic"])
        if not bad:
            note = self.rng.choices(
                ["shrink", "leader alone", "grow", "same", "reverse", "all", "keep recovery"], [6, 4, 8, 1, 1, 3, 1]
            )[0]
            isr = {
                "shrink": {"of": "isr", "drop": self.rng.randrange(3)},
                "leader alone": {"of": "leader"},
                "grow": {"of": "usable"},
                "same": {"of": "isr"},
                "reverse": {"of": "usable", "reverse": True},
                "all": {"of": "replicas"},
                "keep recovery": {"of": "leader"},
            }[note]
            if note == "keep recovery":
                part["LeaderRecoveryState"] = ref("recovery", **w)
            if version == 3 and self.chance(0.15):
                epochs = "none"
        else:
            note = self.pick(
                "old partition epoch",
                "next partition epoch",
                "old leader epoch",
                "next leader epoch",
                "unknown topic id",
                "deleted topic id",
                "unknown partition",
                "not from the leader",
                "old broker epoch",
                "unknown broker",
                "without the leader",
                "with a stranger",
                "with an unknown broker",
                "with a fenced one",
                "twice the same",
                "empty",
                "old member epochs",
                "recovering with many",
                "recovering alone",
                "bad recovery state" if self.may_unseat() else "empty",
                "zero topic id",
                "no topics",
                "old partition epoch",
                "old leader epoch",
                "next partition epoch",
                "with a fenced one",
                "old member epochs",
                "not from the leader",
            )
            if note == "old partition epoch":
                part["PartitionEpoch"] = ref("partition_epoch", **w, plus=-1)
            elif note == "next partition epoch":
                part["PartitionEpoch"] = ref("partition_epoch", **w, plus=1)
            elif note == "old leader epoch":
                part["LeaderEpoch"] = ref("leader_epoch", **w, plus=-1)
            elif note == "next leader epoch":
                part["LeaderEpoch"] = ref("leader_epoch", **w, plus=1)
            elif note == "unknown topic id":
                topic_id = ref("uuid", of="nobody's topic")
            elif note == "deleted topic id":
                topic_id = ref("topic_id", topic=self.pick(*self.gone) if self.gone else "t9", back=self.pick(0, 1))
            elif note == "zero topic id":
                topic_id = "A" * 22
            elif note == "unknown partition":
                part["PartitionIndex"] = 99
            elif note == "not from the leader":
                body["BrokerId"] = ref("not_leader", **w)
                body["BrokerEpoch"] = ref("broker_epoch", broker=body["BrokerId"])
            elif note == "old broker epoch":
                body["BrokerEpoch"] = ref("broker_epoch", broker=sender, plus=-1)
            elif note == "unknown broker":
                body["BrokerId"], body["BrokerEpoch"] = 77, 5
            elif note == "without the leader":
                isr = {"of": "replicas", "drop": "leader"}
            elif note == "with a stranger":
                isr = {"of": "isr", "add": list(BROKERS)}
            elif note == "with an unknown broker":
                isr = {"of": "isr", "add": [77]}
            elif note == "with a fenced one":
                isr = {"of": "replicas"}
            elif note == "twice the same":
                isr = {"of": "isr", "add": [ref("leader", **w)]}
            elif note == "empty":
                isr = {"of": "nothing"}
            elif note == "old member epochs":
                version, epochs, isr = 3, "old", {"of": "replicas"}
            elif note == "recovering with many":
                part["LeaderRecoveryState"], isr = 1, {"of": "usable"}
            elif note == "recovering alone":
                part["LeaderRecoveryState"], isr = 1, {"of": "leader"}
            elif note == "bad recovery state":
                part["LeaderRecoveryState"] = 7
            note = "bad: " + note
        if version == 3:
            part["NewIsrWithEpochs"] = ref("isr_epochs", **w, **isr, epochs=epochs)
        else:
            part["NewIsr"] = ref("isr", **w, **isr)
        topics = [] if note == "bad: no topics" else [{"TopicId": topic_id, "Partitions": [part]}]
        if topics and not bad and self.chance(0.15):  # a second partition, led by someone else as a rule
            v = self.where()
            if v["topic"] != w["topic"]:
                other = {
                    "PartitionIndex": v["partition"],
                    "LeaderEpoch": ref("leader_epoch", **v),
                    "LeaderRecoveryState": 0,
                    "PartitionEpoch": ref("partition_epoch", **v),
                }
                if version == 3:
                    other["NewIsrWithEpochs"] = ref("isr_epochs", **v, of="usable")
                else:
                    other["NewIsr"] = ref("isr", **v, of="usable")
                topics.append({"TopicId": ref("topic_id", topic=v["topic"]), "Partitions": [other]})
                note += ", two topics"
        self.add("AlterPartition", version, note, {**body, "Topics": topics})

    def in_sync(self, w, which, note):
        """A partition's leader asks for an ISR: itself alone ("leader"), or all that may be in it ("usable")."""
        sender = ref("leader", **w)
        part = {
            "PartitionIndex": w["partition"],
            "LeaderEpoch": ref("leader_epoch", **w),
            "PartitionEpoch": ref("partition_epoch", **w),
            "NewIsrWithEpochs": ref("isr_epochs", **w, of=which),
        }
        body = {"BrokerId": sender, "BrokerEpoch": ref("broker_epoch", broker=sender)}
        topics = [{"TopicId": ref("topic_id", topic=w["topic"]), "Partitions": [part]}]
        self.add("AlterPartition", 3, note, {**body, "Topics": topics})

    def starve(self, bad):
        """Take a partition's replicas away one by one, asking for leaders on the way, and bring them back in some
        order.
        """
        w = self.where()
        if self.chance(0.6):
            self.in_sync(w, "leader", "leader alone")
        for _ in range(self.pick(1, 2, 3, 4)):
            b = ref("leader", **w) if self.chance(0.6) else ref("replica", **w, index=self.rng.randrange(4))
            self.add(
                "BrokerHeartbeat",
                self.pick(2, 1),
                "fence a replica",
                {
                    "BrokerId": b,
                    "BrokerEpoch": ref("broker_epoch", broker=b),
                    "CurrentMetadataOffset": ref("end"),
                    "WantFence": True,
                },
            )
            if self.chance(0.5):
                self.add(
                    "ElectLeaders",
                    2,
                    "starving",
                    {
                        "ElectionType": 1 if bad or self.chance(0.6) else 0,
                        "TimeoutMs": 60000,
                        "TopicPartitions": [{"Topic": w["topic"], "Partitions": [w["partition"]]}],
                    },
                )
        back = self.registered()
        for b in self.rng.sample(back, len(back)):
            self.heartbeat_good(b, "unfence")
            if self.chance(0.2):
                self.elect_leaders(False)

    def elect_leaders(self, bad):
        w, kind, version = self.where(), self.pick(0, 0, 1), self.pick(2, 2, 1)
        parts = [{"Topic": w["topic"], "Partitions": [w["partition"]]}]
        note = "preferred" if kind == 0 else "unclean"
        if bad:
            note = self.pick(
                "unknown topic", "unknown partition", "unknown type", "nothing", "deleted topic", "negative partition"
            )
            if note == "unknown topic":
                parts[0]["Topic"] = "nowhere"
            elif note == "deleted topic" and self.gone:
                parts[0]["Topic"] = self.pick(*self.gone)
            elif note == "unknown partition":
                parts[0]["Partitions"] = [w["partition"], 99]
            elif note == "negative partition":
                parts[0]["Partitions"] = [-1]
            elif note == "unknown type":
                kind, version = 5, 2
            else:
                parts = []
            note = "bad: " + note
        elif self.chance(0.35):
            parts, note = None, note + ", all"
        elif self.chance(0.3):
            parts[0]["Partitions"] = list(range(4))
            note += ", several"
        elif self.chance(0.1):
            version, kind, note = 0, 0, "preferred"
        body = {"TopicPartitions": parts, "TimeoutMs": 60000}
        if version:
            body["ElectionType"] = kind
        self.add("ElectLeaders", version, note, body)

    def reassign(self, bad):
        w, version = self.where(), self.pick(1, 0)
        entry = {"PartitionIndex": w["partition"]}
        body = {"TimeoutMs": 60000, "Topics": [{"Name": w["topic"], "Partitions": [entry]}]}
        pool = self.registered() or BROKERS
        if not bad:
            note = self.rng.choices(
                ["replace", "add", "drop", "rotate", "same", "cancel", "keep the factor"], [8, 3, 3, 2, 1, 4, 2]
            )[0]
            if note == "replace":
                entry["Replicas"] = self.rng.sample(pool, min(len(pool), self.rng.randint(1, 4)))
            elif note == "add":
                entry["Replicas"] = ref("replicas", **w, add=[self.pick(*pool)])
            elif note == "drop":
                entry["Replicas"] = ref("replicas", **w, drop=self.rng.randrange(3))
            elif note == "rotate":
                entry["Replicas"] = ref("replicas", **w, rotate=1)
            elif note == "same":
                entry["Replicas"] = ref("replicas", **w)
            elif note == "keep the factor":
                version, body["AllowReplicationFactorChange"] = 1, False
                entry["Replicas"] = ref("replicas", **w, drop=0, add=[self.pick(*pool)])
            else:
                entry["Replicas"] = None
            self.add("AlterPartitionReassignments", version, note, body)
            if note in ("replace", "add", "keep the factor") and self.chance(0.6):  # move it along
                self.in_sync(w, "usable", "finish a reassignment")
            return
        note = self.pick(
            "unknown topic",
            "unknown partition",
            "twice the same",
            "empty",
            "unknown broker",
            "negative broker",
            "other factor",
            "cancel nothing",
            "deleted topic",
            "two partitions",
            "twice the partition",
        )
        entry["Replicas"] = ref("replicas", **w, rotate=1)
        if note == "unknown topic":
            body["Topics"][0]["Name"] = "nowhere"
        elif note == "deleted topic":
            body["Topics"][0]["Name"] = self.pick(*self.gone) if self.gone else "t9"
        elif note == "unknown partition":
            entry["PartitionIndex"] = 99
        elif note == "twice the same":
            entry["Replicas"] = [self.pick(*pool)] * 2
        elif note == "empty":
            entry["Replicas"] = []
        elif note == "unknown broker":
            entry["Replicas"] = [self.pick(*pool), 77]
        elif note == "negative broker":
            entry["Replicas"] = [-1]
        elif note == "other factor":
            version, body["AllowReplicationFactorChange"] = 1, False
            entry["Replicas"] = ref("replicas", **w, add=BROKERS)
        elif note == "cancel nothing":
            entry["Replicas"] = None
        elif note == "two partitions":
            body["Topics"][0]["Partitions"].append({"PartitionIndex": 98, "Replicas": None})
        else:
            body["Topics"][0]["Partitions"].append(dict(entry))
        self.add("AlterPartitionReassignments", version, "bad: " + note, body)

    def list_reassignments(self, bad):
        w = self.where()
        topics = None if self.chance(0.5) else [{"Name": w["topic"], "PartitionIndexes": [w["partition"]]}]
        if bad:
            topics = self.pick(
                [{"Name": "nowhere", "PartitionIndexes": [0]}], [{"Name": w["topic"], "PartitionIndexes": [99, -1]}], []
            )
        self.add(
            "ListPartitionReassignments",
            0,
            "bad: unknown" if bad else "all" if topics is None else "one",
            {"TimeoutMs": 60000, "Topics": topics},
        )
