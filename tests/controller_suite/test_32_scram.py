"""32. AlterUserScramCredentials."""

from conformance.codec import err
from conformance.target import new_uuid
from controller_suite.metadata_log import full, groups, shape
from controller_suite.security_kit import MECHANISM, salted, scram_keys

SALT = b"0123456789"
TOO_FEW, TOO_MANY = (
    ("UNACCEPTABLE_CREDENTIAL", "Too few iterations"),
    ("UNACCEPTABLE_CREDENTIAL", "Too many iterations"),
)
GONE = ("RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist")
TWICE = ("DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request")
OK = ("NONE", None)


def up(name, mechanism="SCRAM-SHA-256", iterations=4096, salt=SALT, password="pw", **change):
    return {
        "Name": name,
        "Mechanism": MECHANISM[mechanism],
        "Iterations": iterations,
        "Salt": salt,
        "SaltedPassword": salted(password, salt, iterations, mechanism),
        **change,
    }


def alter(c, *ups, gone=()):
    """{user: (error, message)}"""
    r = c.call(
        "AlterUserScramCredentials",
        {"Deletions": [{"Name": n, "Mechanism": m} for n, m in gone], "Upsertions": list(ups)},
    )["Results"]
    out = {x["User"]: (err(x["ErrorCode"]), x["ErrorMessage"]) for x in r}
    assert len(out) == len(r), r
    return out


def user():
    return "scram-" + new_uuid()


def test_a_new_credential_is_one_record(ctl):
    """The controller stores the two keys made from the salted password, never the password."""
    for mechanism, iterations in (("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 16384)):
        n = user()
        m = ctl.log.mark()
        assert alter(ctl, up(n, mechanism, iterations)) == {n: OK}
        recs = ctl.log.since(m)
        stored, server = scram_keys(salted("pw", SALT, iterations, mechanism), mechanism)
        assert shape(recs) == ["UserScramCredential v0"]
        assert recs[0] == full(
            "UserScramCredential",
            0,
            Name=n,
            Mechanism=MECHANISM[mechanism],
            Salt=SALT,
            StoredKey=stored,
            ServerKey=server,
            Iterations=iterations,
        )


def test_changing_and_deleting(ctl):
    """A change is a record like the first; a deletion is RemoveUserScramCredential.

    A second deletion is RESOURCE_NOT_FOUND.
    """
    n = user()
    m = ctl.log.mark()
    assert [alter(ctl, up(n)), alter(ctl, up(n, iterations=5000)), alter(ctl, gone=[(n, 1)])] == [{n: OK}] * 3
    recs = ctl.log.since(m)
    assert (
        shape(recs) == ["UserScramCredential v0"] * 2 + ["RemoveUserScramCredential v0"]
        and recs[1]["Iterations"] == 5000
    )
    assert recs[2] == full("RemoveUserScramCredential", 0, Name=n, Mechanism=1)
    m = ctl.log.mark()
    assert alter(ctl, gone=[(n, 1)]) == {n: GONE} and ctl.log.since(m) == []


def test_iterations_have_bounds(ctl):
    """4096 to 16384: UNACCEPTABLE_CREDENTIAL outside."""
    m = ctl.log.mark()
    for iterations, answer in ((4095, TOO_FEW), (16385, TOO_MANY), (1, TOO_FEW)):
        n = user()
        assert alter(ctl, up(n, iterations=iterations)) == {n: answer}
    assert ctl.log.since(m) == []


def test_a_user_twice(ctl):
    """DUPLICATE_RESOURCE for a user named twice in a request; the others of the request go through."""
    a, b = user(), user()
    m = ctl.log.mark()
    assert alter(ctl, up(a), up(b), up(a, iterations=5000)) == {a: TWICE, b: OK}
    assert [r["Name"] for r in ctl.log.since(m)] == [b]


def test_good_and_bad_in_one_request(ctl):
    """Each user has its own result; what is good is written in one batch, deletions first."""
    old, new, bad, nobody = user(), user(), user(), user()
    alter(ctl, up(old))
    m = ctl.log.mark()
    assert alter(ctl, up(new), up(bad, iterations=10), gone=[(old, 1), (nobody, 2)]) == {
        old: OK,
        new: OK,
        bad: TOO_FEW,
        nobody: GONE,
    }
    recs = ctl.log.since(m)
    assert [(r.kind, r["Name"]) for r in recs] == [
        ("RemoveUserScramCredential", old),
        ("UserScramCredential", new),
    ] and len(groups(recs)) == 1


def test_unknown_mechanisms(ctl):
    """UNSUPPORTED_SASL_MECHANISM for an upsertion and for a deletion."""
    m = ctl.log.mark()
    for mechanism in (0, 3):
        a, b = user(), user()
        answer = ("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism")
        assert alter(ctl, up(a, Mechanism=mechanism), gone=[(b, mechanism)]) == {a: answer, b: answer}
    assert ctl.log.since(m) == []
