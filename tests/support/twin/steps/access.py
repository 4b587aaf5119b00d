"""Steps about access control entries, quotas, SCRAM credentials and delegation tokens."""

from twin.steps.draws import Draws, ref


class AccessSteps(Draws):
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
