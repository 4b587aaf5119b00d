"""30. Access control lists: StandardAuthorizer at the controller."""

import pytest
from conformance.codec import METADATA_TOPIC_ID, TOPIC, ZERO_UUID, err
from conformance.target import new_uuid, until
from controller_suite.metadata_log import full, groups, shape
from controller_suite.security_kit import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    ANY_OP,
    ANY_PERMISSION,
    ANY_RESOURCE,
    AUTHORIZER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    IDEMPOTENT_WRITE,
    LITERAL,
    MATCH,
    PATTERN_ANY,
    PREFIXED,
    R_CLUSTER,
    R_GROUP,
    R_TOPIC,
    READ,
    WRITE,
    acl,
    acl_filter,
    allow,
    codes,
    create_acls,
    delete_acls,
    denied,
    describe_acls,
    envelope,
    flat,
    fresh_user,
    key,
    matched,
    revoke,
)


def name():
    return "acl-" + new_uuid()


def test_one_acl_is_one_record(sec):
    """CreateAcls answers after one AccessControlEntry with a fresh id; DescribeAcls then shows it."""
    topic, user = name(), fresh_user()
    a = acl(f"User:{user}", READ, R_TOPIC, topic, host="10.1.2.3", permission=DENY)
    m = sec.log.mark()
    r = sec.call("CreateAcls", {"Creations": [a]})
    assert r == {"ThrottleTimeMs": 0, "Results": [{"ErrorCode": 0, "ErrorMessage": ""}]}
    recs = sec.log.since(m)
    assert shape(recs) == ["AccessControlEntry v0"]
    assert recs[0] == full(
        "AccessControlEntry",
        0,
        Id=recs[0]["Id"],
        ResourceType=R_TOPIC,
        ResourceName=topic,
        PatternType=LITERAL,
        Principal=f"User:{user}",
        Host="10.1.2.3",
        Operation=READ,
        PermissionType=DENY,
    )
    assert recs[0]["Id"] not in (ZERO_UUID, METADATA_TOPIC_ID)
    d = until("the authorizer has it", lambda: (d := describe_acls(sec, name=topic))["Resources"] and d)
    assert (d["ErrorCode"], d["ErrorMessage"], flat(d)) == (0, "", {key(a)})


def test_an_acl_that_exists_is_not_written_again(sec):
    """Creating what is there succeeds without a record, also inside one request."""
    topic, user = name(), fresh_user()
    a, b = acl(f"User:{user}", READ, R_TOPIC, topic), acl(f"User:{user}", WRITE, R_TOPIC, topic)
    allow(sec, a)
    m = sec.log.mark()
    assert create_acls(sec, a, b, b) == [("NONE", "")] * 3
    recs = sec.log.since(m)
    assert [r["Operation"] for r in recs] == [WRITE]
    until("both are there, once", lambda: flat(describe_acls(sec, name=topic)) == {key(a), key(b)})


def test_several_acls_are_one_batch_in_their_order(sec):
    """All entries of a request are written in one batch, in the order of the request, each with an id of its own."""
    user = fresh_user()
    acls = [
        acl(f"User:{user}", op, R_GROUP, name(), pattern=p)
        for op, p in ((READ, LITERAL), (DESCRIBE, PREFIXED), (DELETE, LITERAL))
    ]
    m = sec.log.mark()
    allow(sec, *acls)
    recs = sec.log.since(m)
    assert len(groups(recs)) == 1 and [r["ResourceName"] for r in recs] == [a["ResourceName"] for a in acls]
    assert [r["PatternType"] for r in recs] == [LITERAL, PREFIXED, LITERAL] and len({r["Id"] for r in recs}) == 3


def test_filters_of_describe(sec):
    """LITERAL finds the exact name, PREFIXED the exact prefix entry, MATCH all that apply to a name, ANY both kinds of
    that name.
    """
    base, user = name(), fresh_user()
    p = f"User:{user}"
    literal, prefix = acl(p, READ, R_TOPIC, base), acl(p, READ, R_TOPIC, base[:-2], PREFIXED)
    star, same = acl(p, READ, R_TOPIC, "*"), acl(p, READ, R_TOPIC, base, PREFIXED)
    allow(sec, literal, prefix, star, same)

    def found(**kw):
        return flat(describe_acls(sec, kind=R_TOPIC, principal=p, **kw))

    assert found(name=base, pattern=LITERAL) == {key(literal)}
    assert found(name=base, pattern=PREFIXED) == {key(same)}
    assert found(name=base, pattern=PATTERN_ANY) == {key(literal), key(same)}
    assert found(name=base, pattern=MATCH) == {key(literal), key(prefix), key(star), key(same)}
    assert found(name=base + "x", pattern=MATCH) == {key(prefix), key(star), key(same)}
    assert found(pattern=PATTERN_ANY) == {key(literal), key(prefix), key(star), key(same)}
    assert found(name="*", pattern=LITERAL) == {key(star)}
    assert found(name=base, pattern=LITERAL, operation=WRITE) == set()


def test_delete_names_what_it_removed(sec):
    """DeleteAcls answers with the matching entries and writes one RemoveAccessControlEntry for each, with the id it was
    created under.
    """
    topic, user = name(), fresh_user()
    a, b = (acl(f"User:{user}", op, R_TOPIC, topic) for op in (READ, WRITE))
    c = acl(f"User:{user}", READ, R_TOPIC, topic + "2")
    m = sec.log.mark()
    allow(sec, a, b, c)
    ids = {r["Operation"]: r["Id"] for r in sec.log.since(m) if r["ResourceName"] == topic}
    m = sec.log.mark()
    r = delete_acls(sec, acl_filter(kind=R_TOPIC, name=topic, principal=f"User:{user}"))
    assert (r[0]["ErrorCode"], r[0]["ErrorMessage"], matched(r[0])) == (0, None, {key(a), key(b)})
    assert all(x["ErrorCode"] == 0 for x in r[0]["MatchingAcls"])
    recs = sec.log.since(m)
    assert (
        shape(recs) == ["RemoveAccessControlEntry v0"] * 2
        and {x["Id"] for x in recs} == set(ids.values())
        and len(groups(recs)) == 1
    )
    until("one is left", lambda: flat(describe_acls(sec, principal=f"User:{user}")) == {key(c)})


def test_delete_that_matches_nothing(sec):
    """A filter without matches is answered NONE with no entries, and nothing is written."""
    m = sec.log.mark()
    r = delete_acls(sec, acl_filter(kind=R_TOPIC, name=name()))
    assert r == [{"ErrorCode": 0, "ErrorMessage": None, "MatchingAcls": []}]
    assert sec.log.since(m) == []


def test_bad_creations_fail_alone(sec):
    """Each unusable ACL gets its own INVALID_REQUEST; the good one beside it is written."""
    user = fresh_user()
    p = f"User:{user}"
    good = acl(p, READ, R_TOPIC, name())
    m = sec.log.mark()
    got = create_acls(
        sec,
        acl(p, READ, R_CLUSTER, "other-cluster"),
        acl(p, READ, R_TOPIC, ""),
        acl("nobody", READ, R_TOPIC, "x"),
        good,
    )
    assert got == [
        ("INVALID_REQUEST", "The only valid name for the CLUSTER resource is kafka-cluster"),
        ("INVALID_REQUEST", "Invalid empty resource name"),
        (
            "INVALID_REQUEST",
            "Could not parse principal from `nobody` (no colon is present separating "
            "the principal type from the principal name)",
        ),
        ("NONE", ""),
    ]
    assert [r["ResourceName"] for r in sec.log.since(m)] == [good["ResourceName"]]


def test_wildcards_of_filters_are_no_acls(sec):
    """ANY as operation, permission, resource type or pattern, and MATCH, belong to filters.

    Creating such an ACL is UNKNOWN_SERVER_ERROR (sic).
    """
    p = f"User:{fresh_user()}"
    m = sec.log.mark()
    for bad in (
        acl(p, ANY_OP, R_TOPIC, "t"),
        acl(p, READ, R_TOPIC, "t", permission=ANY_PERMISSION),
        acl(p, READ, ANY_RESOURCE, "t"),
        acl(p, READ, R_TOPIC, "t", PATTERN_ANY),
        acl(p, READ, R_TOPIC, "t", MATCH),
    ):
        assert create_acls(sec, bad) == [("UNKNOWN_SERVER_ERROR", None)], bad
    assert sec.log.since(m) == []


def test_version_1_is_the_older_layout(sec):
    """v1 of the three requests carries the same."""
    topic = name()
    a = acl("User:v1", READ, R_TOPIC, topic, PREFIXED)
    assert create_acls(sec, a, version=1) == [("NONE", "")]
    until("it is there", lambda: flat(describe_acls(sec, version=1, name=topic)) == {key(a)})
    assert matched(delete_acls(sec, acl_filter(name=topic), version=1)[0]) == {key(a)}


def test_without_an_authorizer(ctl):
    """SECURITY_DISABLED for all three, nothing is written."""
    m = ctl.log.mark()
    msg = "No Authorizer is configured."
    assert create_acls(ctl, acl("User:x", READ, R_TOPIC, "t")) == [("SECURITY_DISABLED", msg)]
    d = describe_acls(ctl)
    assert (err(d["ErrorCode"]), d["ErrorMessage"], d["Resources"]) == (
        "SECURITY_DISABLED",
        "No Authorizer is configured on the broker",
        [],
    )
    r = delete_acls(ctl, acl_filter())
    assert [(err(x["ErrorCode"]), x["ErrorMessage"], x["MatchingAcls"]) for x in r] == [("SECURITY_DISABLED", msg, [])]
    assert ctl.log.since(m) == []


# ---------------------------------------------------------------- what each request needs


def raft(**p):
    return {"Topics": [{"TopicName": TOPIC, "Partitions": [{"PartitionIndex": 0, **p}]}]}


FETCH = {
    "MaxWaitMs": 0,
    "MinBytes": 1,
    "MaxBytes": 1000,
    "ReplicaState": {"ReplicaId": -1, "ReplicaEpoch": -1},
    "Topics": [
        {
            "TopicId": METADATA_TOPIC_ID,
            "Partitions": [
                {
                    "Partition": 0,
                    "CurrentLeaderEpoch": 0,
                    "FetchOffset": 0,
                    "LastFetchedEpoch": 0,
                    "PartitionMaxBytes": 1000,
                }
            ],
        }
    ],
}
QUOTA = {
    "Entries": [
        {
            "Entity": [{"EntityType": "user", "EntityName": "nobody"}],
            "Ops": [{"Key": "no-such-quota", "Value": 1.0, "Remove": False}],
        }
    ],
    "ValidateOnly": False,
}
SCRAM_GONE = {"Deletions": [{"Name": "nobody", "Mechanism": 1}], "Upsertions": []}
NEEDS = [  # API, version, body, operation on the cluster, where the error stands
    ("Vote", 2, raft(ReplicaId=9), CLUSTER_ACTION, {"ErrorCode"}),
    ("BeginQuorumEpoch", 1, raft(LeaderId=9), CLUSTER_ACTION, {"ErrorCode"}),
    ("Fetch", 17, FETCH, CLUSTER_ACTION, {"ErrorCode"}),
    ("BrokerRegistration", 4, {"BrokerId": 777, "ClusterId": "wrong"}, CLUSTER_ACTION, {"ErrorCode"}),
    ("BrokerHeartbeat", 2, {"BrokerId": 777, "BrokerEpoch": 5}, CLUSTER_ACTION, {"ErrorCode"}),
    ("AllocateProducerIds", 0, {"BrokerId": 777, "BrokerEpoch": 5}, CLUSTER_ACTION, {"ErrorCode"}),
    ("Envelope", 0, envelope("CreateTopics", 7, {"Topics": []}), CLUSTER_ACTION, {"ErrorCode"}),
    ("AddRaftVoter", 1, {"VoterId": -1}, ALTER, {"ErrorCode"}),
    (
        "ElectLeaders",
        2,
        {"TopicPartitions": [{"Topic": "nope", "Partitions": [0]}]},
        ALTER,
        {"ErrorCode", "ReplicaElectionResults.0.PartitionResult.0.ErrorCode"},
    ),
    ("UnregisterBroker", 0, {"BrokerId": 777}, ALTER, {"ErrorCode"}),
    ("AlterUserScramCredentials", 0, SCRAM_GONE, ALTER, {"Results.0.ErrorCode"}),
    ("CreateAcls", 3, {"Creations": [acl("User:x", READ, R_TOPIC, "")]}, ALTER, {"Results.0.ErrorCode"}),
    ("AlterClientQuotas", 1, QUOTA, ALTER_CONFIGS, {"Entries.0.ErrorCode"}),
    ("DescribeQuorum", 2, raft(), DESCRIBE, {"ErrorCode"}),
]
IMPLYING = {DESCRIBE: {READ, WRITE, DELETE, ALTER, DESCRIBE}, DESCRIBE_CONFIGS: {ALTER_CONFIGS, DESCRIBE_CONFIGS}}
CLUSTER_OPS = (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)


@pytest.mark.parametrize(("api", "version", "body", "operation", "where"), NEEDS, ids=[n[0] for n in NEEDS])
def test_the_one_operation_a_request_needs(sec, api, version, body, operation, where):
    """Without ACLs, and with every other operation on the cluster allowed, CLUSTER_AUTHORIZATION_FAILED.

    With this one, not.
    """
    user = fresh_user()
    with sec.user(user) as c:
        m = sec.log.mark()
        got = codes(c.call(api, body, version))
        assert {p for p, e in got.items() if e == "CLUSTER_AUTHORIZATION_FAILED"} == where and set(got) == where, got
        assert sec.log.since(m) == []
        others = [acl(f"User:{user}", op) for op in CLUSTER_OPS if op not in IMPLYING.get(operation, {operation})]
        allow(sec, *others)
        assert codes(c.call(api, body, version)) == got
        allow(sec, acl(f"User:{user}", operation))
        assert not denied(c.call(api, body, version))


def test_a_listener_without_authentication_is_user_anonymous(sec):
    """PLAINTEXT connections are User:ANONYMOUS: denied like any user, allowed by an ACL that names it."""
    body = {"BrokerId": 778}
    r = sec.anonymous("UnregisterBroker", body)
    assert err(r["ErrorCode"]) == "CLUSTER_AUTHORIZATION_FAILED" and r["ErrorMessage"].endswith(
        " needs ALTER permission."
    )
    allow(sec, acl("User:ANONYMOUS", ALTER))
    try:
        assert not denied(sec.anonymous("UnregisterBroker", body))
    finally:
        revoke(sec, principal="User:ANONYMOUS")
    assert denied(sec.anonymous("UnregisterBroker", body))


def test_create_on_a_prefix_of_topics(sec):
    """CREATE on a prefixed topic ACL.

    Names under the prefix may be created, others TOPIC_AUTHORIZATION_FAILED, in one request.
    """
    user, prefix = fresh_user(), name()
    allow(sec, acl(f"User:{user}", CREATE, R_TOPIC, prefix, PREFIXED))
    topics = [{"Name": n, "NumPartitions": 1, "ReplicationFactor": 1} for n in (prefix + "-a", "other-" + prefix)]
    m = sec.log.mark()
    r = {t["Name"]: t for t in sec.as_user(user, "CreateTopics", {"Topics": topics, "timeoutMs": 5000})["Topics"]}
    assert (
        err(r[topics[0]["Name"]]["ErrorCode"]) == "INVALID_REPLICATION_FACTOR"
    )  # there is no broker, but it was allowed to try
    other = r[topics[1]["Name"]]
    assert (err(other["ErrorCode"]), other["ErrorMessage"]) == ("TOPIC_AUTHORIZATION_FAILED", "Authorization failed.")
    assert sec.log.since(m) == []


def test_all_and_everyone(sec):
    """Operation ALL stands for each one, principal User:* for each user; * as a name for every resource of the type."""
    user, other = fresh_user(), fresh_user()
    a = acl("User:*", ALL, R_TOPIC, "*", host="127.0.0.1")
    body = {"Topics": [{"Name": name(), "Count": 2}], "TimeoutMs": 5000}
    assert denied(sec.as_user(user, "CreatePartitions", body))
    allow(sec, a)
    try:
        for u in (user, other):
            r = sec.as_user(u, "CreatePartitions", body)["Results"][0]
            assert err(r["ErrorCode"]) == "UNKNOWN_TOPIC_OR_PARTITION"
    finally:
        assert revoke(sec, principal="User:*") == {key(a)}
    assert denied(sec.as_user(user, "CreatePartitions", body))


def test_before_the_acls_are_loaded(secure):
    """KIP-801: an early-start listener serves super users before the log is read.

    Everyone else has to wait for the ACLs.
    """
    c = secure(3, **{"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}).format()
    try:
        c.nodes[1].start()  # one of three voters: no leader, no high watermark, no ACLs
        body = {"BrokerId": 1, "BrokerEpoch": 1}
        with c.user("admin", i=1) as admin, c.user("u1", i=1) as u:
            assert codes(admin.call("BrokerHeartbeat", body)) == {"ErrorCode": "NOT_CONTROLLER"}
            assert codes(u.call("BrokerHeartbeat", body)) == {"ErrorCode": "UNKNOWN_SERVER_ERROR"}
    finally:
        c.close()
