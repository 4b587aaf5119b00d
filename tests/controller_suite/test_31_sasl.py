"""31. SASL on the controller listener."""

import base64

import pytest
from conformance.codec import API, err
from conformance.target import new_uuid, until
from controller_suite.security_kit import (
    ALTER,
    Refused,
    Scram,
    acl,
    allow,
    codes,
    denied,
    fresh_user,
    salted,
    scram_keys,
)

BAD_SCRAM = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
GONE = {"BrokerId": 775}


def test_plain(sec):
    """Handshake v1 names the enabled mechanisms, SaslAuthenticate v2 takes the token.

    The user is the principal of the ACLs.
    """
    user = fresh_user()
    with sec.connect() as c:
        h = c.handshake("PLAIN")
        assert (
            h["ErrorCode"] == 0
            and set(h["Mechanisms"]) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
            and len(h["Mechanisms"]) == 3
        )
        assert c.step(f"\0{user}\0pw-{user}".encode()) == {
            "ErrorCode": 0,
            "ErrorMessage": "",
            "AuthBytes": b"",
            "SessionLifetimeMs": 0,
        }
        assert denied(c.call("UnregisterBroker", GONE))
        allow(sec, acl(f"User:{user}", ALTER))
        assert codes(c.call("UnregisterBroker", GONE)) == {"ErrorCode": "BROKER_ID_NOT_REGISTERED"}


def test_wrong_password(sec):
    """SASL_AUTHENTICATION_FAILED with a message, then the connection is closed; an unknown user looks the same."""
    user = fresh_user()
    for name, password in ((user, "wrong"), ("no-such-user", "x")):
        with sec.connect() as c:
            with pytest.raises(Refused) as e:
                c.plain(name, password)
            assert (e.value.error, e.value.text) == (
                "SASL_AUTHENTICATION_FAILED",
                "Authentication failed: Invalid username or password",
            )
            assert c.closed()


def test_unknown_mechanism(sec):
    """UNSUPPORTED_SASL_MECHANISM with the mechanisms there are, then the connection is closed.

    Names are case-sensitive.
    """
    for mechanism in ("GSSAPI", "plain", ""):
        with sec.connect() as c:
            with pytest.raises(Refused) as e:
                c.handshake(mechanism)
            assert e.value.error == "UNSUPPORTED_SASL_MECHANISM" and set(e.value.mechanisms) == {
                "PLAIN",
                "SCRAM-SHA-256",
                "SCRAM-SHA-512",
            }
            assert c.closed()


def test_requests_before_the_handshake(sec):
    """Only ApiVersions is answered before; anything else closes the connection, SaslAuthenticate too."""
    for api, body in (("DescribeQuorum", {}), ("Vote", {}), ("SaslAuthenticate", {"AuthBytes": b"\0u0\0pw-u0"})):
        with sec.connect() as c:
            c.send(api, body)
            assert c.closed(), api
    with sec.connect() as c:
        r = c.call("ApiVersions", {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}, 4)
        assert r["ErrorCode"] == 0 and {"Vote", "SaslHandshake", "CreateAcls"} <= {
            k for k, n in API.items() for a in r["ApiKeys"] if a["ApiKey"] == n
        }
        c.plain("admin")
        assert not denied(c.call("DescribeQuorum", {}))


def test_requests_between_handshake_and_authentication(sec):
    """Anything but SaslAuthenticate is answered ILLEGAL_SASL_STATE, and the connection is closed."""
    for api, body, version in (
        ("DescribeQuorum", {}, 2),
        ("ApiVersions", {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}, 3),
        ("SaslHandshake", {"Mechanism": "PLAIN"}, 1),
    ):
        with sec.connect() as c:
            c.handshake("PLAIN")
            assert err(c.call(api, body, version)["ErrorCode"]) == "ILLEGAL_SASL_STATE", api
            assert c.closed(), api


def test_sasl_again_after_authentication(sec):
    """Without connections.max.reauth.ms a second handshake is ILLEGAL_SASL_STATE, and the connection goes on as who it
    was.
    """
    with sec.user("admin") as c:
        assert c.call("SaslHandshake", {"Mechanism": "PLAIN"}, 1) == {"ErrorCode": 34, "Mechanisms": []}
        r = c.call("SaslAuthenticate", {"AuthBytes": b"\0u0\0pw-u0"}, 2)
        assert (err(r["ErrorCode"]), r["ErrorMessage"]) == (
            "ILLEGAL_SASL_STATE",
            "SaslAuthenticate request received after successful authentication",
        )
        assert not denied(c.call("UnregisterBroker", GONE))


def test_scram_with_a_user_of_the_request(sec):
    """A credential written by AlterUserScramCredentials works once it is in the log.

    The server proves that it knows it too (RFC 5802).
    """
    salt, name = b"pepper and salt", "s-" + new_uuid()
    r = sec.call(
        "AlterUserScramCredentials",
        {
            "Deletions": [],
            "Upsertions": [
                {
                    "Name": name,
                    "Mechanism": 1,
                    "Iterations": 5000,
                    "Salt": salt,
                    "SaltedPassword": salted("secret", salt, 5000),
                }
            ],
        },
    )
    assert r["Results"] == [{"User": name, "ErrorCode": 0, "ErrorMessage": None}]

    def login():
        with sec.connect() as c:
            try:
                return c.scram(name, "secret")
            except Refused:
                return None

    assert until("the credential is in force", login)["SessionLifetimeMs"] == 0
    with sec.connect() as c:
        c.handshake("SCRAM-SHA-256")
        s = Scram(name, "secret", "SCRAM-SHA-256")
        s.final(c.step(s.first())["AuthBytes"])
        assert (s.fields["s"], s.fields["i"]) == (base64.b64encode(salt).decode(), "5000")
    for user, password in ((name, "Secret"), ("nobody", "secret")):
        with sec.connect() as c:
            with pytest.raises(Refused) as e:
                c.scram(user, password)
            assert (e.value.error, e.value.text) == (
                "SASL_AUTHENTICATION_FAILED",
                BAD_SCRAM + "SCRAM-SHA-256",
            ) and c.closed()


def test_scram_user_of_the_format(secure):
    """kafka-storage format --add-scram: the credential is among the bootstrap records and opens the listener."""
    with (
        secure(
            format_args=[
                "--add-scram",
                "SCRAM-SHA-256=[name=fred,password=jones,iterations=4097]",
                "--add-scram",
                "SCRAM-SHA-512=[name=fred,password=smith]",
            ],
        )
        .format()
        .start() as c
    ):
        recs = [r for r in c.log.since(0) if r.kind == "UserScramCredential"]
        assert [(r.version, r["Name"], r["Mechanism"], r["Iterations"]) for r in recs] == [
            (0, "fred", 1, 4097),
            (0, "fred", 2, 4096),
        ]
        stored, server = scram_keys(salted("jones", recs[0]["Salt"], 4097))
        assert (recs[0]["StoredKey"], recs[0]["ServerKey"]) == (stored, server)
        kinds = [r.kind for r in c.log.since(0) if not r.control]
        assert (
            kinds[0] == "BeginTransaction"
            and kinds.index("UserScramCredential") > kinds.index("FeatureLevel")
            and "EndTransaction" in kinds
        )
        for mechanism, password in (("SCRAM-SHA-256", "jones"), ("SCRAM-SHA-512", "smith")):
            with c.connect() as k:
                k.scram("fred", password, mechanism)
                assert err(k.call("UnregisterBroker", GONE)["ErrorCode"]) == "BROKER_ID_NOT_REGISTERED"
        with c.connect() as k, pytest.raises(Refused):
            k.scram("fred", "jones", "SCRAM-SHA-512")
