"""Steps of brokers' lives: registrations, heartbeats, directories, and controllers' registrations."""

from twin.steps.draws import BROKERS, Draws, ref

FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}


class BrokerSteps(Draws):
    def revive(self):
        """Bring one broker back, whatever it takes."""
        b = self.pick(*[x for x in BROKERS if x not in self.usable()])
        s = self.brokers.get(b)
        if not s or s.get("gone") or s["down"]:
            self.register_good(b)
        self.heartbeat_good(b, "unfence")

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
