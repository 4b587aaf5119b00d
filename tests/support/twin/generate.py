"""Scripts from seeds. A step is {"api", "version", "body", "note"}, or {"op": "restart"} and {"op": "snapshot"}.

The generator keeps a rough model (which brokers and topics ought to exist) only to draw arguments that mean something.
What it cannot know, it names symbolically; see resolve.py. About a third of the steps are meant to be refused; their
note starts with "bad".
"""

import random

BROKERS = [1, 2, 3, 4, 5]
TOPICS = ["t0", "t1", "t2", "t3", "t4", "t5", "t.6", "t-7"]
FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
TOPIC_CONFIGS = [
    ("retention.ms", ["1000", "-1", "86400000"]),
    ("min.insync.replicas", ["1", "2", "3"]),
    ("cleanup.policy", ["delete", "compact", "compact,delete"]),
    ("unclean.leader.election.enable", ["true", "false"]),
    ("max.message.bytes", ["1000", "2000000"]),
    ("compression.type", ["gzip", "producer", "zstd"]),
    ("segment.bytes", ["1048576", "104857600"]),
    ("retention.bytes", ["-1", "5000000"]),
]
BAD_CONFIGS = [
    ("retention.ms", "soon"),
    ("cleanup.policy", "keep"),
    ("no.such.config", "1"),
    ("min.insync.replicas", "0"),
    ("retention.ms", None),
    ("segment.bytes", "1"),
    ("compression.type", "rar"),
    ("unclean.leader.election.enable", "maybe"),
    ("", "x"),
]
BROKER_CONFIGS = [
    ("log.cleaner.threads", ["1", "2"]),
    ("message.max.bytes", ["2000000"]),
    ("min.insync.replicas", ["1", "2"]),
    ("unclean.leader.election.enable", ["true", "false"]),
    ("log.retention.ms", ["5000"]),
    ("follower.replication.throttled.rate", ["1000"]),
]
RELEASES = ["3.7-IV0", "3.7-IV2", "3.8-IV0", "3.9-IV0", "4.0-IV1", "4.1-IV0", "4.2-IV1"]
WEIGHTS = {
    "register": 7,
    "heartbeat": 17,
    "alter_partition": 20,
    "create_topics": 10,
    "delete_topics": 4,
    "create_partitions": 4,
    "elect_leaders": 6,
    "starve": 3,
    "reassign": 8,
    "list_reassignments": 2,
    "incremental_alter_configs": 8,
    "alter_configs": 3,
    "create_acls": 5,
    "delete_acls": 3,
    "describe_acls": 4,
    "client_quotas": 4,
    "scram": 4,
    "describe_scram": 1,
    "features": 4,
    "unregister": 2,
    "assign_dirs": 4,
    "producer_ids": 2,
    "describe_cluster": 1,
    "api_versions": 1,
    "describe_quorum": 1,
    "describe_configs": 2,
    "tokens": 1,
    "controller_registration": 1,
    "voters": 1,
}


def ref(kind, **args):
    return {"$": kind, **args}


class Generator:
    def __init__(self, seed, bad=0.45):  # a step meant to fail is one step, others bring several: a third in all
        self.rng, self.bad_rate, self.old = random.Random(seed), bad, False
        self.brokers = {}  # id -> {"n": registrations, "fenced", "down"}
        self.topics, self.gone = {}, []  # name -> list of replica lists
        self.steps, self.autos = [], 0

    # -- small draws
    def pick(self, *items):
        return self.rng.choice(items)

    def chance(self, p):
        return self.rng.random() < p

    def registered(self):
        return [b for b, s in self.brokers.items() if s["n"] and not s.get("gone")]

    def usable(self):
        return [b for b in self.registered() if not self.brokers[b]["fenced"] and not self.brokers[b]["down"]]

    def broker(self):
        return self.pick(*(self.registered() or BROKERS)) if self.chance(0.95) else self.pick(*BROKERS)

    def topic(self):
        """Mostly a topic that ought to exist."""
        return self.pick(*self.topics) if self.topics and self.chance(0.95) else self.pick(*TOPICS)

    def where(self):
        t = self.topic()
        n = len(self.topics.get(t, [1]))
        return {"topic": t, "partition": self.rng.randrange(n)}

    def add(self, api, version, note, body, **more):
        self.steps.append({"api": api, "version": version, "note": note, "body": body, **more})

    def dirs(self, b):
        return [ref("uuid", of=f"dir {b}.a"), ref("uuid", of=f"dir {b}.b")]

    # -- the whole script
    def script(self, steps):
        for b in BROKERS[:4]:
            self.register_good(b)
            self.heartbeat_good(b, "unfence")
        due = self.rng.randint(30, 60)
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        while len(self.steps) < steps:
            if len(self.steps) >= due:
                op = self.pick("restart", "restart", "snapshot")
                self.steps.append(
                    {"op": op, "note": "kill -9 and start" if op == "restart" else "snapshot, and start from it"}
                )
                due = len(self.steps) + self.rng.randint(35, 70)
            elif len(self.usable()) < 3 and self.chance(0.5):
                self.revive()
            elif len(self.topics) < 3 and self.chance(0.3):
                self.create_topics(False)
            else:
                getattr(self, self.rng.choices(names, weights)[0])(self.chance(self.bad_rate))
        if self.steps[steps:] and self.steps[steps].get("glue"):  # not to end between a pair
            self.steps[steps - 1] = {"op": "restart", "note": "kill -9 and start"}
        return self.steps[:steps]

    def revive(self):
        """Bring one broker back, whatever it takes."""
        b = self.pick(*[x for x in BROKERS if x not in self.usable()])
        s = self.brokers.get(b)
        if not s or s.get("gone") or s["down"]:
            self.register_good(b)
        self.heartbeat_good(b, "unfence")

    # -- brokers
    def registration(self, b, n, **more):
        return {
            "BrokerId": b,
            "ClusterId": ref("cluster_id"),
            "IncarnationId": ref("uuid", of=f"incarnation {b}.{n}"),
            "Listeners": [{"Name": "PLAINTEXT", "Host": "127.0.0.1", "Port": 9000 + b, "SecurityProtocol": 0}],
            "Features": [
                {"Name": f, "MinSupportedVersion": low, "MaxSupportedVersion": high}
                for f, (low, high) in FEATURES.items()
            ],
            "Rack": f"rack{b % 3}" if b != 4 else None,
            "LogDirs": self.dirs(b),
            **more,
        }

    def register_good(self, b):
        s = self.brokers.setdefault(b, {"n": 0, "fenced": True, "down": False})
        s["n"] += 1
        s.update(fenced=True, down=False, gone=False)
        body = self.registration(b, s["n"])
        version = self.pick(4, 4, 4, 3, 2)
        if version >= 3 and self.chance(0.6):
            body["PreviousBrokerEpoch"] = (
                ref("broker_epoch", broker=b, plus=0 if self.chance(0.8) else -1) if s["n"] > 1 else -1
            )
        if self.chance(0.2):
            body["Rack"] = "moved"
        if self.chance(0.15):
            body["LogDirs"] = self.dirs(b)[:1]
        self.add("BrokerRegistration", version, "new incarnation", body)

    def register(self, bad):
        b = self.broker()
        s = self.brokers.get(b, {"n": 1})
        if not bad:
            down = [x for x in BROKERS if x not in self.registered() or self.brokers[x]["down"]]
            if down and self.chance(0.7):
                return self.register_good(self.pick(*down))
            body = self.registration(b, s["n"])
            note = self.pick(
                "same incarnation",
                "same incarnation, other listener",
                "same incarnation, fewer dirs",
                "same incarnation, more dirs",
                "another incarnation while live",
            )
            if "listener" in note:
                body["Listeners"] = [{"Name": "SSL", "Host": "h", "Port": 1, "SecurityProtocol": 1}, *body["Listeners"]]
            elif "fewer" in note:
                body["LogDirs"] = body["LogDirs"][:1]
            elif "more" in note:
                body["LogDirs"] = [*body["LogDirs"], ref("uuid", of=f"dir {b}.c")]
            elif "another" in note:
                body["IncarnationId"] = ref("uuid", of=f"incarnation {b}.x")
            return self.add("BrokerRegistration", 4, note, body)
        body, version = self.registration(b, s["n"]), 4
        note = self.pick(
            "cluster",
            "no dirs",
            "one dir twice",
            "reserved dir",
            "another broker's dir",
            "no metadata.version",
            "low metadata.version",
            "narrow feature",
            "unknown feature",
            "migrating",
            "old version",
            "no kraft.version",
            "no listeners",
            "cluster before dirs",
            "zero incarnation",
            "broker is the controller",
            "previous epoch of the future",
        )
        if note.startswith("cluster"):
            body["ClusterId"] = "somewhere-else"
            if "dirs" in note:
                body["LogDirs"] = []
        elif note == "no dirs":
            body["LogDirs"] = []
        elif note == "one dir twice":
            body["LogDirs"] = [body["LogDirs"][0]] * 2
        elif note == "reserved dir":
            body["LogDirs"] = [body["LogDirs"][0], self.pick("A" * 22, "A" * 21 + "Q", "A" * 21 + "g", "A" * 20 + "BA")]
        elif note == "another broker's dir":
            body["LogDirs"] = [ref("uuid", of=f"dir {b % 5 + 1}.a")]
        elif note == "no metadata.version":
            body["Features"] = body["Features"][1:]
        elif note == "low metadata.version":
            body["Features"][0]["MaxSupportedVersion"] = 20
        elif note == "narrow feature":
            body["Features"][3]["MaxSupportedVersion"] = 1
        elif note == "unknown feature":
            body["Features"].append({"Name": "made.up.version", "MinSupportedVersion": 0, "MaxSupportedVersion": 3})
        elif note == "no kraft.version":
            del body["Features"][1]
        elif note == "migrating":
            body["IsMigratingZkBroker"] = True
        elif note == "old version":
            version = self.pick(0, 1)
            del body["LogDirs"]
        elif note == "no listeners":
            body["Listeners"] = []
        elif note == "zero incarnation":
            body["IncarnationId"] = "A" * 22
        elif note == "broker is the controller":
            body["BrokerId"], body["ClusterId"] = 100, "somewhere-else"
        elif note == "previous epoch of the future":
            body["PreviousBrokerEpoch"] = ref("end", plus=1000)
        self.add("BrokerRegistration", version, "bad: " + note, body)
        return None

    def heartbeat_good(self, b, note):
        body = {
            "BrokerId": b,
            "BrokerEpoch": ref("broker_epoch", broker=b),
            "CurrentMetadataOffset": ref("end"),
            "WantFence": False,
            "WantShutDown": False,
        }
        version = self.pick(2, 2, 2, 1, 0)
        s = self.brokers.get(b, {})
        if note == "fence":
            body["WantFence"] = True
        elif note == "behind":
            body["CurrentMetadataOffset"] = ref("broker_epoch", broker=b, plus=-1)
        elif note == "shut down":
            body["WantShutDown"] = True
            s["down"] = True
        elif note == "shut down and fence":
            body["WantShutDown"] = body["WantFence"] = True
            s["down"] = True
        elif note == "offline dir":
            version, body["OfflineLogDirs"] = self.pick(1, 2), [self.pick(*self.dirs(b))]
        elif note == "all dirs offline":
            version, body["OfflineLogDirs"] = self.pick(1, 2), self.dirs(b)
        elif note == "cordoned dir":
            version, body["CordonedLogDirs"] = 2, [self.pick(*self.dirs(b))]
        elif note == "all dirs cordoned":
            version, body["CordonedLogDirs"] = 2, self.dirs(b)
        elif note == "nothing cordoned":
            version, body["CordonedLogDirs"] = 2, []
        if note in ("unfence", "fence"):
            s["fenced"] = body["WantFence"]
        self.add("BrokerHeartbeat", version, note, body)

    def heartbeat(self, bad):
        b = self.broker()
        if not bad:
            note = self.rng.choices(
                [
                    "unfence",
                    "fence",
                    "behind",
                    "shut down",
                    "shut down and fence",
                    "offline dir",
                    "all dirs offline",
                    "cordoned dir",
                    "all dirs cordoned",
                    "nothing cordoned",
                ],
                [8, 7, 2, 5, 1, 3, 1, 2, 1, 2],
            )[0]
            self.heartbeat_good(b, note)
            if note == "shut down" and self.chance(0.6):  # the others catch up, and it may go
                for x in self.usable()[:5]:
                    self.heartbeat_good(x, "unfence")
                self.heartbeat_good(b, "shut down")
            if note in ("fence", "all dirs cordoned", "shut down and fence") and self.chance(0.5):
                self.heartbeat_good(b, "nothing cordoned" if "cordoned" in note else "unfence")
            return
        note = self.pick(
            "old epoch",
            "old epoch",
            "next epoch",
            "no epoch",
            "unknown broker",
            "foreign offline dir",
            "foreign cordoned dir",
            "negative offset",
            "future offset",
            "unknown broker wants to go",
        )
        body = {
            "BrokerId": b,
            "BrokerEpoch": ref("broker_epoch", broker=b),
            "CurrentMetadataOffset": ref("end"),
            "WantFence": False,
            "WantShutDown": False,
        }
        version = 2
        if note == "old epoch":
            body["BrokerEpoch"] = ref("broker_epoch", broker=b, plus=-1)
        elif note == "next epoch":
            body["BrokerEpoch"] = ref("broker_epoch", broker=b, plus=1)
        elif note == "no epoch":
            body["BrokerEpoch"], body["WantFence"] = -1, True
        elif note.startswith("unknown broker"):
            body["BrokerId"], body["BrokerEpoch"], body["WantShutDown"] = 77, 5, "go" in note
        elif note == "foreign offline dir":
            body["OfflineLogDirs"] = [ref("uuid", of="dir of nobody")]
        elif note == "foreign cordoned dir":
            body["CordonedLogDirs"] = [ref("uuid", of="dir of nobody")]
        elif note == "negative offset":
            body["CurrentMetadataOffset"] = -1
        else:
            body["CurrentMetadataOffset"] = ref("end", plus=1000)
        self.add("BrokerHeartbeat", version, "bad: " + note, body)

    def unregister(self, bad):
        b = 77 if bad else self.broker()
        if not bad:
            s = self.brokers.get(b)
            if s:
                if not s["fenced"] and self.chance(0.7):
                    self.heartbeat_good(b, "fence")
                s.update(gone=True, fenced=True, down=False)
        self.add("UnregisterBroker", 0, "bad: unknown" if bad else "unregister", {"BrokerId": b})

    # -- partitions
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
                "bad recovery state",
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

    def starve(self, bad):
        """Take a partition's replicas away one by one, asking for leaders on the way, and bring them back in some
        order.
        """
        w = self.where()
        if self.chance(0.6):
            sender = ref("leader", **w)
            self.add(
                "AlterPartition",
                3,
                "leader alone",
                {
                    "BrokerId": sender,
                    "BrokerEpoch": ref("broker_epoch", broker=sender),
                    "Topics": [
                        {
                            "TopicId": ref("topic_id", topic=w["topic"]),
                            "Partitions": [
                                {
                                    "PartitionIndex": w["partition"],
                                    "LeaderEpoch": ref("leader_epoch", **w),
                                    "PartitionEpoch": ref("partition_epoch", **w),
                                    "NewIsrWithEpochs": ref("isr_epochs", **w, of="leader"),
                                }
                            ],
                        }
                    ],
                },
            )
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
                sender = ref("leader", **w)
                self.add(
                    "AlterPartition",
                    3,
                    "finish a reassignment",
                    {
                        "BrokerId": sender,
                        "BrokerEpoch": ref("broker_epoch", broker=sender),
                        "Topics": [
                            {
                                "TopicId": ref("topic_id", topic=w["topic"]),
                                "Partitions": [
                                    {
                                        "PartitionIndex": w["partition"],
                                        "LeaderEpoch": ref("leader_epoch", **w),
                                        "PartitionEpoch": ref("partition_epoch", **w),
                                        "NewIsrWithEpochs": ref("isr_epochs", **w, of="usable"),
                                    }
                                ],
                            }
                        ],
                    },
                )
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

    def assign_dirs(self, bad):
        w = self.where()
        b = ref("replica", **w, index=self.rng.randrange(3))
        body = {"BrokerId": b, "BrokerEpoch": ref("broker_epoch", broker=b)}
        real = self.broker()
        directory, topic_id, index = (
            ref("uuid", of=f"dir {real}.{self.pick('a', 'b')}"),
            ref("topic_id", topic=w["topic"]),
            w["partition"],
        )
        note = "a known dir"
        if self.chance(0.7):
            body["BrokerId"], body["BrokerEpoch"] = real, ref("broker_epoch", broker=real)
        if bad:
            note = self.pick(
                "old epoch",
                "unknown broker",
                "unknown topic",
                "unknown partition",
                "unknown dir",
                "reserved dir",
                "no dirs",
                "unassigned",
            )
            if note == "old epoch":
                body["BrokerEpoch"] = ref("broker_epoch", broker=body["BrokerId"], plus=-1)
            elif note == "unknown broker":
                body["BrokerId"], body["BrokerEpoch"] = 77, 5
            elif note == "unknown topic":
                topic_id = ref("uuid", of="nobody's topic")
            elif note == "unknown partition":
                index = 99
            elif note == "unknown dir":
                directory = ref("uuid", of="dir of nobody")
            elif note == "reserved dir":
                directory = "A" * 21 + "g"
            elif note == "unassigned":
                directory = "A" * 21 + "Q"
            note = "bad: " + note
        dirs = [{"Id": directory, "Topics": [{"TopicId": topic_id, "Partitions": [{"PartitionIndex": index}]}]}]
        self.add("AssignReplicasToDirs", 0, note, {**body, "Directories": [] if note == "bad: no dirs" else dirs})

    # -- topics
    def placement(self, rf=None):
        pool = self.usable() if self.chance(0.8) and self.usable() else self.registered() or BROKERS
        rf = min(rf or self.rng.choice([1, 2, 3, 3, 3, 4]), len(pool))
        return [self.rng.sample(pool, rf) for _ in range(self.rng.randint(1, 3))]

    def creatable(self, name, placed, configs=()):
        return {
            "Name": name,
            "NumPartitions": -1,
            "ReplicationFactor": -1,
            "Configs": [{"Name": k, "Value": v} for k, v in configs],
            "Assignments": [{"PartitionIndex": i, "BrokerIds": list(r)} for i, r in enumerate(placed)],
        }

    def some_configs(self):
        return [(k, self.pick(*vs)) for k, vs in self.rng.sample(TOPIC_CONFIGS, self.rng.choice([0, 0, 1, 1, 2, 3]))]

    def create_topics(self, bad):
        version = self.pick(7, 7, 7, 6, 5, 4, 3, 2)
        free = [t for t in TOPICS if t not in self.topics]
        if not bad:
            if self.chance(0.12) and self.usable():
                return self.create_auto()
            names = self.rng.sample(free, min(len(free), self.pick(1, 1, 1, 2)))
            if not names:
                return self.delete_topics(False)
            validate = self.chance(0.1)
            topics = []
            for t in names:
                placed = self.placement()
                topics.append(self.creatable(t, placed, self.some_configs()))
                if not validate and placed and placed[0]:
                    self.topics[t] = placed
            return self.add(
                "CreateTopics",
                version,
                "validate" if validate else "create",
                {"Topics": topics, "timeoutMs": 60000, "validateOnly": validate},
            )
        t = self.creatable(free[0] if free else "t9", self.placement())
        note = self.pick(
            "exists",
            "bad name",
            "colliding name",
            "both ways",
            "no partitions",
            "no replicas",
            "too many replicas",
            "gap in the partitions",
            "twice the broker",
            "unknown broker",
            "uneven",
            "empty assignment",
            "bad config",
            "twice the topic",
            "metadata topic",
            "too many partitions",
            "negative broker",
            "no assignment, factor -1",
            "mixed",
            "bad config",
            "bad config",
            "exists",
            "bad name",
            "validate bad",
            "negative partitions",
            "fenced only",
            "no topics",
        )
        topics, validate = [t], False
        if note == "exists":
            t["Name"] = self.topic()
        elif note == "bad name":
            t["Name"] = self.pick("", ".", "..", "a b", "x" * 250, "ünicode", "a/b", "a,b")
        elif note == "colliding name":
            t["Name"] = self.pick("t_6", "t-7", "t.6")
        elif note == "both ways":
            t["NumPartitions"] = self.pick(1, 5)
            t["ReplicationFactor"] = self.pick(-1, 2)
        elif note in ("no partitions", "negative partitions"):
            t.update(Assignments=[], NumPartitions=0 if note == "no partitions" else -2, ReplicationFactor=1)
        elif note == "no replicas":
            t.update(Assignments=[], NumPartitions=1, ReplicationFactor=self.pick(0, -2))
        elif note == "too many replicas":
            t.update(Assignments=[], NumPartitions=1, ReplicationFactor=9)
        elif note == "gap in the partitions":
            t["Assignments"] = [
                {"PartitionIndex": i, "BrokerIds": self.placement(1)[0]} for i in self.pick((1,), (0, 2), (-1, 0))
            ]
        elif note == "twice the broker":
            t["Assignments"][0]["BrokerIds"] = [self.broker()] * 2
        elif note == "unknown broker":
            t["Assignments"][0]["BrokerIds"] = [77]
        elif note == "negative broker":
            t["Assignments"][0]["BrokerIds"] = [-1]
        elif note == "uneven":
            t["Assignments"] = [{"PartitionIndex": 0, "BrokerIds": [1]}, {"PartitionIndex": 1, "BrokerIds": [2, 1]}]
        elif note == "empty assignment":
            t["Assignments"][0]["BrokerIds"] = []
        elif note == "bad config":
            k, v = self.pick(*BAD_CONFIGS)
            t["Configs"] = [{"Name": "retention.bytes", "Value": "1"}, {"Name": k, "Value": v}]
        elif note == "twice the topic":
            topics = [t, dict(t)]
        elif note == "metadata topic":
            t["Name"] = "__cluster_metadata"
        elif note == "too many partitions":
            t.update(Assignments=[], NumPartitions=self.pick(10001, 9000000), ReplicationFactor=1)
        elif note == "no assignment, factor -1":
            t.update(Assignments=[], NumPartitions=-1, ReplicationFactor=8)
        elif note == "mixed":
            good = self.creatable("t9" if "t9" not in self.topics else "t8", self.placement(), self.some_configs())
            t["Name"] = self.topic()
            topics, self.topics[good["Name"]] = [good, t], [a["BrokerIds"] for a in good["Assignments"]]
        elif note == "validate bad":
            validate, t["Assignments"][0]["BrokerIds"] = True, [77, 1]
        elif note == "fenced only":
            fenced = [b for b in self.registered() if b not in self.usable()]
            t["Assignments"] = [{"PartitionIndex": 0, "BrokerIds": fenced[:2] or [77]}]
        elif note == "no topics":
            topics = []
        self.add(
            "CreateTopics", version, "bad: " + note, {"Topics": topics, "timeoutMs": 60000, "validateOnly": validate}
        )
        return None

    def create_auto(self):
        """The controller places the replicas: on every broker, so only their order is open. The topic goes at once."""
        self.autos += 1
        name = f"auto{self.autos}"
        self.add(
            "CreateTopics",
            7,
            "placed by the controller",
            {
                "Topics": [
                    {"Name": name, "NumPartitions": self.rng.randint(1, 3), "ReplicationFactor": ref("placeable")}
                ],
                "timeoutMs": 60000,
            },
        )
        self.add("DeleteTopics", 6, "and away with it", {"Topics": [{"Name": name}], "TimeoutMs": 60000}, glue=True)

    def delete_topics(self, bad):
        t, version = self.topic(), self.pick(6, 6, 6, 5, 4, 1)
        if not bad:
            names = [t] if self.chance(0.8) else list({t, self.topic()})
            by_id = self.chance(0.5)
            for x in names:
                if self.topics.pop(x, None):
                    self.gone.append(x)
            if version < 6:
                return self.add("DeleteTopics", version, "by name", {"TopicNames": names, "TimeoutMs": 60000})
            return self.add(
                "DeleteTopics",
                6,
                "by id" if by_id else "by name",
                {
                    "TimeoutMs": 60000,
                    "Topics": [
                        {"Name": None, "TopicId": ref("topic_id", topic=x)} if by_id else {"Name": x} for x in names
                    ],
                },
            )
        note = self.pick(
            "unknown name",
            "unknown id",
            "name and id",
            "neither",
            "twice by name",
            "twice by id",
            "name, and id of the same",
            "deleted id",
            "nothing",
            "metadata topic",
            "mixed",
        )
        zero = "A" * 22
        entries = {
            "unknown name": [{"Name": "nowhere"}],
            "unknown id": [{"Name": None, "TopicId": ref("uuid", of="nobody's topic")}],
            "name and id": [{"Name": t, "TopicId": ref("topic_id", topic=t)}],
            "neither": [{"Name": None, "TopicId": zero}],
            "twice by name": [{"Name": "nowhere"}, {"Name": "nowhere"}],
            "twice by id": [{"Name": None, "TopicId": ref("topic_id", topic=t)}] * 2,
            "name, and id of the same": [{"Name": t}, {"Name": None, "TopicId": ref("topic_id", topic=t)}],
            "deleted id": [
                {"Name": None, "TopicId": ref("topic_id", topic=self.pick(*self.gone) if self.gone else "t9", back=1)}
            ],
            "nothing": [],
            "metadata topic": [{"Name": "__cluster_metadata"}],
            "mixed": [{"Name": "nowhere"}, {"Name": None, "TopicId": ref("uuid", of="x")}],
        }
        self.add("DeleteTopics", 6, "bad: " + note, {"Topics": entries[note], "TimeoutMs": 60000})
        return None

    def create_partitions(self, bad):
        t, version = self.topic(), self.pick(3, 3, 2, 1, 0)
        placed = self.topics.get(t, [[1]])
        rf = len(placed[0])
        pool = self.usable() if len(self.usable()) >= rf else BROKERS
        more = [self.rng.sample(pool, min(rf, len(pool))) for _ in range(self.pick(1, 1, 2))]
        entry = {
            "Name": t,
            "Count": ref("count", topic=t, plus=len(more)),
            "Assignments": [{"BrokerIds": r} for r in more],
        }
        topics, validate, note = [entry], False, "more"
        if not bad:
            if self.chance(0.2):
                validate, note = True, "validate"
            elif t in self.topics:
                self.topics[t] = placed + more
        else:
            note = self.pick(
                "same count",
                "lower count",
                "unknown topic",
                "twice the topic",
                "too few assignments",
                "unknown broker",
                "twice the broker",
                "other factor",
                "negative",
                "empty assignment",
                "fenced only",
                "no assignments at all",
            )
            if note == "same count":
                entry["Count"] = ref("count", topic=t)
            elif note == "lower count":
                entry["Count"] = ref("count", topic=t, plus=-1)
            elif note == "unknown topic":
                entry["Name"] = "nowhere"
            elif note == "twice the topic":
                topics.append(dict(entry))
            elif note == "too few assignments":
                entry["Count"] = ref("count", topic=t, plus=len(more) + 1)
            elif note == "unknown broker":
                entry["Assignments"][0]["BrokerIds"] = [77] * 1 + [1] * (rf - 1)
            elif note == "twice the broker":
                entry["Assignments"][0]["BrokerIds"] = [1, 1]
            elif note == "other factor":
                entry["Assignments"][0]["BrokerIds"] = BROKERS[: rf + 1]
            elif note == "negative":
                entry["Count"], entry["Assignments"] = -5, None
            elif note == "empty assignment":
                entry["Assignments"][0]["BrokerIds"] = []
            elif note == "fenced only":
                fenced = [b for b in self.registered() if b not in self.usable()]
                entry["Assignments"][0]["BrokerIds"] = (fenced or [77])[:rf]
            else:
                entry["Count"], entry["Assignments"] = ref("count", topic=t, plus=1), []
            note = "bad: " + note
        self.add("CreatePartitions", version, note, {"Topics": topics, "TimeoutMs": 60000, "ValidateOnly": validate})

    # -- configs
    def resource(self):
        kind = self.rng.choices([2, 4, 32, 16], [6, 3, 1, 1])[0]
        if kind == 2:
            return 2, self.topic(), [(k, self.pick(*vs)) for k, vs in TOPIC_CONFIGS]
        if kind == 4:
            return 4, self.pick("", "", str(self.broker()), "100"), [(k, self.pick(*vs)) for k, vs in BROKER_CONFIGS]
        if kind == 32:
            return (
                32,
                self.pick("g1", "g2"),
                [
                    ("consumer.session.timeout.ms", "50000"),
                    ("consumer.heartbeat.interval.ms", "6000"),
                    ("share.session.timeout.ms", "50000"),
                    ("streams.num.standby.replicas", "1"),
                ],
            )
        return (
            16,
            self.pick("m1", "m2"),
            [("metrics", "org.apache.kafka.producer."), ("interval.ms", "60000"), ("match", "client_id=a.*")],
        )

    def incremental_alter_configs(self, bad):
        kind, name, choices = self.resource()
        version, validate = self.pick(1, 1, 0), self.chance(0.1)
        if not bad:
            configs = []
            for k, v in self.rng.sample(choices, min(len(choices), self.pick(1, 1, 2))):
                op = self.rng.choices([0, 1], [3, 2])[0]
                configs.append({"Name": k, "ConfigOperation": op, "Value": v if op == 0 else None})
            note = "set and delete"
            if kind == 2 and self.chance(0.3):
                configs, note = (
                    [
                        {
                            "Name": "cleanup.policy",
                            "ConfigOperation": self.pick(2, 3),
                            "Value": self.pick("compact", "delete"),
                        }
                    ],
                    "append or subtract",
                )
            elif kind == 2 and self.chance(0.2):
                configs = [
                    {
                        "Name": "follower.replication.throttled.replicas",
                        "ConfigOperation": self.pick(0, 2, 3),
                        "Value": self.pick("0:1", "1:2,0:1", "*"),
                    }
                ]
                note = "append or subtract"
            resources = [{"ResourceType": kind, "ResourceName": name, "Configs": configs}]
            if self.chance(0.15):
                k2, n2, c2 = self.resource()
                if (k2, n2) != (kind, name):
                    resources.append(
                        {
                            "ResourceType": k2,
                            "ResourceName": n2,
                            "Configs": [{"Name": c2[0][0], "ConfigOperation": 0, "Value": c2[0][1]}],
                        }
                    )
            return self.add(
                "IncrementalAlterConfigs",
                version,
                note + (", validate" if validate else ""),
                {"Resources": resources, "ValidateOnly": validate},
            )
        note = self.pick(
            "bad value",
            "bad value",
            "unknown topic",
            "unknown broker",
            "append to a number",
            "unknown type",
            "twice the key",
            "twice the resource",
            "null value",
            "bad broker name",
            "unknown operation",
            "bad group config",
            "bad metrics config",
            "empty name",
            "mixed",
            "loggers",
            "bad min.insync.replicas",
        )
        resources = [
            {
                "ResourceType": 2,
                "ResourceName": self.topic(),
                "Configs": [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "5"}],
            }
        ]
        c = resources[0]["Configs"][0]
        if note == "bad value":
            c["Name"], c["Value"] = self.pick(*BAD_CONFIGS)
        elif note == "unknown topic":
            resources[0]["ResourceName"] = "nowhere"
        elif note == "unknown broker":
            resources[0].update(ResourceType=4, ResourceName="77")
            c.update(Name="log.cleaner.threads", Value="2")
        elif note == "append to a number":
            c["ConfigOperation"] = self.pick(2, 3)
        elif note == "unknown type":
            resources[0]["ResourceType"] = self.pick(0, 1, 3, 99)
        elif note == "twice the key":
            resources[0]["Configs"] = [c, {**c, "ConfigOperation": 1, "Value": None}]
        elif note == "twice the resource":
            resources *= 2
        elif note == "null value":
            c["Value"] = None
        elif note == "bad broker name":
            resources[0].update(ResourceType=4, ResourceName="one")
            c.update(Name="log.cleaner.threads", Value="2")
        elif note == "unknown operation":
            c["ConfigOperation"] = 9
        elif note == "bad group config":
            resources[0].update(ResourceType=32, ResourceName=self.pick("g1", ""))
            c.update(Name=self.pick("consumer.session.timeout.ms", "what"), Value=self.pick("x", "1"))
        elif note == "bad metrics config":
            resources[0].update(ResourceType=16, ResourceName=self.pick("m1", ""))
            c.update(Name=self.pick("interval.ms", "match", "what"), Value=self.pick("x", "1"))
        elif note == "empty name":
            resources[0]["ResourceName"] = ""
        elif note == "loggers":
            resources[0].update(ResourceType=8, ResourceName=self.pick("1", "100", "77"))
            c.update(Name="no.such.logger", Value=self.pick("DEBUG", "LOUD"))
        elif note == "mixed":
            resources.append({"ResourceType": 2, "ResourceName": "nowhere", "Configs": [dict(c)]})
        else:
            resources[0].update(ResourceType=4, ResourceName=self.pick("", "1"))
            c.update(Name="min.insync.replicas", ConfigOperation=self.pick(0, 1), Value=self.pick("0", "9", None))
        self.add("IncrementalAlterConfigs", version, "bad: " + note, {"Resources": resources, "ValidateOnly": validate})
        return None

    def alter_configs(self, bad):
        kind, name, choices = self.resource()
        configs = [{"Name": k, "Value": v} for k, v in self.rng.sample(choices, self.pick(0, 1, 2))]
        resources, note = [{"ResourceType": kind, "ResourceName": name, "Configs": configs}], "replace all"
        if bad:
            note = self.pick("bad value", "unknown topic", "unknown type", "null value", "twice the resource")
            resources[0].update(
                ResourceType=2, ResourceName=self.topic(), Configs=[{"Name": "retention.ms", "Value": "7"}]
            )
            c = resources[0]["Configs"][0]
            if note == "bad value":
                c["Name"], c["Value"] = self.pick(*BAD_CONFIGS)
            elif note == "unknown topic":
                resources[0]["ResourceName"] = "nowhere"
            elif note == "unknown type":
                resources[0]["ResourceType"] = self.pick(0, 99)
            elif note == "null value":
                c["Value"] = None
            else:
                resources *= 2
            note = "bad: " + note
        self.add(
            "AlterConfigs", self.pick(2, 2, 1, 0), note, {"Resources": resources, "ValidateOnly": self.chance(0.1)}
        )

    def describe_configs(self, bad):
        kind, name, choices = self.resource()
        if kind == 2:  # a name used twice may show the first topic's configs: README.md, last section
            name = self.pick(*([t for t in self.topics if t not in self.gone] or ["nowhere"]))
        keys = None if self.chance(0.3) and kind == 2 else [k for k, _ in choices[:4]]
        if bad:
            kind, name, keys = self.pick(
                (2, "nowhere", None),
                (4, "77", ["log.cleaner.threads"]),
                (99, "x", None),
                (2, "a b", None),
                (4, "one", None),
            )
        self.add(
            "DescribeConfigs",
            self.pick(4, 3, 1),
            "bad: unknown" if bad else "some",
            {
                "Resources": [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}],
                "IncludeSynonyms": self.chance(0.4),
            },
        )

    # -- security and quotas
    def acl(self):
        kind = self.pick(2, 2, 3, 4, 5)
        return {
            "ResourceType": kind,
            "ResourceName": "kafka-cluster" if kind == 4 else self.pick("t0", "t1", "x"),
            "ResourcePatternType": 3 if kind == 4 else self.pick(3, 4),
            "Principal": self.pick("User:a", "User:b", "User:*"),
            "Host": self.pick("*", "10.0.0.1"),
            "Operation": 12 if kind == 4 else self.pick(3, 4, 8),
            "PermissionType": self.pick(3, 3, 2),
        }

    def create_acls(self, bad):
        creations, note = [self.acl() for _ in range(self.pick(1, 1, 2, 3))], "create"
        if bad:
            note = self.pick(
                "any type",
                "match pattern",
                "any operation",
                "bad principal",
                "bad permission",
                "empty name",
                "bad cluster name",
                "unknown type",
                "mixed",
                "twice the same",
                "no principal",
            )
            c = creations[0]
            if note == "twice the same":
                creations.append(dict(c))
            else:
                c.update(
                    {
                        "any type": {"ResourceType": 1},
                        "match pattern": {"ResourcePatternType": self.pick(1, 2)},
                        "any operation": {"Operation": self.pick(1, 0)},
                        "bad principal": {"Principal": "nobody"},
                        "bad permission": {"PermissionType": self.pick(0, 1)},
                        "empty name": {"ResourceName": ""},
                        "bad cluster name": {"ResourceType": 4, "ResourceName": "other"},
                        "unknown type": {"ResourceType": 0},
                        "mixed": {"Operation": 1},
                        "no principal": {"Principal": ""},
                    }[note]
                )
                if note == "mixed":
                    creations.append(self.acl())
            note = "bad: " + note
        self.add("CreateAcls", self.pick(3, 3, 2, 1), note, {"Creations": creations})

    def acl_filter(self, bad):
        f = {
            "ResourceTypeFilter": self.pick(1, 2, 3),
            "ResourceNameFilter": self.pick(None, "t0", "x"),
            "PatternTypeFilter": self.pick(1, 2, 3, 4),
            "PrincipalFilter": self.pick(None, None, "User:a"),
            "HostFilter": self.pick(None, None, "*"),
            "Operation": self.pick(1, 1, 3),
            "PermissionType": self.pick(1, 1, 3),
        }
        if self.chance(0.4):  # everything of one type, or everything
            f.update(
                ResourceTypeFilter=self.pick(1, 2),
                ResourceNameFilter=None,
                PatternTypeFilter=1,
                PrincipalFilter=None,
                HostFilter=None,
                Operation=1,
                PermissionType=1,
            )
        if bad:
            f.update(
                self.pick(
                    {"ResourceTypeFilter": 0},
                    {"PatternTypeFilter": 0},
                    {"Operation": 0},
                    {"PermissionType": 0},
                    {"PrincipalFilter": "nobody"},
                    {"ResourceNameFilter": "no such", "PatternTypeFilter": 3},
                )
            )
        return f

    def delete_acls(self, bad):
        self.add(
            "DeleteAcls",
            self.pick(3, 3, 2, 1),
            "bad: filter" if bad else "delete",
            {"Filters": [self.acl_filter(bad) for _ in range(self.pick(1, 1, 2))]},
        )

    def describe_acls(self, bad):
        self.add("DescribeAcls", self.pick(3, 3, 2, 1), "bad: filter" if bad else "describe", self.acl_filter(bad))

    def client_quotas(self, bad):
        entity = self.pick(
            [("user", self.pick("a", "b", None))],
            [("client-id", self.pick("c", None))],
            [("user", "a"), ("client-id", "c")],
            [("ip", self.pick("10.0.0.1", None))],
        )
        key = (
            self.pick("connection_creation_rate")
            if entity[0][0] == "ip"
            else self.pick("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
        )
        ops, note = [{"Key": key, "Value": float(self.pick(1, 100, 5000)), "Remove": self.chance(0.35)}], "alter"
        entries = [{"Entity": [{"EntityType": t, "EntityName": n} for t, n in entity], "Ops": ops}]
        if bad:
            note = self.pick(
                "unknown key",
                "unknown entity",
                "no entity",
                "user and ip",
                "negative",
                "twice the entity",
                "zero",
                "fraction",
                "wrong key for ip",
                "twice the type",
                "bad ip",
                "empty name",
                "twice the entry",
                "remove what is not there",
            )
            e = entries[0]
            if note == "unknown key":
                ops[0]["Key"] = "speed"
            elif note == "unknown entity":
                e["Entity"][0]["EntityType"] = "group"
            elif note == "no entity":
                e["Entity"] = []
            elif note == "user and ip":
                e["Entity"] = [
                    {"EntityType": "user", "EntityName": "a"},
                    {"EntityType": "ip", "EntityName": "10.0.0.1"},
                ]
            elif note in ("negative", "zero", "fraction"):
                ops[0].update(Value={"negative": -1.0, "zero": 0.0, "fraction": 1.5}[note], Remove=False)
                if note == "fraction":
                    e["Entity"], ops[0]["Key"] = [{"EntityType": "user", "EntityName": "a"}], "producer_byte_rate"
            elif note in ("twice the entity", "twice the type"):
                e["Entity"] = [
                    {"EntityType": "user", "EntityName": "a"},
                    {"EntityType": "user", "EntityName": "a" if "entity" in note else "b"},
                ]
            elif note == "wrong key for ip":
                e["Entity"], ops[0]["Key"] = [{"EntityType": "ip", "EntityName": "10.0.0.1"}], "producer_byte_rate"
            elif note == "bad ip":
                e["Entity"], ops[0]["Key"] = (
                    [{"EntityType": "ip", "EntityName": self.pick("1.2.3.4.5.6:", "10.0.0.1 ")}],
                    "connection_creation_rate",
                )
            elif note == "empty name":
                e["Entity"] = [{"EntityType": "user", "EntityName": ""}]
            elif note == "twice the entry":
                entries.append({"Entity": e["Entity"], "Ops": [{**ops[0], "Value": 9.0, "Remove": False}]})
            else:
                e["Entity"], ops[0]["Remove"] = [{"EntityType": "user", "EntityName": "nobody"}], True
            note = "bad: " + note
        self.add("AlterClientQuotas", self.pick(1, 1, 0), note, {"Entries": entries, "ValidateOnly": self.chance(0.1)})

    def scram(self, bad):
        user, mechanism = self.pick("alice", "bob"), self.pick(1, 2)
        size = 32 if mechanism == 1 else 64
        up = {
            "Name": user,
            "Mechanism": mechanism,
            "Iterations": self.pick(4096, 8192),
            "Salt": ref("bytes", hex="0a0b0c0d"),
            "SaltedPassword": ref("bytes", hex=f"{self.rng.randrange(256):02x}" * size),
        }
        body, note = {"Deletions": [], "Upsertions": [up]}, "upsert"
        if not bad:
            if self.chance(0.35):
                body, note = {"Deletions": [{"Name": user, "Mechanism": mechanism}], "Upsertions": []}, "delete"
        else:
            note = self.pick(
                "few iterations",
                "many iterations",
                "unknown mechanism",
                "empty name",
                "both",
                "twice",
                "delete what is not there",
                "delete unknown mechanism",
                "nothing",
                "delete empty name",
                "mixed",
            )
            if "iterations" in note:
                up["Iterations"] = 100 if note == "few iterations" else 20000
            elif note == "unknown mechanism":
                up["Mechanism"] = self.pick(0, 9)
            elif note == "empty name":
                up["Name"] = ""
            elif note == "both":
                body["Deletions"] = [{"Name": user, "Mechanism": mechanism}]
            elif note == "twice":
                body["Upsertions"] = [up, dict(up)]
            elif note == "mixed":
                body["Deletions"] = [{"Name": "carol", "Mechanism": 1}]
            elif note == "nothing":
                body["Upsertions"] = []
            else:
                body = {
                    "Upsertions": [],
                    "Deletions": [
                        {
                            "Name": "carol" if "there" in note else "" if "empty" in note else user,
                            "Mechanism": 9 if "mechanism" in note else 1,
                        }
                    ],
                }
            note = "bad: " + note
        self.add("AlterUserScramCredentials", 0, note, body)

    def describe_scram(self, bad):
        users = [{"Name": self.pick("alice", "bob")}]  # a null list gets no answer from a 4.3.1 controller
        if bad:
            users = self.pick([{"Name": "carol"}], [{"Name": "alice"}] * 2, [{"Name": ""}])
        self.add("DescribeUserScramCredentials", 0, "bad: unknown" if bad else "some", {"Users": users})

    def tokens(self, bad):
        self.add(
            *self.pick(
                ("CreateDelegationToken", 3, "refused", {"Renewers": [], "MaxLifetimeMs": 1000}),
                ("RenewDelegationToken", 2, "refused", {"Hmac": ref("bytes", hex="00"), "RenewPeriodMs": 1000}),
                ("ExpireDelegationToken", 2, "refused", {"Hmac": ref("bytes", hex="00"), "ExpiryTimePeriodMs": 1000}),
                ("DescribeDelegationToken", 3, "refused", {"Owners": None}),
            )
        )

    # -- the cluster
    def features(self, bad):
        name = self.pick(
            "group.version",
            "share.version",
            "streams.version",
            "transaction.version",
            "eligible.leader.replicas.version",
            "eligible.leader.replicas.version",
        )
        level, version = self.rng.randint(0, FEATURES[name][1]), self.pick(2, 2, 1)
        updates, note = [{"Feature": name, "MaxVersionLevel": level, "UpgradeType": 1 if level else 2}], "change"
        validate = self.chance(0.15)
        if self.old and self.chance(0.6):
            updates, note = (
                [{"Feature": "metadata.version", "MaxVersionLevel": self.pick(17, 21, 23, 26, 30), "UpgradeType": 1}],
                "a newer metadata.version",
            )
            validate = False
        elif self.chance(0.3):
            updates[0]["UpgradeType"] = self.pick(1, 2, 3)
        if bad:
            note = self.pick(
                "unknown feature",
                "too high",
                "negative",
                "bad type",
                "downgrade metadata.version",
                "unsafe downgrade",
                "metadata.version too high",
                "nothing",
                "same level",
                "kraft.version down",
                "mixed",
                "metadata.version same",
                "old request",
                "metadata.version to nothing",
            )
            u = updates[0]
            if note == "unknown feature":
                u["Feature"] = "made.up.version"
            elif note == "too high":
                u["MaxVersionLevel"], u["UpgradeType"] = 9, 1
            elif note == "negative":
                u["MaxVersionLevel"] = -1
            elif note == "bad type":
                u["UpgradeType"] = self.pick(0, 9)
            elif note == "downgrade metadata.version":
                u.update(Feature="metadata.version", MaxVersionLevel=self.pick(29, 21), UpgradeType=self.pick(1, 2))
            elif note == "unsafe downgrade":
                u.update(Feature="metadata.version", MaxVersionLevel=self.pick(29, 7), UpgradeType=3)
            elif note == "metadata.version too high":
                u.update(Feature="metadata.version", MaxVersionLevel=self.pick(31, 99), UpgradeType=1)
            elif note == "metadata.version same":
                u.update(Feature="metadata.version", MaxVersionLevel=30, UpgradeType=self.pick(1, 2))
            elif note == "metadata.version to nothing":
                u.update(Feature="metadata.version", MaxVersionLevel=0, UpgradeType=3)
            elif note == "nothing":
                updates = []
            elif note == "kraft.version down":
                u.update(Feature="kraft.version", MaxVersionLevel=self.pick(0, 1, 2), UpgradeType=self.pick(1, 2))
            elif note == "mixed":
                updates.append({"Feature": "made.up.version", "MaxVersionLevel": 1, "UpgradeType": 1})
            elif note == "old request":
                version, updates = 0, [{"Feature": name, "MaxVersionLevel": level, "AllowDowngrade": self.chance(0.5)}]
            note = "bad: " + note
        body = {"FeatureUpdates": updates, "timeoutMs": 60000}
        if version:
            body["ValidateOnly"] = validate
        self.add("UpdateFeatures", version, note, body)

    def producer_ids(self, bad):
        b = self.broker()
        body = {"BrokerId": b, "BrokerEpoch": ref("broker_epoch", broker=b)}
        if bad:
            body = self.pick(
                {"BrokerId": 77, "BrokerEpoch": 5},
                {"BrokerId": b, "BrokerEpoch": ref("broker_epoch", broker=b, plus=-1)},
                {"BrokerId": b, "BrokerEpoch": -1},
            )
        self.add("AllocateProducerIds", 0, "bad: epoch" if bad else "allocate", body)

    def describe_cluster(self, bad):
        version = self.pick(2, 1)
        self.add(
            "DescribeCluster",
            version,
            "bad: wrong end" if bad else "controllers",
            {"EndpointType": self.pick(1, 7) if bad else 2, "IncludeClusterAuthorizedOperations": self.chance(0.3)},
        )

    def api_versions(self, bad):
        self.add(
            "ApiVersions",
            self.pick(4, 3),
            "bad: no name" if bad else "versions",
            {"ClientSoftwareName": "" if bad else "twin", "ClientSoftwareVersion": "1"},
        )

    def describe_quorum(self, bad):
        self.add(
            "DescribeQuorum",
            self.pick(2, 1, 0),
            "bad: topic" if bad else "quorum",
            {"Topics": [{"TopicName": "t0" if bad else "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]},
        )

    def controller_registration(self, bad):
        body = {
            "ControllerId": 77,
            "IncarnationId": ref("uuid", of="controller 77"),
            "ZkMigrationReady": False,
            "Listeners": [{"Name": "CONTROLLER", "Host": "h", "Port": 1, "SecurityProtocol": 0}],
            "Features": [
                {"Name": f, "MinSupportedVersion": low, "MaxSupportedVersion": high}
                for f, (low, high) in FEATURES.items()
            ],
        }
        if bad:
            body["Features"] = []
        self.add("ControllerRegistration", 0, "bad: no features" if bad else "another controller", body)

    def voters(self, bad):
        if self.chance(0.5):
            body = {
                "ClusterId": "somewhere-else" if bad else None,
                "VoterId": self.pick(100, 77),
                "VoterDirectoryId": ref("uuid", of="dir of a voter"),
            }
            return self.add("RemoveRaftVoter", 0, "bad: cluster" if bad else "unknown voter", body)
        body = {
            "ClusterId": "somewhere-else" if bad else None,
            "TimeoutMs": 1000,
            "VoterId": self.pick(100, -1),
            "VoterDirectoryId": ref("uuid", of="dir of a voter"),
            "Listeners": [{"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": 1}],
        }
        self.add("AddRaftVoter", 0, "bad: cluster" if bad else "refused", body)
        return None


def generate(seed, steps, authorizer=True):
    """The script of a seed. Every third starts from an older metadata.version and may upgrade on the way."""
    draw = random.Random(f"head {seed}")
    properties = {"metadata.log.max.record.bytes.between.snapshots": draw.choice([20971520, 6000, 2500])}
    if authorizer:
        properties.update(
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        )
    g = Generator(seed)
    script = {"format": 1, "seed": seed, "properties": properties}
    if seed % 3 == 0:
        script["release"], g.old = draw.choice(RELEASES), True
    return {**script, "steps": g.script(steps)}
