"""Any sequence of requests about settings, good and bad: each is answered, and the image stays what its records say.

``ControllerStage`` sends every request, answer and record through its bytes.
"""

from __future__ import annotations

from collections import Counter

from controller_stage import ControllerStage, FakeBroker
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftcore.configdef.topics import TopicDefaults
from kraftcore.core.uuid import Uuid
from kraftcore.errors import RemoteProtocolError
from kraftcore.metadata import Image
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.controller_registration import ControllerRegistrationRequest
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest

FILE = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "log.retention.hours": "3"}
TYPES = st.sampled_from([2, 2, 4, 8, 16, 32, 99])
NAMES = st.sampled_from(["t", "u", "nowhere", "a b", "", "1", "2", "77", "-1", "one"])
KEYS = st.sampled_from(
    [
        "retention.ms",
        "cleanup.policy",
        "min.insync.replicas",
        "remote.storage.enable",
        "log.cleanup.policy",
        "cordoned.log.dirs",
        "interval.ms",
        "match",
        "share.auto.offset.reset",
        "consumer.session.timeout.ms",
        "no.such",
        "",
    ]
)
VALUES = st.none() | st.sampled_from(
    ["1", "2", "-1", "x", "", "compact", "delete,compact", "true", "50000", "a=b", "/d"]
)
SMALL = st.integers(-1, 5)
TEXTS = st.sampled_from(["", "a", "User:a", "*", "kafka-cluster", "10.0.0.1"])
NUMBERS = st.sampled_from([0.0, -1.0, 0.5, 1.0, 100.0, 1e19, float("nan"), float("inf")])


def lists(of, most: int = 3):
    return st.lists(of, max_size=most)


def configs(cls):
    resource = cls.AlterConfigsResource
    fields = {"name": KEYS, "value": VALUES}
    if cls is IncrementalAlterConfigsRequest:
        fields["config_operation"] = SMALL
    change = st.builds(resource.AlterableConfig, **fields)
    return st.builds(
        cls,
        resources=lists(st.builds(resource, resource_type=TYPES, resource_name=NAMES, configs=lists(change))),
        validate_only=st.booleans(),
    )


def describe_configs():
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = st.builds(resource, resource_type=TYPES, resource_name=NAMES, configuration_keys=st.none() | lists(KEYS))
    return st.builds(DescribeConfigsRequest, resources=lists(wanted), include_synonyms=st.booleans())


def acl_requests():
    creation = st.builds(
        CreateAclsRequest.AclCreation,
        resource_type=SMALL,
        resource_name=TEXTS,
        resource_pattern_type=SMALL,
        principal=TEXTS,
        host=TEXTS,
        operation=SMALL,
        permission_type=SMALL,
    )
    fields = {
        "resource_type_filter": SMALL,
        "resource_name_filter": st.none() | TEXTS,
        "pattern_type_filter": SMALL,
        "principal_filter": st.none() | TEXTS,
        "host_filter": st.none() | TEXTS,
        "operation": SMALL,
        "permission_type": SMALL,
    }
    return st.one_of(
        st.builds(CreateAclsRequest, creations=lists(creation)),
        st.builds(DeleteAclsRequest, filters=lists(st.builds(DeleteAclsRequest.DeleteAclsFilter, **fields))),
        st.builds(DescribeAclsRequest, **fields),
    )


def quota_requests():
    entry = AlterClientQuotasRequest.EntryData
    kinds = st.sampled_from(["user", "client-id", "ip", "group"])
    keys = st.sampled_from(["producer_byte_rate", "request_percentage", "connection_creation_rate", "speed"])
    entity = st.builds(entry.EntityData, entity_type=kinds, entity_name=st.none() | TEXTS)
    op = st.builds(entry.OpData, key=keys, value=NUMBERS, remove=st.booleans())
    entries = lists(st.builds(entry, entity=lists(entity, 2), ops=lists(op)))
    return st.builds(AlterClientQuotasRequest, entries=entries, validate_only=st.booleans())


def scram_requests():
    cls = AlterUserScramCredentialsRequest
    deletion = st.builds(cls.ScramCredentialDeletion, name=TEXTS, mechanism=SMALL)
    upsertion = st.builds(
        cls.ScramCredentialUpsertion,
        name=TEXTS,
        mechanism=SMALL,
        iterations=st.sampled_from([-1, 4096, 16385]),
        salt=st.binary(max_size=3),
        salted_password=st.binary(max_size=3),
    )
    return st.builds(cls, deletions=lists(deletion), upsertions=lists(upsertion))


def feature_requests():
    names = st.sampled_from(
        ["metadata.version", "kraft.version", "group.version", "eligible.leader.replicas.version", "made.up", ""]
    )
    levels = st.sampled_from([-1, 0, 1, 2, 7, 29, 30, 31])
    update = st.builds(
        UpdateFeaturesRequest.FeatureUpdateKey, feature=names, max_version_level=levels, upgrade_type=SMALL
    )
    return st.builds(UpdateFeaturesRequest, feature_updates=lists(update), validate_only=st.booleans())


def cluster_requests():
    cls = ControllerRegistrationRequest
    listener = st.builds(cls.Listener, name=TEXTS, host=TEXTS, port=st.just(1), security_protocol=SMALL)
    level = st.builds(cls.Feature, name=TEXTS, min_supported_version=SMALL, max_supported_version=SMALL)
    return st.one_of(
        st.builds(AllocateProducerIdsRequest, broker_id=SMALL, broker_epoch=st.integers(-1, 9)),
        st.builds(
            cls,
            controller_id=SMALL,
            incarnation_id=st.binary(min_size=16, max_size=16).map(Uuid),
            listeners=lists(listener),
            features=lists(level),
        ),
    )


REQUESTS = st.one_of(
    configs(IncrementalAlterConfigsRequest),
    configs(IncrementalAlterConfigsRequest),
    configs(AlterConfigsRequest),
    describe_configs(),
    acl_requests(),
    quota_requests(),
    scram_requests(),
    feature_requests(),
    cluster_requests(),
)
seen: Counter[str] = Counter()


def error_codes(answer: object) -> list[int]:
    """All error codes of an answer, those of its items too."""
    found = [answer.error_code] if hasattr(answer, "error_code") else []
    for name in ("responses", "results", "entries", "filter_results"):
        for each in getattr(answer, name, ()):
            found += error_codes(each)
    return found


def check(stage: ControllerStage) -> None:
    """What is stored can be stored: topics have values that topics may have, and everything can be written again."""
    defaults = TopicDefaults(FILE)
    for resource, values in stage.image.configs.items():
        if resource.type == 2:
            defaults.validate(values)
            assert stage.image.topics.by_name(resource.name) is not None
    assert all(value > 0 for values in stage.image.quotas.values() for value in values.values())
    assert len(set(stage.image.acls.values())) == len(stage.image.acls), "an entry stands twice"
    copy = Image()
    for record, _ in stage.image.records():
        copy.apply(record)
    for part in ("features", "configs", "quotas", "acls", "scram", "controllers", "producer_ids"):
        assert dict(getattr(copy, part)) == dict(getattr(stage.image, part)), part


def test_any_requests():
    carry_out()
    assert min(seen["good"], seen["refused"], seen["closed"]) > 50, "its requests do not reach both ends"


@given(st.lists(REQUESTS, min_size=1, max_size=12), st.integers(0, 1))
@settings(max_examples=150)
def carry_out(requests, elr):
    stage = ControllerStage(elr=elr, static_configs=FILE, node_id=9)
    stage.up(FakeBroker(1), FakeBroker(2))
    topic = CreateTopicsRequest.CreatableTopic
    stage.ask(
        CreateTopicsRequest(
            topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in ("t", "u")], timeout_ms=1
        )
    )
    for request in requests:
        try:
            step = stage.ask(request)
        except RemoteProtocolError:
            seen["closed"] += 1
            continue
        codes = error_codes(step.answer)
        seen.update("good" if code == 0 else "refused" for code in codes)
        if codes and 0 not in codes:
            assert step.records == [], "what is refused writes nothing"
        if getattr(request, "validate_only", False):
            assert step.records == []
        check(stage)
