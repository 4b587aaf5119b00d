"""33. AlterClientQuotas."""

import pytest
from conformance.codec import err
from conformance.target import new_uuid
from controller_suite.metadata_log import full, groups, shape

OK = ("NONE", None)


def change(c, *entries, validate=False, version=None):
    """entries: (entity, {key: value or None to remove}); entity: {type: name or None for the default}.

    [(entity, (error, message))]
    """
    body = {
        "Entries": [
            {
                "Entity": [{"EntityType": t, "EntityName": n} for t, n in e.items()],
                "Ops": [{"Key": k, "Value": 0.0 if v is None else v, "Remove": v is None} for k, v in ops.items()],
            }
            for e, ops in entries
        ],
        "ValidateOnly": validate,
    }
    return [
        ({x["EntityType"]: x["EntityName"] for x in r["Entity"]}, (err(r["ErrorCode"]), r["ErrorMessage"]))
        for r in c.call("AlterClientQuotas", body, version)["Entries"]
    ]


def record(entity, key, value):
    return full(
        "ClientQuota",
        0,
        Entity=[{"EntityType": t, "EntityName": n} for t, n in sorted(entity.items())],
        Key=key,
        Value=0.0 if value is None else value,
        Remove=value is None,
    )


def user():
    return {"user": "q-" + new_uuid()}


def test_set_change_remove(ctl):
    """Each change of a value is one ClientQuota record.

    The value there is already, and removing what is not there, write nothing.
    """
    e = user()
    for value, written in ((1000.0, 1), (1000.0, 0), (2000.0, 1), (None, 1), (None, 0)):
        m = ctl.log.mark()
        assert change(ctl, (e, {"producer_byte_rate": value})) == [(e, OK)]
        recs = ctl.log.since(m)
        assert shape(recs) == ["ClientQuota v0"] * written and all(
            r == record(e, "producer_byte_rate", value) for r in recs
        )


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        ({"user": "q1"}, "consumer_byte_rate"),
        ({"user": None}, "request_percentage"),
        ({"client-id": "q1"}, "producer_byte_rate"),
        ({"client-id": None}, "controller_mutation_rate"),
        ({"user": "q1", "client-id": "q2"}, "request_percentage"),
        ({"user": None, "client-id": "q2"}, "request_percentage"),
        ({"ip": "10.1.2.3"}, "connection_creation_rate"),
        ({"ip": None}, "connection_creation_rate"),
    ],
    ids=str,
)
def test_entities(ctl, entity, key):
    """KIP-546, KIP-612: user, client-id, both, ip, and their defaults (null name).

    Client-id stands before user in record and answer.
    """
    m = ctl.log.mark()
    assert change(ctl, (entity, {key: 77.0})) == [(entity, OK)]
    assert change(ctl, (entity, {key: None})) == [(entity, OK)]
    assert ctl.log.since(m) == [record(entity, key, 77.0), record(entity, key, None)]


def test_ip_does_not_go_with_others(ctl):
    """INVALID_REQUEST for ip beside user or client-id, with Kafka's own wording."""
    m = ctl.log.mark()
    for e in ({"user": "a", "ip": "127.0.0.1"}, {"client-id": "a", "ip": None}):
        assert change(ctl, (e, {"request_percentage": 1.0})) == [
            (
                e,
                (
                    "INVALID_REQUEST",
                    "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
                ),
            )
        ]
    assert ctl.log.since(m) == []


def test_keys_belong_to_entities(ctl):
    """Unknown keys, and those of another kind of entity, are INVALID_REQUEST; nothing of the entry is written."""
    m = ctl.log.mark()
    for e, key in (
        (user(), "no_such_key"),
        (user(), "connection_creation_rate"),
        ({"ip": "127.0.0.1"}, "producer_byte_rate"),
    ):
        assert change(
            ctl, (e, {"request_percentage" if "user" in e else "connection_creation_rate": 5.0, key: 5.0})
        ) == [(e, ("INVALID_REQUEST", f"Invalid configuration key {key}"))]
    assert ctl.log.since(m) == []


def test_values(ctl):
    """Values must be above 0; rates in bytes and connections are whole numbers, percentages and mutation rates need not
    be.
    """
    e = user()
    m = ctl.log.mark()
    for key, value, text in (
        ("consumer_byte_rate", 0.0, "Quota consumer_byte_rate must be greater than 0"),
        ("consumer_byte_rate", -1.0, "Quota consumer_byte_rate must be greater than 0"),
        ("producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ("producer_byte_rate", 1e30, "Proposed value for producer_byte_rate is too large for a LONG."),
    ):
        assert change(ctl, (e, {key: value})) == [(e, ("INVALID_REQUEST", text))]
    assert ctl.log.since(m) == []
    assert change(ctl, (e, {"request_percentage": 1.5, "controller_mutation_rate": 0.25})) == [(e, OK)]
    assert {(r["Key"], r["Value"]) for r in ctl.log.since(m)} == {
        ("request_percentage", 1.5),
        ("controller_mutation_rate", 0.25),
    }


def test_validate_only(ctl):
    """ValidateOnly gives the same answers and writes nothing."""
    e = user()
    m = ctl.log.mark()
    assert change(ctl, (e, {"producer_byte_rate": 9.0}), validate=True) == [(e, OK)]
    assert change(ctl, (e, {"nope": 9.0}), validate=True) == [
        (e, ("INVALID_REQUEST", "Invalid configuration key nope"))
    ]
    assert ctl.log.since(m) == []
    assert change(ctl, (e, {"producer_byte_rate": 9.0})) == [(e, OK)] and len(ctl.log.since(m)) == 1


def test_entries_stand_alone(ctl):
    """A bad entry does not keep the others from being written, in one batch."""
    a, b, c = user(), user(), user()
    m = ctl.log.mark()
    got = change(ctl, (a, {"producer_byte_rate": 1.0}), (b, {"nope": 1.0}), (c, {"producer_byte_rate": 2.0}))
    assert sorted(got, key=str) == sorted(
        [(a, OK), (b, ("INVALID_REQUEST", "Invalid configuration key nope")), (c, OK)], key=str
    )
    recs = ctl.log.since(m)
    assert {r["Entity"][0]["EntityName"] for r in recs} == {a["user"], c["user"]} and len(groups(recs)) == 1
