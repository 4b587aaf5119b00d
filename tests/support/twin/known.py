"""What Kafka 4.3.1 does wrong beside us, with the reasons: the only differences that are forgiven.

All of them are between a snapshot of Kafka's and its own log. Records and answers are never forgiven: where such a
snapshot would change what its controller decides after a restart, scripts do not go (`Draws.rename`).
"""

ELR = "while eligible.leader.replicas.version is 0, snapshots leave out what partitions still have of eligible leaders"
CONFIGS = (
    "made and removed within one load of the log, configs outlive their topic: ConfigurationsDelta looks for them in "
    "the old image only"
)
SCRAM = (
    "made and removed within one load of the log, credentials take others along: ScramDelta drops a map that "
    "a removal leaves empty, and with it what follows in hash order"
)

ELR_FEATURE = "eligible.leader.replicas.version"


def fault_of_kafka(side, path, in_log, in_snapshot):
    """Why a place of Kafka's snapshot differs from its log; None if that is no known fault."""
    if side.kind != "kafka":
        return None
    if path[0] == "configs" and in_log == "(absent)":
        ids = side.symbols.topic_ids.get(path[1].removeprefix("2 ").strip("'"), [])
        return CONFIGS if len(ids) > 1 or (ids and ids[-1] not in side.image.topics) else None
    records = [r for batch in side.batches if not batch.control for r in batch.records]
    if path[0] == "topics" and path[-1] in ("elr", "last_known_elr") and in_snapshot == []:
        levels = [r["FeatureLevel"] for r in records if r["kind"] == "FeatureLevelRecord" and r["Name"] == ELR_FEATURE]
        return ELR if not levels or 0 in levels else None
    if path[0] == "scram" and in_snapshot == "(absent)":
        removed = {r["Mechanism"] for r in records if r["kind"] == "RemoveUserScramCredentialRecord"}
        return SCRAM if int(path[1].split()[-1]) in removed else None
    return None
