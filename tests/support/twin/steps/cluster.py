"""Steps about the cluster: features, what it says of itself, voters."""

from twin.steps.brokers import FEATURES
from twin.steps.draws import Draws, ref


class ClusterSteps(Draws):
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
