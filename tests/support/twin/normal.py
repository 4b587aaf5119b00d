"""What two controllers may rightly do differently is replaced by symbols here.

README.md lists each case with its reason.

Symbols name a random value by what it stands for, not by when it was seen: `topic t3 #2` is the id of the second topic
called t3, `epoch 5.1` the first epoch of broker 5, `acl ... #1` the id of an access control entry with that content.
"""

import base64
import hashlib
import json
import re

from conformance import codec

from twin.image import acl_text

ORDERED = {"CreateAcls.Results", "DeleteAcls.FilterResults"}  # lists that answer the request entry by entry
NOT_IDENTITY = {
    "ErrorCode",
    "ErrorMessage",
    "TopicConfigErrorCode",
}  # what may differ between two results about one thing
LATER = {
    "DescribeCluster",
    "ApiVersions",
    "DescribeConfigs",
    "DescribeAcls",
    "DescribeUserScramCredentials",
    "DescribeDelegationToken",
}  # answered from an image that is published after the commit
UUID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")


def named_uuid(text):
    """A fixed uuid for a name: the brokers' directories and incarnations, unknown ids."""
    n = 0
    while True:
        raw = hashlib.sha256(f"{text} {n}".encode()).digest()[:16]
        out = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        if not out.startswith("-"):
            return out
        n += 1


class Symbols:
    """One side's random values and their names."""

    def __init__(self, ports=(), cluster_id=None):
        self.ports, self.names = (
            set(ports),
            {codec.ZERO_UUID: "zero uuid", codec.METADATA_TOPIC_ID: "uuid 1", "AAAAAAAAAAAAAAAAAAAAAg": "uuid 2"},
        )
        if cluster_id:
            self.names[cluster_id] = "cluster id"
        self.counts, self.epochs, self.topic_ids = {}, {}, {}

    def given(self, text):
        """The uuid of a name that the script uses."""
        value = named_uuid(text)
        self.names.setdefault(value, text)
        return value

    def fresh(self, value, text):
        if value not in self.names:
            self.counts[text] = self.counts.get(text, 0) + 1
            self.names[value] = f"{text} #{self.counts[text]}"

    def learn(self, record):
        kind = record["kind"]
        if kind == "TopicRecord":
            self.fresh(record["TopicId"], f"topic {record['Name']}")
            self.topic_ids.setdefault(record["Name"], []).append(record["TopicId"])
        elif kind == "AccessControlEntryRecord":
            self.fresh(record["Id"], f"acl {acl_text(record)}")
        elif kind == "RegisterBrokerRecord":
            known = self.epochs.setdefault(record["BrokerId"], [])
            if record["BrokerEpoch"] not in known:
                known.append(record["BrokerEpoch"])

    def uuid(self, value):
        return self.names.get(value, "unknown uuid")

    topic = uuid

    def epoch(self, broker, value):
        if value == -1:
            return -1
        for b in [broker] if broker in self.epochs else self.epochs:
            if value in self.epochs[b]:
                return f"epoch {b}.{self.epochs[b].index(value) + 1}"
        last = self.epochs.get(broker, [])[-1:]
        return f"unknown epoch, {value - last[0]:+d} to the last one" if last else "unknown epoch"

    def text(self, message):
        """An error message with this side's own values replaced."""
        message = UUID.sub(lambda m: self.names.get(m[0], m[0]), message)
        for p in self.ports:
            message = re.sub(rf"\b{p}\b", "PORT", message)
        numbers = {str(e): f"<epoch {b}.{i + 1}>" for b, known in self.epochs.items() for i, e in enumerate(known)}
        return re.sub(r"(?i)(epoch \D{0,12})(\d+)", lambda m: m[1] + numbers.get(m[2], m[2]), message)


# ---------------------------------------------------------------- records

RAFT = {"LeaderChange", "KRaftVersion", "KRaftVoters", "SnapshotHeader", "SnapshotFooter"}
HASH_ORDER = {
    "PartitionChangeRecord",
    "RemoveTopicRecord",
    "RemoveAccessControlEntryRecord",
    "ConfigRecord",
    "ClientQuotaRecord",
    "UserScramCredentialRecord",
    "RemoveUserScramCredentialRecord",
    "FeatureLevelRecord",
}


def record(sym, r, base, fresh_epochs=frozenset()):
    """One record without what may differ."""
    out = {k: v for k, v in r.items() if k not in ("offset", "_present", "_tags")}
    if r.get("_tags"):
        out["unknown tags"] = {str(k): v.hex() for k, v in r["_tags"].items()}
    kind = r["kind"]
    for k, v in out.items():
        if k == "TopicId":
            out[k] = sym.topic(v)
        elif k in ("LogDirs", "CordonedLogDirs", "Directories"):
            out[k] = v if v is None else [sym.uuid(x) for x in v]
        elif k == "IncarnationId":
            out[k] = "some uuid" if kind == "RegisterControllerRecord" else sym.uuid(v)
        elif k == "BrokerEpoch" or (k == "Epoch" and kind in ("FenceBrokerRecord", "UnfenceBrokerRecord")):
            out[k] = sym.epoch(r.get("BrokerId", r.get("Id")), v)
            if kind == "RegisterBrokerRecord" and v in fresh_epochs:
                out[k] += f" = offset of the batch{v - base:+d}" if v != base else " = offset of the batch"
        elif k == "Id" and "AccessControlEntry" in kind:
            out[k] = sym.uuid(v)
        elif k == "EndPoints":
            out[k] = sorted(
                ({**e, "Port": "PORT" if e["Port"] in sym.ports else e["Port"]} for e in v), key=lambda e: e["Name"]
            )
        elif k == "Features":
            out[k] = sorted(v, key=lambda e: e["Name"])
        elif isinstance(v, bytes):
            out[k] = v.hex()
    if sym.names.get(r.get("TopicId"), "").startswith("topic auto"):
        placed_at_random(out)
    return out


def placed_at_random(out):
    """Topics called auto... are placed by the controller where only the order is open."""
    for k in ("Replicas", "Isr"):
        if out.get(k):
            out[k] = sorted(out[k])
    if out.get("Leader", -2) >= 0:
        out["Leader"] = "one of the replicas"
    if "Directories" in out:
        out["Directories"] = sorted(out["Directories"] or [])


def run_of(r):
    return r["kind"] + (" first" if r.get("Name") == "metadata.version" else "")


def sort_runs(records):
    """Sort neighbours of one type where Kafka's order is that of a hash table.

    Several records about one thing keep theirs.
    """

    def about(r):
        entity = sorted(str(e) for e in r.get("Entity", []))
        return json.dumps(
            [entity]
            + [
                r.get(k)
                for k in ("TopicId", "PartitionId", "ResourceType", "ResourceName", "Name", "Key", "Mechanism", "Id")
            ],
            default=str,
        )

    out, i = [], 0
    while i < len(records):
        j = i + 1
        while j < len(records) and run_of(records[j]) == run_of(records[i]):
            j += 1
        run = records[i:j]
        out += sorted(run, key=about) if run[0]["kind"] in HASH_ORDER else run
        i = j
    return out


def log(sym, batches):
    """Normalised data records by batch. Learns the symbols of new records on the way."""
    out, raft = [], []
    for b in batches:
        if b.control:
            raft += [r["kind"] for r in b.records]
            continue
        fresh = set()
        for r in b.records:
            if r["kind"] == "RegisterBrokerRecord" and r["BrokerEpoch"] not in sym.epochs.get(r["BrokerId"], []):
                fresh.add(r["BrokerEpoch"])
            sym.learn(r)
        found = [record(sym, r, b.base, fresh) for r in b.records if r["kind"] != "NoOpRecord"]
        if found:
            out.append(sort_runs(found))
    return out, raft


# ---------------------------------------------------------------- answers


def answer(sym, api, body, end=None, asked=None, epoch=None):
    """-> (the answer without what may differ, its error messages by path)"""
    messages = {}

    def walk(name, v, path):
        if isinstance(v, dict):
            out = {}
            for k, x in v.items():
                if k in ("ThrottleTimeMs", "_present") or (k == "_tags" and not x):
                    continue
                if k == "ErrorMessage":
                    messages["/".join(map(str, path))] = None if x is None else sym.text(x)
                    continue
                out[k] = field(k, x, path)
            return out
        return v

    def field(k, x, path):
        if isinstance(x, list) and x and isinstance(x[0], dict):
            keyed = [(identity(sym, e), e) for e in x]
            if f"{api}.{k}" not in ORDERED:
                keyed.sort(
                    key=lambda p: (
                        json.dumps(p[0], default=str, sort_keys=True),
                        json.dumps(p[1], default=str, sort_keys=True),
                    )
                )
            return [walk(k, e, (*path, k, n)) for n, (_, e) in enumerate(keyed)]
        if isinstance(x, dict):
            return walk(k, x, (*path, k))
        if k in ("TopicId", "Id", "ReplicaDirectoryId") and isinstance(x, str):
            return "directory of the controller" if k == "ReplicaDirectoryId" else sym.uuid(x)
        if k == "ClusterId":
            return sym.uuid(x)
        if k == "BrokerEpoch":
            return sym.epoch(asked, x)
        if k == "Port" and x in sym.ports:
            return "PORT"
        if k in ("HighWatermark", "LogEndOffset") and end is not None:
            return f"end of the log{x - end:+d}"
        if k == "LeaderEpoch" and api == "DescribeQuorum" and epoch is not None:
            # How many elections a start takes, and whether Kafka's controller resigned meanwhile, is no matter here.
            return "epoch of the log's end" if x == epoch else x
        if k in ("LastFetchTimestamp", "LastCaughtUpTimestamp"):
            return "a time" if x > 0 else x
        if k == "FinalizedFeaturesEpoch":
            return "an offset" if x >= 0 else x
        if isinstance(x, bytes):
            return x.hex()
        return x

    return walk(api, body, ()), messages


def identity(sym, entry):
    """What an entry of a list is about; sorting by it keeps results about one thing side by side."""

    def name(v):
        return sym.names.get(v, v) if isinstance(v, str) else v

    return {
        k: name(v)
        for k, v in entry.items()
        if k not in NOT_IDENTITY
        and not isinstance(v, (list, dict, bytes))
        and k not in ("LeaderEpoch", "PartitionEpoch", "LeaderId", "LeaderRecoveryState")
    }


def error_codes(body):
    """Every error code in an answer."""
    if isinstance(body, dict):
        for k, v in body.items():
            if k in ("ErrorCode", "TopicConfigErrorCode"):
                if k == "ErrorCode" or v:
                    yield v
            else:
                yield from error_codes(v)
    elif isinstance(body, list):
        for x in body:
            yield from error_codes(x)
