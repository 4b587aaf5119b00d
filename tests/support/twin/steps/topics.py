"""Steps that make, grow and delete topics."""

from twin.steps.configs import BAD_CONFIGS, TOPIC_CONFIGS
from twin.steps.draws import BROKERS, Draws, ref


class TopicSteps(Draws):
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
        free = [t for t in self.names if t not in self.topics]
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
            names = [t] if self.chance(0.8) else sorted({t, self.topic()})
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
