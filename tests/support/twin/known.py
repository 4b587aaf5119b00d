"""What Kafka 4.3.1 does wrong beside us, with the reasons: the only differences that are forgiven.

All of them are between a snapshot of Kafka's and its own log, and come from what is made and removed within one load of
the log. Records and answers are never forgiven.
"""

CONFIGS = "ConfigurationsDelta looks for a removed topic's configs in the old image only: they outlive the topic"
SCRAM = "ScramDelta drops a mechanism's map that a removal leaves empty, and with it what follows in hash order"


def fault_of_kafka(side, path, in_log, in_snapshot):
    """Why a place of Kafka's snapshot differs from its log; None if that is no known fault."""
    if side.kind != "kafka":
        return None
    if path[0] == "configs" and in_log == "(absent)":
        ids = side.symbols.topic_ids.get(path[1].removeprefix("2 ").strip("'"), [])
        return CONFIGS if len(ids) > 1 or (ids and ids[-1] not in side.image.topics) else None
    if path[0] == "scram" and in_snapshot == "(absent)":
        records = [r for batch in side.batches if not batch.control for r in batch.records]
        removed = {r["Mechanism"] for r in records if r["kind"] == "RemoveUserScramCredentialRecord"}
        return SCRAM if int(path[1].split()[-1]) in removed else None
    return None
