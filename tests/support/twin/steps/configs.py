"""Steps about configurations."""

from twin.steps.draws import Draws

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


class ConfigSteps(Draws):
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
            "unknown operation" if self.may_unseat() else "mixed",
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
