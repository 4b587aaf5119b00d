"""35. Delegation tokens, forwarding, producer ids, DescribeCluster, and what the listener offers."""

import base64
import hmac
import struct
import time

from conformance import codec
from conformance.codec import API, err
from conformance.target import new_uuid, until
from controller_suite.metadata_log import full, shape
from controller_suite.security_kit import (
    ALTER,
    CREATE,
    R_TOPIC,
    SECRET,
    Conn,
    Scram,
    acl,
    allow,
    denied,
    envelope,
    forward,
    fresh_user,
    principal,
)

DAY = 86400000


def create(c, renewers=(), life=-1, owner=None, version=3):
    body = {"Renewers": [{"PrincipalType": t, "PrincipalName": n} for t, n in renewers], "MaxLifetimeMs": life}
    if version >= 3:
        body.update(OwnerPrincipalType=owner and owner[0], OwnerPrincipalName=owner and owner[1])
    return c.call("CreateDelegationToken", body, version)


def renew(c, mac, period=-1):
    return c.call("RenewDelegationToken", {"Hmac": mac, "RenewPeriodMs": period})


def expire(c, mac, period):
    return c.call("ExpireDelegationToken", {"Hmac": mac, "ExpiryTimePeriodMs": period})


def known(c, mac, period=-1):
    """Renew a token just created: it is found once the committed record has reached the token cache."""
    return until("the token is known", lambda: (r := renew(c, mac, period))["ErrorCode"] != 62 and r)


# ---------------------------------------------------------------- delegation tokens (KIP-48)


def test_a_new_token(sec):
    """Owner and requester are the user; 7 days at most, 1 day until the first renewal.

    The hmac is HMAC-SHA-512 of the id under the secret key.
    """
    user = fresh_user()
    with sec.user(user) as c:
        m, before = sec.log.mark(), int(time.time() * 1000)
        t = create(c, [("User", "bob")])
        now = t["IssueTimestampMs"]
        assert before - 5 <= now <= time.time() * 1000 + 5 and len(t["TokenId"]) == 22
        assert t == {
            "ErrorCode": 0,
            "PrincipalType": "User",
            "PrincipalName": user,
            "TokenRequesterPrincipalType": "User",
            "TokenRequesterPrincipalName": user,
            "IssueTimestampMs": now,
            "ExpiryTimestampMs": now + DAY,
            "MaxTimestampMs": now + 7 * DAY,
            "TokenId": t["TokenId"],
            "Hmac": hmac.new(SECRET.encode(), t["TokenId"].encode(), "sha512").digest(),
            "ThrottleTimeMs": 0,
        }
        recs = sec.log.since(m)
        assert shape(recs) == ["DelegationToken v0"]
        assert recs[0] == full(
            "DelegationToken",
            0,
            Owner=f"User:{user}",
            Requester=f"User:{user}",
            Renewers=["User:bob"],
            IssueTimestamp=now,
            MaxTimestamp=now + 7 * DAY,
            ExpirationTimestamp=now + DAY,
            TokenId=t["TokenId"],
        )


def test_a_short_life(sec):
    """MaxLifetimeMs bounds both times; 0 and negative mean the default, and so does more than that."""
    with sec.user(fresh_user()) as c:
        for life, most, first in (
            (60000, 60000, 60000),
            (2 * DAY, 2 * DAY, DAY),
            (0, 7 * DAY, DAY),
            (30 * DAY, 7 * DAY, DAY),
        ):
            t = create(c, life=life)
            assert (t["MaxTimestampMs"] - t["IssueTimestampMs"], t["ExpiryTimestampMs"] - t["IssueTimestampMs"]) == (
                most,
                first,
            ), life


def test_renewing(sec):
    """Owner and renewers may; the new time is now plus the period, never past the end.

    Another DelegationToken record carries it.
    """
    user, friend = fresh_user(), fresh_user()
    with sec.user(user) as c, sec.user(friend) as f:
        t = create(c, [("User", friend)], life=600000)
        known(c, t["Hmac"])
        for who, period in ((c, 30000), (f, 40000)):
            m, now = sec.log.mark(), time.time() * 1000
            r = renew(who, t["Hmac"], period)
            assert r["ErrorCode"] == 0 and now + period - 5 <= r["ExpiryTimestampMs"] <= time.time() * 1000 + period + 5
            recs = sec.log.since(m)
            assert shape(recs) == ["DelegationToken v0"] and recs[0]["ExpirationTimestamp"] == r["ExpiryTimestampMs"]
            assert (recs[0]["TokenId"], recs[0]["Renewers"], recs[0]["IssueTimestamp"]) == (
                t["TokenId"],
                [f"User:{friend}"],
                t["IssueTimestampMs"],
            )
        assert (
            renew(c, t["Hmac"], 10 * DAY)["ExpiryTimestampMs"]
            == renew(c, t["Hmac"], -1)["ExpiryTimestampMs"]
            == t["MaxTimestampMs"]
        )


def test_strangers_and_unknown_tokens(sec):
    """DELEGATION_TOKEN_OWNER_MISMATCH for anybody else, super users too.

    DELEGATION_TOKEN_NOT_FOUND for an unknown hmac; nothing is written.
    """
    user = fresh_user()
    with sec.user(user) as c, sec.user(fresh_user()) as s, sec.user("admin") as a:
        t = create(c)
        known(c, t["Hmac"])
        m = sec.log.mark()
        for who in (s, a):
            for r in (renew(who, t["Hmac"]), expire(who, t["Hmac"], -1)):
                assert (err(r["ErrorCode"]), r["ExpiryTimestampMs"]) == ("DELEGATION_TOKEN_OWNER_MISMATCH", 0)
        for r in (renew(c, b"no such token"), expire(c, b"no such token", -1)):
            assert err(r["ErrorCode"]) == "DELEGATION_TOKEN_NOT_FOUND"
        assert sec.log.since(m) == []


def test_expiring(sec):
    """A period sets the end to now plus it, at most the token's own end; a negative one removes the token at once.

    RemoveDelegationToken.
    """
    with sec.user(fresh_user()) as c:
        t = create(c, life=600000)
        known(c, t["Hmac"])
        m = sec.log.mark()
        r = expire(c, t["Hmac"], 20000)
        assert r["ErrorCode"] == 0 and abs(r["ExpiryTimestampMs"] - time.time() * 1000 - 20000) < 2000
        assert sec.log.since(m)[0]["ExpirationTimestamp"] == r["ExpiryTimestampMs"]
        assert expire(c, t["Hmac"], 10 * DAY)["ExpiryTimestampMs"] == t["MaxTimestampMs"]
        m = sec.log.mark()
        assert expire(c, t["Hmac"], -1)["ErrorCode"] == 0
        assert sec.log.since(m) == [full("RemoveDelegationToken", 0, TokenId=t["TokenId"])]
        until("the token is gone", lambda: err(renew(c, t["Hmac"])["ErrorCode"]) == "DELEGATION_TOKEN_NOT_FOUND")


def test_logging_in_with_a_token(sec):
    """KIP-48: SCRAM with tokenauth=true, id and hmac.

    A session of the owner, as long as the token lives, that may not make tokens itself.
    """
    user = fresh_user()
    with sec.user(user) as c:
        t = create(c, life=600000)
        known(c, t["Hmac"])
    with sec.connect() as c:
        c.handshake("SCRAM-SHA-256")
        s = Scram(t["TokenId"], base64.b64encode(t["Hmac"]).decode(), "SCRAM-SHA-256")
        s.bare += ",tokenauth=true"
        r = c.step(s.final(c.step(s.first())["AuthBytes"]))
        s.check(r["AuthBytes"])
        assert 0 < r["SessionLifetimeMs"] <= 600000
        assert denied(c.call("UnregisterBroker", {"BrokerId": 773}))
        allow(sec, acl(f"User:{user}", ALTER))
        assert not denied(c.call("UnregisterBroker", {"BrokerId": 773}))
        for r in (create(c), renew(c, t["Hmac"]), expire(c, t["Hmac"], -1)):
            assert err(r["ErrorCode"]) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


# ---------------------------------------------------------------- forwarding (KIP-590)


def topic_body(*names):
    return {"Topics": [{"Name": n, "NumPartitions": 1, "ReplicationFactor": 1} for n in names], "timeoutMs": 5000}


def test_an_envelope_is_judged_by_the_principal_inside(sec):
    """The sender needs CLUSTER_ACTION, the forwarded request what it needs, for the principal and the address in the
    envelope.
    """
    user, topic = fresh_user(), "env-" + new_uuid()
    with sec.user("admin") as c:

        def attempt(**kw):
            return err(forward(c, "CreateTopics", 7, topic_body(topic), who=user, **kw)["Topics"][0]["ErrorCode"])

        assert attempt() == "TOPIC_AUTHORIZATION_FAILED"
        allow(sec, acl(f"User:{user}", CREATE, R_TOPIC, topic, host="9.8.7.6"))
        assert attempt() == "TOPIC_AUTHORIZATION_FAILED"
        assert attempt(host=b"\x09\x08\x07\x06") == "INVALID_REPLICATION_FACTOR"
        assert attempt(host=b"\x09\x08\x07\x06", correlation=-9) == "INVALID_REPLICATION_FACTOR"
        r = c.call(
            "Envelope", envelope("CreateTopics", 7, topic_body(topic), principal_bytes=principal("admin", kind="Robot"))
        )
        assert (
            err(codec.parse_response(API["CreateTopics"], 7, r["ResponseData"])[1]["Topics"][0]["ErrorCode"])
            == "TOPIC_AUTHORIZATION_FAILED"
        )


def test_a_forwarded_change_is_made(sec):
    """The answer inside is the one of that version, with the forwarded correlation id.

    Records are those of a direct request.
    """
    with sec.user("admin") as c:
        m = sec.log.mark()
        r = forward(
            c,
            "AlterClientQuotas",
            0,
            {
                "Entries": [
                    {
                        "Entity": [{"EntityType": "user", "EntityName": "fwd"}],
                        "Ops": [{"Key": "producer_byte_rate", "Value": 12.0}],
                    }
                ]
            },
            who="admin",
            correlation=4711,
        )
        assert r["Entries"][0]["ErrorCode"] == 0 and shape(sec.log.since(m)) == ["ClientQuota v0"]


def test_envelopes_that_cannot_be_opened(sec):
    """Unreadable principal: 97; bad address, or an API that is not forwarded: 42; an unreadable request: 35.

    Each without an answer inside.
    """
    body = topic_body("never")
    with sec.user("admin") as c:

        def attempt(request):
            r = c.call("Envelope", request)
            assert r["ResponseData"] is None
            return err(r["ErrorCode"])

        for bad in (None, b"", b"zz", principal("admin", version=1)):
            assert (
                attempt({**envelope("CreateTopics", 7, body), "RequestPrincipal": bad})
                == "PRINCIPAL_DESERIALIZATION_FAILURE"
            ), bad
        assert attempt(envelope("CreateTopics", 7, body, host=b"\1\2\3")) == "INVALID_REQUEST"
        for api, version, b in (("BrokerHeartbeat", 2, {}), ("DescribeCluster", 2, {}), ("Vote", 2, {})):
            assert attempt(envelope(api, version, b, who="admin")) == "INVALID_REQUEST", api
        assert (
            attempt(envelope("x", 0, {}, frame=struct.pack(">hhih", API["CreateTopics"], 99, 5, -1)))
            == "UNSUPPORTED_VERSION"
        )
        assert (
            attempt(envelope("x", 0, {}, frame=codec.request_frame(API["CreateTopics"], 7, 5, body)[:-6]))
            == "UNSUPPORTED_VERSION"
        )
        assert forward(c, "CreateTopics", 7, {"Topics": []}, who="admin")["Topics"] == []


# ---------------------------------------------------------------- producer ids, DescribeCluster, the listener


def test_producer_ids(ctl):
    """KIP-730: blocks of 1000, one ProducerIds record each that names the next free id.

    Only registered brokers with their epoch get one.
    """
    a, b = ctl.up(2)
    m = ctl.log.mark()
    got = [x.producer_ids() for x in (a, b, a)]
    start = got[0]["ProducerIdStart"]
    assert got == [
        {"ThrottleTimeMs": 0, "ErrorCode": 0, "ProducerIdStart": start + 1000 * i, "ProducerIdLen": 1000}
        for i in range(3)
    ]
    recs = ctl.log.since(m)
    assert recs == [
        full("ProducerIds", 0, BrokerId=x.id, BrokerEpoch=x.epoch, NextProducerId=start + 1000 * (i + 1))
        for i, x in enumerate((a, b, a))
    ]
    m = ctl.log.mark()
    for body in ({"BrokerId": a.id, "BrokerEpoch": a.epoch + 1}, {"BrokerId": 99999, "BrokerEpoch": 0}):
        r = ctl.call("AllocateProducerIds", body)
        assert (err(r["ErrorCode"]), r["ProducerIdStart"], r["ProducerIdLen"]) == ("STALE_BROKER_EPOCH", 0, 0)
    assert ctl.log.since(m) == []


def test_describe_cluster(ctl):
    """KIP-919: with endpoint type 2 a controller names the registered controllers.

    Type 1 is MISMATCHED_ENDPOINT_TYPE, others are unsupported.
    """
    ctl.up(1)
    r = ctl.call("DescribeCluster", {"EndpointType": 2})
    r["Brokers"] = [b for b in r["Brokers"] if b["BrokerId"] < 1000]  # other tests register controllers of their own
    assert r == {
        "ThrottleTimeMs": 0,
        "ErrorCode": 0,
        "ErrorMessage": None,
        "EndpointType": 2,
        "ClusterId": ctl.cluster_id,
        "ControllerId": 1,
        "Brokers": [{"BrokerId": 1, "Host": "127.0.0.1", "Port": ctl.port, "Rack": None, "IsFenced": False}],
        "ClusterAuthorizedOperations": -2147483648,
    }
    r = ctl.call("DescribeCluster", {})
    assert (err(r["ErrorCode"]), r["ErrorMessage"], r["Brokers"]) == (
        "MISMATCHED_ENDPOINT_TYPE",
        "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER",
        [],
    )
    r = ctl.call("DescribeCluster", {"EndpointType": 3})
    assert (err(r["ErrorCode"]), r["ErrorMessage"]) == ("UNSUPPORTED_ENDPOINT_TYPE", "Unsupported endpoint type 3")


OFFERED = {
    1: (4, 18),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    36: (0, 2),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    52: (0, 2),
    53: (0, 1),
    54: (0, 1),
    55: (0, 2),
    56: (2, 3),
    57: (0, 2),
    58: (0, 0),
    59: (0, 1),
    60: (0, 2),
    62: (0, 4),
    63: (0, 2),
    64: (0, 0),
    67: (0, 0),
    70: (0, 0),
    73: (0, 0),
    80: (0, 1),
    81: (0, 0),
    82: (0, 0),
}


def test_the_apis_a_controller_offers(ctl):
    """Exactly these, in these versions, in ApiVersions v0 to v4."""
    for version in range(5):
        body = {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"} if version >= 3 else {}
        keys = ctl.call("ApiVersions", body, version)["ApiKeys"]
        assert {a["ApiKey"]: (a["MinVersion"], a["MaxVersion"]) for a in keys} == OFFERED and len(keys) == len(OFFERED)


def test_what_is_not_offered_ends_the_connection(ctl):
    """Unknown keys, APIs of brokers, and versions out of range: the connection is closed without an answer.

    Others are not disturbed.
    """
    with Conn(ctl.port) as bystander:
        for api, version in ((3, 12), (0, 9), (48, 0), (74, 0), (999, 0), (60, 9), (19, 1)):
            with Conn(ctl.port) as c:
                c.raw(struct.pack(">hhih", api, version, 9, -1) + b"\0" * 8)
                assert c.closed(), (api, version)
        assert bystander.call("DescribeCluster", {"EndpointType": 2})["ErrorCode"] == 0
