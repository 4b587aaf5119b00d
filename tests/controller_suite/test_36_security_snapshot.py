"""36. Security metadata in checkpoints and after a restart from one."""

from conformance import codec
from conformance.target import until
from controller_suite.security_kit import (
    ALTER,
    AUTHORIZER,
    DENY,
    PREFIXED,
    R_TOPIC,
    READ,
    SECRET,
    acl,
    allow,
    denied,
    salted,
)


def test_a_checkpoint_holds_it_all(secure):
    """KIP-630: the checkpoint has the same security records as the log (of ProducerIds the next id alone).

    All is in force after a restart.
    """
    with (
        secure(
            **{
                "authorizer.class.name": AUTHORIZER,
                "super.users": "User:admin",
                "delegation.token.secret.key": SECRET,
                "metadata.log.max.record.bytes.between.snapshots": "1500",
            },
        )
        .format()
        .start() as c
    ):
        salt = b"salt"
        allow(
            c,
            acl("User:u1", ALTER),
            acl("User:fred", ALTER),
            acl("User:u2", READ, R_TOPIC, "t", PREFIXED, DENY, "1.2.3.4"),
        )
        r = c.call(
            "AlterUserScramCredentials",
            {
                "Deletions": [],
                "Upsertions": [
                    {
                        "Name": "fred",
                        "Mechanism": 2,
                        "Iterations": 4096,
                        "Salt": salt,
                        "SaltedPassword": salted("pw", salt, 4096, "SCRAM-SHA-512"),
                    }
                ],
            },
        )
        assert r["Results"][0]["ErrorCode"] == 0
        quota = {
            "Entries": [
                {
                    "Entity": [
                        {"EntityType": "user", "EntityName": None},
                        {"EntityType": "client-id", "EntityName": "x"},
                    ],
                    "Ops": [{"Key": "producer_byte_rate", "Value": 5.0}, {"Key": "request_percentage", "Value": 2.5}],
                }
            ]
        }
        assert c.call("AlterClientQuotas", quota)["Entries"][0]["ErrorCode"] == 0
        with c.user("u3") as k:
            token = k.call(
                "CreateDelegationToken",
                {"Renewers": [], "MaxLifetimeMs": -1, "OwnerPrincipalType": None, "OwnerPrincipalName": None},
            )
        b = c.broker()
        b.register()
        assert b.producer_ids()["ProducerIdLen"] == 1000
        kinds = (
            "AccessControlEntry",
            "UserScramCredential",
            "ClientQuota",
            "DelegationToken",
            "ProducerIds",
            "FeatureLevel",
        )

        def line(kind, version, fields):
            return kind, version, sorted((k, str(v)) for k, v in fields.items() if k not in ("BrokerId", "BrokerEpoch"))

        here = sorted(line(r.kind, r.version, r) for r in c.log.since(0) if r.kind in kinds)
        assert {x[0] for x in here} == set(kinds)
        end = c.log.mark()

        def covered():
            for i in range(2):  # something more to snapshot
                c.configs(4, "", num_io_threads=str(7 + i))
            for name, f in c.nodes[1].checkpoints().items():
                if int(name.split("-")[0]) >= end:
                    return f
            return None

        f = until("a checkpoint above all of it", covered, 30)
        there = []
        for batch in codec.batches(f.read_bytes(), partial=False):
            for r in batch.records:
                kind = r.pop("kind").removesuffix("Record")
                if kind in kinds:
                    r.pop("offset"), r.pop("_present", None)
                    there.append(line(kind, r.pop("version"), r))
        assert sorted(there) == here
        c.restart()
        assert not denied(c.as_user("u1", "UnregisterBroker", {"BrokerId": 9})) and denied(
            c.as_user("u2", "UnregisterBroker", {"BrokerId": 9})
        )
        with c.connect() as k:
            k.scram("fred", "pw", "SCRAM-SHA-512")
            assert not denied(k.call("UnregisterBroker", {"BrokerId": 9}))
        with c.user("u3") as k:
            assert k.call("RenewDelegationToken", {"Hmac": token["Hmac"], "RenewPeriodMs": -1})["ErrorCode"] == 0
        m = c.log.mark()
        assert c.call("AlterClientQuotas", quota)["Entries"][0]["ErrorCode"] == 0 and c.log.since(m) == []
        assert b.producer_ids()["ProducerIdStart"] == 1000
