"""Kafka wire and disk formats, driven by schemas.json (facts extracted from the 4.3.1 message definitions).

    encode("VoteRequest", 2, {...}) -> bytes          decode("VoteResponse", 2, data) -> dict
    request_frame(...) / parse_request(...)           with headers, without the 4-byte size
    batch(...) / batches(data)                        record batches, magic 2
    control(...), metadata(...)                       records inside them

Values: a uuid is Kafka's 22-character text, bytes and records are bytes, structs are dicts, arrays are lists.
Fields left out take the definition's default; unknown field names raise.
"""

import base64
import functools
import json
import struct
from pathlib import Path

import crc32c

DEFS = json.loads((Path(__file__).parent / "schemas.json").read_text())["messages"]
RECORD_TYPES = {m["apiKey"]: n for n, m in DEFS.items() if m["type"] == "metadata"}

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
VOTE, BEGIN, END, DESCRIBE_QUORUM = 52, 53, 54, 55
UPDATE_FEATURES, FETCH_SNAPSHOT, REGISTER_CONTROLLER = 57, 59, 70
ADD_VOTER, REMOVE_VOTER, UPDATE_VOTER = 80, 81, 82

TOPIC, PARTITION = "__cluster_metadata", 0
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
ZERO_UUID = "A" * 22

ERR = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    4: "INVALID_FETCH_SIZE",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    11: "STALE_CONTROLLER_EPOCH",
    12: "OFFSET_METADATA_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21: "INVALID_REQUIRED_ACKS",
    22: "ILLEGAL_GENERATION",
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    26: "INVALID_SESSION_TIMEOUT",
    27: "REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    39: "INVALID_REPLICA_ASSIGNMENT",
    40: "INVALID_CONFIG",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    50: "INVALID_TRANSACTION_TIMEOUT",
    51: "CONCURRENT_TRANSACTIONS",
    52: "TRANSACTION_COORDINATOR_FENCED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    54: "SECURITY_DISABLED",
    55: "OPERATION_NOT_ATTEMPTED",
    56: "KAFKA_STORAGE_ERROR",
    57: "LOG_DIR_NOT_FOUND",
    58: "SASL_AUTHENTICATION_FAILED",
    59: "UNKNOWN_PRODUCER_ID",
    60: "REASSIGNMENT_IN_PROGRESS",
    61: "DELEGATION_TOKEN_AUTH_DISABLED",
    62: "DELEGATION_TOKEN_NOT_FOUND",
    63: "DELEGATION_TOKEN_OWNER_MISMATCH",
    64: "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    65: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    66: "DELEGATION_TOKEN_EXPIRED",
    67: "INVALID_PRINCIPAL_TYPE",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    72: "LISTENER_NOT_FOUND",
    73: "TOPIC_DELETION_DISABLED",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    77: "STALE_BROKER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    79: "MEMBER_ID_REQUIRED",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    85: "NO_REASSIGNMENT_IN_PROGRESS",
    86: "GROUP_SUBSCRIBED_TO_TOPIC",
    87: "INVALID_RECORD",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    90: "PRODUCER_FENCED",
    91: "RESOURCE_NOT_FOUND",
    92: "DUPLICATE_RESOURCE",
    93: "UNACCEPTABLE_CREDENTIAL",
    94: "INCONSISTENT_VOTER_SET",
    95: "INVALID_UPDATE_VERSION",
    96: "FEATURE_UPDATE_FAILED",
    97: "PRINCIPAL_DESERIALIZATION_FAILURE",
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    100: "UNKNOWN_TOPIC_ID",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    103: "INCONSISTENT_TOPIC_ID",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    107: "INELIGIBLE_REPLICA",
    108: "NEW_LEADER_ELECTED",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    112: "UNSUPPORTED_ASSIGNOR",
    113: "STALE_MEMBER_EPOCH",
    114: "MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE",
    116: "UNKNOWN_CONTROLLER_ID",
    117: "UNKNOWN_SUBSCRIPTION_ID",
    118: "TELEMETRY_TOO_LARGE",
    119: "INVALID_REGISTRATION",
    120: "TRANSACTION_ABORTABLE",
    121: "INVALID_RECORD_STATE",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    124: "FENCED_STATE_EPOCH",
    125: "INVALID_VOTER_KEY",
    126: "DUPLICATE_VOTER",
    127: "VOTER_NOT_FOUND",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
CODE = {v: k for k, v in ERR.items()}


def err(code):
    return ERR.get(code, code)


def uuid_text(raw):
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def uuid_raw(text):
    raw = base64.urlsafe_b64decode(text + "==")
    assert len(raw) == 16, text
    return raw


# ---------------------------------------------------------------- primitives

FIXED = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}


def uvarint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def varint(n):
    return uvarint((n << 1) ^ (n >> 63))


class Reader:
    def __init__(self, data, pos=0):
        self.data, self.pos = data, pos

    def take(self, n):
        if n < 0 or self.pos + n > len(self.data):
            raise ValueError(f"need {n} bytes at {self.pos}, have {len(self.data) - self.pos}")
        out = self.data[self.pos : self.pos + n]
        self.pos += n
        return bytes(out)

    def num(self, fmt):
        return struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]

    def uvarint(self):
        n = shift = 0
        while True:
            b = self.take(1)[0]
            n |= (b & 0x7F) << shift
            if b < 0x80:
                return n
            shift += 7
            if shift > 63:
                raise ValueError("varint too long")

    def varint(self):
        n = self.uvarint()
        return (n >> 1) ^ -(n & 1)

    @property
    def left(self):
        return len(self.data) - self.pos


# ---------------------------------------------------------------- schema-driven messages


def within(rng, version):
    return rng is not None and rng[0] <= version and (rng[1] is None or version <= rng[1])


NULL = object()
"""Written as null, even where the layout has none."""


class Codec:
    """Encoder and decoder of one message at one version. defs: the messages of a release."""

    def __init__(self, name, version, defs=DEFS):
        self.name, self.msg, self.version = name, defs[name], version
        if not within(self.msg["valid"], version):
            raise ValueError(f"{name} has no version {version}")
        self.flexible = within(self.msg["flexible"], version)
        self.structs = {s["name"]: s["fields"] for s in self.msg.get("structs", [])}
        self.collect(self.msg["fields"])

    def collect(self, fields):
        for f in fields:
            if "fields" in f:
                self.structs[f["type"].removeprefix("[]")] = f["fields"]
                self.collect(f["fields"])

    def default(self, f):
        if "default" in f:
            return f["default"]
        t = f["type"]
        if t.startswith("[]"):
            return []
        if t == "bool":
            return False
        if t in FIXED:
            return 0
        if t == "string":
            return ""
        if t in ("bytes", "records"):
            return b""
        if t == "uuid":
            return ZERO_UUID
        return self.blank(self.structs[t])

    def blank(self, fields):
        return {f["name"]: self.default(f) for f in fields if within(f["versions"], self.version)}

    # -- writing
    def struct(self, fields, value):
        names = {f["name"] for f in fields}
        extra = set(value) - names - {"_tags", "_present"}
        if extra:
            raise KeyError(f"{self.name} has no field {sorted(extra)}")
        out, tagged = bytearray(), {}
        for f in fields:
            if not within(f["versions"], self.version):
                if f["name"] in value and not f.get("ignorable") and value[f["name"]] != self.default(f):
                    raise KeyError(f"{f['name']} does not exist in {self.name} v{self.version}")
                continue
            v = value.get(f["name"], self.default(f))
            if within(f.get("tagged"), self.version):
                if self.full(f, v) != self.full(f, self.default(f)):
                    tagged[f["tag"]] = self.value(f, v)
            else:
                out += self.value(f, v)
        if self.flexible:
            for tag, raw in value.get("_tags", {}).items():
                tagged[int(tag)] = raw
            out += uvarint(len(tagged))
            for tag in sorted(tagged):
                out += uvarint(tag) + uvarint(len(tagged[tag])) + tagged[tag]
        return bytes(out)

    def full(self, f, v):
        """A struct value with its defaults filled in, so that two can be compared."""
        t = f["type"]
        if t in self.structs and isinstance(v, dict):
            return {**self.blank(self.structs[t]), **{k: x for k, x in v.items() if k != "_present"}}
        return v

    def value(self, f, v):
        t, flex = f["type"], self.flexible
        if "flexible" in f:
            flex = within(f["flexible"], self.version)
        nullable = within(f.get("nullable"), self.version)
        if v is NULL:
            return self.length(None, flex, ">h" if t == "string" else ">i")
        if v is None and not nullable:
            raise ValueError(f"{f['name']} is not nullable in {self.name} v{self.version}")
        if t.startswith("[]"):
            head = self.length(v, flex, ">i")
            return (
                head if v is None else head + b"".join(self.value({**f, "type": t[2:], "nullable": None}, x) for x in v)
            )
        if t == "bool":
            return b"\1" if v else b"\0"
        if t in FIXED:
            return struct.pack(FIXED[t], v)
        if t == "uuid":
            return uuid_raw(v)
        if t == "string":
            raw = None if v is None else v.encode()
            return self.length(raw, flex, ">h") + (raw or b"")
        if t in ("bytes", "records"):
            return self.length(v, flex, ">i") + (v or b"")
        if nullable:
            return b"\xff" if v is None else b"\1" + self.struct(self.structs[t], v)
        return self.struct(self.structs[t], v)

    @staticmethod
    def length(v, flex, fmt):
        if flex:
            return uvarint(0 if v is None else len(v) + 1)
        return struct.pack(fmt, -1 if v is None else len(v))

    # -- reading
    def read_struct(self, fields, r):
        out, tagged = {}, {}
        for f in fields:
            if not within(f["versions"], self.version):
                continue
            if within(f.get("tagged"), self.version):
                tagged[f["tag"]] = f
                out[f["name"]] = self.default(f)
            else:
                out[f["name"]] = self.read(f, r)
        if self.flexible:
            last = -1
            for _ in range(r.uvarint()):
                tag, size = r.uvarint(), r.uvarint()
                if tag <= last:
                    raise ValueError(f"tags out of order: {tag} after {last}")
                last, sub = tag, Reader(r.take(size))
                if tag in tagged:
                    out[tagged[tag]["name"]] = self.read(tagged[tag], sub)
                    out.setdefault("_present", []).append(tagged[tag]["name"])
                    if sub.left:
                        raise ValueError(f"{sub.left} bytes left in tag {tag}")
                else:
                    out.setdefault("_tags", {})[tag] = sub.data
        return out

    def read(self, f, r):
        t, flex = f["type"], self.flexible
        if "flexible" in f:
            flex = within(f["flexible"], self.version)
        if t.startswith("[]"):
            n = self.read_length(r, flex, ">i")
            if n is None:
                return None
            if n > r.left:
                raise ValueError(f"array of {n} in {r.left} bytes")
            return [self.read({**f, "type": t[2:], "nullable": None}, r) for _ in range(n)]
        if t == "bool":
            return r.take(1) != b"\0"
        if t in FIXED:
            return r.num(FIXED[t])
        if t == "uuid":
            return uuid_text(r.take(16))
        if t == "string":
            n = self.read_length(r, flex, ">h")
            return None if n is None else r.take(n).decode()
        if t in ("bytes", "records"):
            n = self.read_length(r, flex, ">i")
            return None if n is None else r.take(n)
        if within(f.get("nullable"), self.version) and r.num(">b") < 0:
            return None
        return self.read_struct(self.structs[t], r)

    @staticmethod
    def read_length(r, flex, fmt):
        n = r.uvarint() - 1 if flex else r.num(fmt)
        return None if n < 0 else n

    def encode(self, value):
        return self.struct(self.msg["fields"], value)

    def decode(self, data, partial=False):
        r = Reader(data)
        out = self.read_struct(self.msg["fields"], r)
        if r.left and not partial:
            raise ValueError(f"{r.left} bytes left after {self.name} v{self.version}")
        return (out, r.data[r.pos :]) if partial else out


class Release:
    """The messages of one Kafka release, by their definitions; frames without the 4-byte size."""

    def __init__(self, defs):
        self.defs = defs
        self.by_key = {(m["apiKey"], m["type"]): n for n, m in defs.items() if "header" in m}
        self.codec = functools.cache(lambda name, version: Codec(name, version, defs))

    def encode(self, name, version, value):
        return self.codec(name, version).encode(value)

    def decode(self, name, version, data, partial=False):
        return self.codec(name, version).decode(data, partial)

    def header_version(self, name, version):
        return next(h for low, high, h in self.defs[name]["header"] if low <= version <= high)

    def request_frame(self, key, version, correlation, body, client_id="conformance"):
        """Header and body of a request."""
        name = self.by_key[key, "request"]
        head = {"RequestApiKey": key, "RequestApiVersion": version, "CorrelationId": correlation, "ClientId": client_id}
        return self.encode("RequestHeader", self.header_version(name, version), head) + self.body(name, version, body)

    def parse_request(self, frame):
        """-> (key, version, correlation, client id, body)"""
        key, version = struct.unpack(">hh", frame[:4])
        name = self.by_key[key, "request"]
        head, rest = self.decode("RequestHeader", self.header_version(name, version), frame, partial=True)
        return key, version, head["CorrelationId"], head["ClientId"], self.decode(name, version, rest)

    def response_frame(self, key, version, correlation, body):
        name = self.by_key[key, "response"]
        head = self.encode("ResponseHeader", self.header_version(name, version), {"CorrelationId": correlation})
        return head + self.body(name, version, body)

    def parse_response(self, key, version, frame):
        """-> (correlation, body)"""
        name = self.by_key[key, "response"]
        head, rest = self.decode("ResponseHeader", self.header_version(name, version), frame, partial=True)
        return head["CorrelationId"], self.decode(name, version, rest)

    def body(self, name, version, body):
        """A body given as bytes is sent as it is."""
        return body if isinstance(body, bytes) else self.encode(name, version, body)


THIS = Release(DEFS)
BY_KEY, codec, encode, decode = THIS.by_key, THIS.codec, THIS.encode, THIS.decode
request_frame, parse_request = THIS.request_frame, THIS.parse_request
response_frame, parse_response = THIS.response_frame, THIS.parse_response
API = {n.removesuffix("Request"): k for (k, t), n in BY_KEY.items() if t == "request"}


# ---------------------------------------------------------------- records

CONTROL = {
    2: ("LeaderChange", "LeaderChangeMessage"),
    3: ("SnapshotHeader", "SnapshotHeaderRecord"),
    4: ("SnapshotFooter", "SnapshotFooterRecord"),
    5: ("KRaftVersion", "KRaftVersionRecord"),
    6: ("KRaftVoters", "VotersRecord"),
}
CONTROL_ID = {name: (number, schema) for number, (name, schema) in CONTROL.items()}


def control(kind, value, version=0):
    """A (key, value) pair of a control record."""
    number, schema = CONTROL_ID[kind]
    return struct.pack(">hh", 0, number), encode(schema, version, {"Version": version, **value})


def metadata(kind, value, version=0):
    """A (key, value) pair of a metadata record: frame version, record type, record version, body."""
    return None, uvarint(1) + uvarint(DEFS[kind]["apiKey"]) + uvarint(version) + encode(kind, version, value)


def read_control(key, value):
    _key_version, number = struct.unpack(">hh", key[:4])
    kind, schema = CONTROL[number]
    version = struct.unpack(">h", value[:2])[0]
    out = decode(schema, version, value)
    return {"kind": kind, **out}


def read_metadata(value):
    r = Reader(value)
    frame, kind, version = r.uvarint(), r.uvarint(), r.uvarint()
    if frame != 1:
        raise ValueError(f"metadata frame version {frame}")
    name = RECORD_TYPES[kind]
    return {"kind": name, "version": version, **decode(name, version, r.data[r.pos :])}


BATCH_HEAD = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
BATCH_BODY = struct.Struct(">hiqqqhii")  # attributes, last delta, times, producer id/epoch, sequence, count
BATCH_OVERHEAD = BATCH_HEAD.size + BATCH_BODY.size


def record(delta, key, value, ts_delta=0):
    def part(b):
        return varint(-1) if b is None else varint(len(b)) + b

    body = b"\0" + varint(ts_delta) + varint(delta) + part(key) + part(value) + varint(0)
    return varint(len(body)) + body


def batch(base, epoch, records, is_control=None, timestamp=1_700_000_000_000, attributes=None):
    """One batch from (key, value) pairs. Control batches are recognised by their keys."""
    if is_control is None:
        is_control = records[0][0] is not None
    attr = (0x20 if is_control else 0) if attributes is None else attributes
    body = BATCH_BODY.pack(attr, len(records) - 1, timestamp, timestamp, -1, -1, -1, len(records))
    body += b"".join(record(i, k, v) for i, (k, v) in enumerate(records))
    return BATCH_HEAD.pack(base, len(body) + 9, epoch, 2, crc32c.crc32c(body)) + body


class Batch:
    def __init__(self, raw):
        self.raw = raw
        self.base, self.length, self.epoch, self.magic, self.crc = BATCH_HEAD.unpack_from(raw)
        body = raw[BATCH_HEAD.size :]
        (
            self.attributes,
            self.last_delta,
            self.first_ts,
            self.max_ts,
            self.producer_id,
            self.producer_epoch,
            self.sequence,
            self.count,
        ) = BATCH_BODY.unpack_from(body)
        self.valid = crc32c.crc32c(body) == self.crc
        self.control = bool(self.attributes & 0x20)
        self.last = self.base + self.last_delta
        self.pairs = []
        if self.attributes & 7 == 0:
            r = Reader(body, BATCH_BODY.size)
            for _ in range(self.count):
                size = r.varint()
                end = r.pos + size
                r.take(1), r.varint()
                delta = r.varint()
                k = r.varint()
                key = None if k < 0 else r.take(k)
                v = r.varint()
                value = None if v < 0 else r.take(v)
                r.pos = end
                self.pairs.append((self.base + delta, key, value))

    @property
    def values(self):
        return [value for _, _, value in self.pairs]

    @property
    def records(self):
        """Decoded records: dicts with offset and kind."""
        if self.control:
            return [{"offset": o, **read_control(k, v)} for o, k, v in self.pairs]
        return [{"offset": o, **read_metadata(v)} for o, _, v in self.pairs]

    def __repr__(self):
        return f"<Batch {self.base}..{self.last} epoch {self.epoch}{' control' if self.control else ''}>"


def batches(data, partial=True):
    """Parse batches; with partial, stop quietly at an incomplete tail (as a reader of a Fetch response does)."""
    out, i = [], 0
    while i + 12 <= len(data):
        n = struct.unpack_from(">i", data, i + 8)[0]
        if n < BATCH_OVERHEAD - 12 or i + 12 + n > len(data):
            break
        out.append(Batch(bytes(data[i : i + 12 + n])))
        i += 12 + n
    if i != len(data) and not partial:
        raise ValueError(f"{len(data) - i} bytes after the last batch")
    return out


# ---------------------------------------------------------------- voters and snapshots


def voter(node, directory, port, listener="CONTROLLER", host="127.0.0.1", low=0, high=1):
    return {
        "VoterId": node,
        "VoterDirectoryId": directory,
        "Endpoints": [{"Name": listener, "Host": host, "Port": port}],
        "KRaftVersionFeature": {"MinSupportedVersion": low, "MaxSupportedVersion": high},
    }


def snapshot(epoch, records=(), voters=None, kraft_version=1, timestamp=1_700_000_000_000):
    """Bytes of a checkpoint: header (and voters), metadata batches, footer. Epoch is the batches' leader epoch."""
    head = [control("SnapshotHeader", {"LastContainedLogTimestamp": timestamp})]
    if voters is not None:
        head += [control("KRaftVersion", {"KRaftVersion": kraft_version}), control("KRaftVoters", {"Voters": voters})]
    out, offset = batch(0, epoch, head), len(head)
    for group in records:
        out += batch(offset, epoch, group)
        offset += len(group)
    return out + batch(offset, epoch, [control("SnapshotFooter", {})])
