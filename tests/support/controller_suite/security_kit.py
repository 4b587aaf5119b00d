"""What sections 30-35 share: connections with SASL, clusters with an authorizer and their users, request bodies."""

import base64
import hashlib
import hmac
import itertools
import os
import struct

from conformance import codec
from conformance.codec import API, TOPIC, err
from conformance.target import HOST, new_uuid, until

from controller_suite.brokers import FEATURES
from controller_suite.client import Client
from controller_suite.cluster import Cluster

USERS = 200  # u0, u1, ...; the password of uN is pw-uN
SECRET = "not-so-secret"  # delegation.token.secret.key
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"

# numbers of the protocol
(
    ANY_OP,
    ALL,
    READ,
    WRITE,
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
) = range(1, 13)
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
ANY_RESOURCE, R_TOPIC, R_GROUP, R_CLUSTER, R_TXN, R_TOKEN, R_USER = range(1, 8)
PATTERN_ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ANY_PERMISSION, DENY, ALLOW = 1, 2, 3
CLUSTER = "kafka-cluster"
HASH = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


# ---------------------------------------------------------------- connections


class Refused(Exception):
    """SASL did not succeed: error is the code, text the message."""

    def __init__(self, error, text, mechanisms=()):
        super().__init__(f"{err(error)}: {text}")
        self.error, self.text, self.mechanisms = err(error), text, mechanisms


class Conn(Client):
    """A client that can authenticate."""

    def handshake(self, mechanism, version=1):
        r = self.call("SaslHandshake", {"Mechanism": mechanism}, version)
        if r["ErrorCode"]:
            raise Refused(r["ErrorCode"], "", r["Mechanisms"])
        return r

    def step(self, token, version=2):
        r = self.call("SaslAuthenticate", {"AuthBytes": token}, version)
        if r["ErrorCode"]:
            raise Refused(r["ErrorCode"], r["ErrorMessage"])
        return r

    def plain(self, user, password=None, version=2, authz=""):
        self.handshake("PLAIN")
        return self.step(f"{authz}\0{user}\0{password or 'pw-' + user}".encode(), version)

    def scram(self, user, password, mechanism="SCRAM-SHA-256", version=2):
        """The whole exchange; also checks the server's own signature."""
        self.handshake(mechanism)
        s = Scram(user, password, mechanism)
        challenge = self.step(s.first(), version)["AuthBytes"]
        done = self.step(s.final(challenge), version)
        s.check(done["AuthBytes"])
        return done


class Scram:
    """Client side of RFC 5802."""

    def __init__(self, user, password, mechanism):
        self.hash = HASH[mechanism]
        self.password = password
        self.nonce = base64.b64encode(os.urandom(15)).decode()
        self.bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"

    def mac(self, key, text):
        return hmac.new(key, text, self.hash).digest()

    def first(self):
        return ("n,," + self.bare).encode()

    def final(self, challenge):
        text = challenge.decode()
        self.fields = dict(p.split("=", 1) for p in text.split(","))
        assert self.fields["r"].startswith(self.nonce) and len(self.fields["r"]) > len(self.nonce), text
        salted = hashlib.pbkdf2_hmac(
            self.hash, self.password.encode(), base64.b64decode(self.fields["s"]), int(self.fields["i"])
        )
        client = self.mac(salted, b"Client Key")
        end = f"c=biws,r={self.fields['r']}"
        message = f"{self.bare},{text},{end}".encode()
        signature = self.mac(hashlib.new(self.hash, client).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
        self.expected = self.mac(self.mac(salted, b"Server Key"), message)
        return f"{end},p={base64.b64encode(proof).decode()}".encode()

    def check(self, data):
        assert data.decode().startswith("v="), data
        assert base64.b64decode(data.decode()[2:]) == self.expected, "the server's signature"


def salted(password, salt, iterations, mechanism="SCRAM-SHA-256"):
    return hashlib.pbkdf2_hmac(HASH[mechanism], password.encode(), salt, iterations)


def scram_keys(salted_password, mechanism="SCRAM-SHA-256"):
    """(StoredKey, ServerKey)"""
    h = HASH[mechanism]
    client = hmac.new(salted_password, b"Client Key", h).digest()
    return hashlib.new(h, client).digest(), hmac.new(salted_password, b"Server Key", h).digest()


# ---------------------------------------------------------------- clusters


def sasl_props(port, plaintext=None, mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", users=USERS):
    """SASL on the listener CONTROLLER; with plaintext, a second controller listener OPEN without authentication."""
    names = {"admin": "pw-admin", **{f"u{i}": f"pw-u{i}" for i in range(users)}}
    listeners = f"CONTROLLER://{HOST}:{port}" + (f",OPEN://{HOST}:{plaintext}" if plaintext else "")
    out = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER" + (",OPEN" if plaintext else ""),
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT" + (",OPEN:PLAINTEXT" if plaintext else ""),
        "sasl.enabled.mechanisms": mechanisms,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": " ".join(
            [
                PLAIN_LOGIN,
                'required username="admin" password="pw-admin"',
                *(f'user_{n}="{p}"' for n, p in names.items()),
            ]
        )
        + ";",
    }
    for m in ("scram-sha-256", "scram-sha-512"):
        if m.upper() in mechanisms:
            out[f"listener.name.controller.{m}.sasl.jaas.config"] = f"{SCRAM_LOGIN} required;"
    return out


class Secure(Cluster):
    """Controllers whose listener CONTROLLER wants SASL; the kit's own requests are made by the user admin (PLAIN).

    open_port: a second listener OPEN without authentication (one controller only), its port in .open.
    """

    def __init__(self, ws, n=1, open_port=False, mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", users=USERS, **props):
        super().__init__(ws, n, **props)
        self.open = ws.port() if open_port else None
        for node in self.nodes.values():
            node.set(**{k: v for k, v in sasl_props(node.port, self.open, mechanisms, users).items() if k not in props})

    def connect(self, i=None):
        """A connection nobody has authenticated on."""
        return Conn(self.nodes[i or self.ids[0]].port)

    def user(self, name, password=None, i=None):
        c = self.connect(i)
        c.plain(name, password)
        return c

    def as_user(self, name, api, body, version=None):
        with self.user(name) as c:
            return c.call(api, body, version)

    def anonymous(self, api, body, version=None):
        with Conn(self.open) as c:
            return c.call(api, body, version)

    def quorum(self, i):
        try:
            with self.user("admin", i=i) as c:
                p = c.call(
                    "DescribeQuorum",
                    {"Topics": [{"TopicName": TOPIC, "Partitions": [{"PartitionIndex": 0}]}]},
                    timeout=5,
                )["Topics"][0]["Partitions"][0]
            return p if p["ErrorCode"] == 0 else None
        except (OSError, ValueError, IndexError):
            return None

    def active(self):
        for i, n in self.nodes.items():
            if n.alive:
                q = self.quorum(i)
                if q and q["LeaderId"] == i and q["HighWatermark"] > 0:
                    return i
        return None

    def wait_active(self, timeout=60, beyond=-1):
        def ready():
            try:
                self.leader = self.active()
                if not self.leader or self.quorum(self.leader)["LeaderEpoch"] <= beyond:
                    return None
                r = self.call("BrokerHeartbeat", {"BrokerId": 999, "BrokerEpoch": 0, "CurrentMetadataOffset": 0})
                return (
                    self.leader if err(r["ErrorCode"]) in ("STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED") else None
                )
            except (OSError, TypeError):
                self.forget()
                return None

        i = until("a controller is active", ready, timeout, 0.1)
        ends = []
        until(
            "the log rests",
            lambda: ends.append(self.log.pull()) or (len(ends) > 3 and len(set(ends[-4:])) == 1),
            30,
            0.1,
        )
        return i

    def epoch(self):
        return self.quorum(self.leader)["LeaderEpoch"]

    def connection(self, i):
        return self.user("admin", i=i)


_users = itertools.count()


def fresh_user():
    """A user no other test uses: "uN"."""
    return f"u{next(_users)}"


def codes(body, path=""):
    """All error codes of an answer by name: {"ErrorCode": "NONE", "Topics.0.ErrorCode": ...}"""
    out = {}
    for k, v in body.items() if isinstance(body, dict) else enumerate(body):
        if isinstance(v, (dict, list)):
            out.update(codes(v, f"{path}{k}."))
        elif isinstance(k, str) and k.endswith("ErrorCode"):
            out[path + k] = err(v)
    return out


DENIED = {
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
}


def denied(body):
    return bool(DENIED & set(codes(body).values()))


# ---------------------------------------------------------------- access control


def acl(principal, operation, kind=R_CLUSTER, name=CLUSTER, pattern=LITERAL, permission=ALLOW, host="*"):
    return {
        "ResourceType": kind,
        "ResourceName": name,
        "ResourcePatternType": pattern,
        "Principal": principal,
        "Host": host,
        "Operation": operation,
        "PermissionType": permission,
    }


def acl_filter(
    kind=ANY_RESOURCE,
    name=None,
    pattern=PATTERN_ANY,
    principal=None,
    host=None,
    operation=ANY_OP,
    permission=ANY_PERMISSION,
):
    return {
        "ResourceTypeFilter": kind,
        "ResourceNameFilter": name,
        "PatternTypeFilter": pattern,
        "PrincipalFilter": principal,
        "HostFilter": host,
        "Operation": operation,
        "PermissionType": permission,
    }


def create_acls(c, *acls, version=None):
    """[(error, message)] of CreateAcls; c: a cluster or a connection."""
    return [
        (err(r["ErrorCode"]), r["ErrorMessage"])
        for r in c.call("CreateAcls", {"Creations": list(acls)}, version)["Results"]
    ]


def delete_acls(c, *filters, version=None):
    return c.call("DeleteAcls", {"Filters": list(filters)}, version)["FilterResults"]


def describe_acls(c, version=None, **kw):
    return c.call("DescribeAcls", acl_filter(**kw), version)


def flat(described):
    """A DescribeAcls answer as a set of tuples (type, name, pattern, principal, host, operation, permission)."""
    return {
        (
            r["ResourceType"],
            r["ResourceName"],
            r["PatternType"],
            a["Principal"],
            a["Host"],
            a["Operation"],
            a["PermissionType"],
        )
        for r in described["Resources"]
        for a in r["Acls"]
    }


def key(a):
    return (
        a["ResourceType"],
        a["ResourceName"],
        a["ResourcePatternType"],
        a["Principal"],
        a["Host"],
        a["Operation"],
        a["PermissionType"],
    )


def matched(result):
    """One filter's deleted ACLs as a set of tuples."""
    return {
        (
            a["ResourceType"],
            a["ResourceName"],
            a["PatternType"],
            a["Principal"],
            a["Host"],
            a["Operation"],
            a["PermissionType"],
        )
        for a in result["MatchingAcls"]
    }


def allow(c, *acls):
    """Create them and wait until the authorizer has them (it learns of a committed record a moment later)."""
    got = create_acls(c, *acls)
    assert all(e == "NONE" for e, _ in got), got
    until(
        "the ACLs are in force",
        lambda: (
            {key(a) for a in acls}
            <= set().union(*(flat(describe_acls(c, principal=p)) for p in {a["Principal"] for a in acls}))
        ),
        10,
        0.02,
    )


def revoke(c, **kw):
    """Delete what a filter matches and wait until it is gone; what was deleted."""
    r = delete_acls(c, acl_filter(**kw))[0]
    assert r["ErrorCode"] == 0, r
    until("the ACLs are gone", lambda: not flat(describe_acls(c, **kw)), 10, 0.02)
    return matched(r)


# ---------------------------------------------------------------- features


def update_features(c, *changes, version=2, validate=False, timeout=10000):
    """changes: (feature, level) or (feature, level, upgrade type)"""
    updates = []
    for name, level, *kind in changes:
        u = {"Feature": name, "MaxVersionLevel": level}
        if version >= 1:
            u["UpgradeType"] = kind[0] if kind else 1
        elif kind:
            u["AllowDowngrade"] = kind[0] != 1
        updates.append(u)
    body = {"timeoutMs": timeout, "FeatureUpdates": updates}
    if version >= 1:
        body["ValidateOnly"] = validate
    return c.call("UpdateFeatures", body, version)


def finalized(c):
    """(epoch, {feature: level}) of ApiVersions v4"""
    r = c.call("ApiVersions", {"ClientSoftwareName": "conformance", "ClientSoftwareVersion": "1"}, 4)
    for f in r["FinalizedFeatures"]:
        assert f["MinVersionLevel"] == f["MaxVersionLevel"], f
    return r["FinalizedFeaturesEpoch"], {f["Name"]: f["MaxVersionLevel"] for f in r["FinalizedFeatures"]}


def restore(c):
    """Unregister all brokers and finalize the levels of a fresh 4.3.1 cluster again."""
    c.clean()
    for node in c.registered():
        if node not in c.ids:
            register_controller(c, node, FEATURES)
    have = dict.fromkeys(FEATURES, 0)
    for r in c.log.since(0, "FeatureLevel"):
        have[r["Name"]] = r["FeatureLevel"]
    low = [(n, hi) for n, (_, hi) in FEATURES.items() if n != "kraft.version" and have[n] < hi]
    if low:
        r = update_features(c, *low)
        assert r["ErrorCode"] == 0, r


def register_controller(c, node, features):
    """ControllerRegistration as another controller that supports these ranges."""
    r = c.call(
        "ControllerRegistration",
        {
            "ControllerId": node,
            "IncarnationId": new_uuid(),
            "ZkMigrationReady": False,
            "Listeners": [{"Name": "CONTROLLER", "Host": "h", "Port": 1, "SecurityProtocol": 0}],
            "Features": [
                {"Name": n, "MinSupportedVersion": a, "MaxSupportedVersion": b} for n, (a, b) in features.items()
            ],
        },
    )
    assert r["ErrorCode"] == 0, r


# ---------------------------------------------------------------- forwarding


def principal(name, kind="User", token=False, version=0):
    """A principal as a broker puts it into an envelope: version, then the body."""
    return struct.pack(">h", version) + codec.encode(
        "DefaultPrincipalData", 0, {"Type": kind, "Name": name, "TokenAuthenticated": token}
    )


def envelope(
    api,
    version,
    body,
    who="alice",
    correlation=77,
    host=b"\x7f\0\0\1",
    client_id="forwarded",
    principal_bytes=None,
    frame=None,
):
    frame = codec.request_frame(API[api], version, correlation, body, client_id) if frame is None else frame
    return {
        "RequestData": frame,
        "RequestPrincipal": principal(who) if principal_bytes is None else principal_bytes,
        "ClientHostAddress": host,
    }


def forward(c, api, version, body, **kw):
    """The decoded inner answer of a forwarded request; the envelope's error must be 0."""
    r = c.call("Envelope", envelope(api, version, body, **kw))
    assert r["ErrorCode"] == 0, err(r["ErrorCode"])
    correlation, inner = codec.parse_response(API[api], version, r["ResponseData"])
    assert correlation == kw.get("correlation", 77)
    return inner
