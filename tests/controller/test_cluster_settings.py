"""Features, producer ids, controllers, activation: what no recording shows."""

from __future__ import annotations

import pytest
from controller_stage import ControllerStage, FakeBroker
from golden import GOLDEN
from recorded_controller import records_as_data

from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError
from kraftcore.metadata import Image
from kraftcore.plugins.controller import activation, controllers, features
from kraftcore.plugins.controller.decision import KRaftUpgrade
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import METADATA_VERSION, MetadataVersion
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest
from kraftcore.protocol.messages.controller_registration import ControllerRegistrationRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.producer_ids_record import ProducerIdsRecord
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

UP, DOWN, UNSAFE = 1, 2, 3
ELR = "eligible.leader.replicas.version"
Listener = ControllerRegistrationRequest.Listener


def updates(*wanted: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    kind = UpdateFeaturesRequest.FeatureUpdateKey
    return UpdateFeaturesRequest(
        feature_updates=[kind(feature=name, max_version_level=level, upgrade_type=how) for name, level, how in wanted],
        validate_only=validate_only,
    )


def registration(node_id: int, *names: str, security_protocol: int = 0, **levels: int) -> ControllerRegistrationRequest:
    known = {METADATA_VERSION: 30, "kraft_version": 1, **levels}
    return ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=Uuid(node_id.to_bytes(16, "big")),
        listeners=[
            Listener(name=name, host=f"c{node_id}", port=9000 + place, security_protocol=security_protocol)
            for place, name in enumerate(names)
        ],
        features=[
            ControllerRegistrationRequest.Feature(name=name.replace("_", "."), max_supported_version=level)
            for name, level in known.items()
        ],
    )


def refusal(step) -> str:
    assert step.records == []
    assert step.answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    return step.answer.error_message.split(": ", 1)[1]


# --- features


def test_static_voters_have_to_be_registered():
    stage = ControllerStage(node_id=1, static_voters=frozenset({1, 2, 3}))
    assert stage.ask(registration(2, group_version=1)).error is None
    assert refusal(stage.ask(updates(("group.version", 1, UP)))) == (
        "Invalid update version 1 for feature group.version. controller 3 has not registered, and may not support this "
        "feature"
    )
    assert stage.ask(registration(3)).error is None
    assert refusal(stage.ask(updates(("group.version", 1, UP)))) == (
        "Invalid update version 1 for feature group.version. Controller 3 does not support this feature."
    )
    assert stage.ask(registration(3, group_version=1)).error is None
    step = stage.ask(updates(("group.version", 1, UP)))
    assert [record for record, _ in step.records] == [FeatureLevelRecord(name="group.version", feature_level=1)]


def test_before_controllers_register_they_are_not_asked():
    stage = ControllerStage(MetadataVersion.V3_6_IV2, elr=0, node_id=1, static_voters=frozenset({1, 2}))
    assert stage.ask(updates((METADATA_VERSION, 15, UP))).error is None
    assert stage.image.features.metadata_version == MetadataVersion.V3_7_IV0
    assert "controller 2 has not registered" in refusal(stage.ask(updates((METADATA_VERSION, 17, UP))))


def test_levels_depend_on_each_other():
    stage = ControllerStage(MetadataVersion.V4_0_IV0, elr=0)
    text = f"{ELR} could not be set to 1 because it depends on metadata.version level 23"
    assert refusal(stage.ask(updates((ELR, 1, UP)))) == f"Invalid update version 1 for feature {ELR}. {text}"
    step = stage.ask(updates((ELR, 1, UP), (METADATA_VERSION, 23, UP)))
    assert {record.name for record, _ in step.records} == {"min.insync.replicas", METADATA_VERSION, ELR}


def test_eligible_leader_replicas_come_with_one_min_insync_replicas():
    """What brokers have of their own goes, what all have stays or is made."""
    stage = ControllerStage(elr=0, static_configs={"min.insync.replicas": "2"})
    stage.up(FakeBroker(1))
    for name, key in (("10", "min.insync.replicas"), ("2", "min.insync.replicas"), ("3", "a")):
        stage.apply((ConfigRecord(resource_type=4, resource_name=name, name=key, value="5"), 0))
    assert stage.ask(updates((ELR, 1, UP), validate_only=True)).records == []
    step = stage.ask(updates((ELR, 1, UP)))
    assert [record for record, _ in step.records] == [
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        ConfigRecord(resource_type=4, resource_name="2", name="min.insync.replicas", value=None),
        ConfigRecord(resource_type=4, resource_name="10", name="min.insync.replicas", value=None),
        FeatureLevelRecord(name=ELR, feature_level=1),
    ]
    again = stage.ask(updates((ELR, 1, UP)))
    assert [record for record, _ in again.records] == [FeatureLevelRecord(name=ELR, feature_level=1)]


def test_kraft_version_is_asked_of_the_consensus():
    stage = ControllerStage()
    context = stage.context()
    context.kraft_version = 0
    for validate_only in (False, True):
        decision = features.update(context, updates(("kraft.version", 1, UP), validate_only=validate_only), 2)
        assert decision.kraft_upgrade == KRaftUpgrade(1, validate_only)
        assert len(decision.records) == (not validate_only)
    context.kraft_version = 1
    assert features.update(context, updates(("kraft.version", 1, UP)), 2).kraft_upgrade is None
    answer = features.refused_upgrade(1, ErrorCode.INVALID_UPDATE_VERSION, "not all of the voters support it")
    assert answer.error_message == (
        "The update failed for all features since the following feature had an error: "
        "Invalid update version 1 for feature kraft.version. not all of the voters support it"
    )


def test_a_fenced_broker_holds_a_level_back():
    stage = ControllerStage()
    assert stage.register(FakeBroker(4)).error is None
    assert refusal(stage.ask(updates(("share.version", 1, UP)))) == (
        "Invalid update version 1 for feature share.version. Broker 4 does not support this feature."
    )


# --- producer ids


def test_the_last_producer_ids():
    stage = ControllerStage()
    stage.up(FakeBroker(1))
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=stage.brokers[1].epoch)
    last = (1 << 63) - 1
    stage.apply((ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=last - 1000), 0))
    assert stage.ask(request).answer.producer_id_start == last - 1000
    step = stage.ask(request)
    assert (step.answer.error_code, step.answer.producer_id_len, step.records) == (-1, 0, [])


# --- controllers


@pytest.mark.parametrize("change", [{"host": ""}, {"port": 0}])
def test_a_registration_that_names_no_place_is_refused(change):
    request = registration(2, "CONTROLLER")
    request.listeners = [request.listeners[0].replace(**change)]
    step = ControllerStage().ask(request)
    assert (step.error, step.records) == (ErrorCode.INVALID_REQUEST, [])


def test_a_broker_whose_listener_has_no_name_is_refused():
    nameless = BrokerRegistrationRequest.Listener(host="b1", port=9092)
    step = ControllerStage().register(FakeBroker(1), listeners=[nameless])
    assert (step.error, step.records) == (ErrorCode.INVALID_REQUEST, [])


def test_a_registration_with_an_unknown_security_protocol_is_refused():
    stage = ControllerStage()
    step = stage.ask(registration(2, "CONTROLLER", security_protocol=7))
    error = ErrorCode.INVALID_REQUEST
    assert (step.answer.error_code, step.answer.error_message) == (error, error.message)
    assert step.records == []


def test_registering_needs_a_metadata_version_that_knows_it():
    step = ControllerStage(MetadataVersion.V3_6_IV2, elr=0).ask(registration(2))
    error = ErrorCode.UNSUPPORTED_VERSION
    assert (step.answer.error_code, step.answer.error_message) == (error, error.message)


def test_controllers_are_listed_with_the_listener_that_was_asked():
    stage = ControllerStage(node_id=1)
    for node_id, names in ((2, ("A", "B")), (1, ("B",)), (3, ("A",))):
        stage.ask(registration(node_id, *names))
    request = DescribeClusterRequest(endpoint_type=controllers.CONTROLLERS, include_cluster_authorized_operations=True)

    def described(listener: str, leader: int | None, may=lambda permission: True):
        context = stage.context()
        context.is_allowed = may
        answer = controllers.describe_cluster(context, request, 2, listener, leader)
        return (
            [(each.broker_id, each.host, each.port) for each in answer.brokers],
            answer.controller_id,
            answer.cluster_authorized_operations,
        )

    assert described("B", 1) == ([(1, "c1", 9000), (2, "c2", 9001)], 1, 8096)
    assert described("B", 3)[1] == described("B", None)[1] == -1
    assert described("C", 1)[0] == []
    look = Action(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster", log_if_denied=False, log_if_allowed=False)
    assert described("A", 2, lambda action: action == look)[2] == 1 << Operation.DESCRIBE
    assert described("A", 2, lambda action: action != look)[2] == 0


# --- becoming active


def golden_values(path: str) -> list[bytes]:
    data = (GOLDEN / path).read_bytes()
    return [bytes(value) for batch in iter_batches(data) if not batch.is_control for value in batch.values()]


@pytest.mark.parametrize("node", ["formats/c1", "formats/c2", "formats/c3", "dynamic/c1"])
def test_an_empty_log_gets_what_format_left(node):
    """As far as the golden log of a first leader shows it, record for record."""
    bootstrap = [decode_metadata_record(value) for value in golden_values(f"{node}/bootstrap.checkpoint")]
    stage = ControllerStage()
    stage.image = Image(ahead=True)
    decision = activation.activate(stage.context(), bootstrap)
    version = MetadataVersion.from_level(bootstrap[0][0].feature_level)
    assert version >= MetadataVersion.V3_6_IV1
    assert not decision.is_atomic
    stage.carry_out(decision)
    assert stage.image.features.metadata_version == version
    assert not stage.image.in_transaction
    if node == "dynamic/c1":
        first = sorted((GOLDEN / node / "__cluster_metadata-0").glob("*.log"))[0]
        written = [decode_metadata_record(value) for value in golden_values(str(first.relative_to(GOLDEN)))]
        assert records_as_data(decision.records) == records_as_data(written[: len(decision.records)])


def levels(version: MetadataVersion, elr: int = 0) -> list:
    return [
        (FeatureLevelRecord(name=METADATA_VERSION, feature_level=int(version)), 0),
        *([(FeatureLevelRecord(name=ELR, feature_level=elr), 0)] if elr else []),
    ]


def kinds(decision) -> list[str]:
    return [type(record).__name__.removesuffix("Record") for record, _ in decision.records]


@pytest.mark.parametrize(
    ("version", "elr", "begun", "written", "is_atomic"),
    [
        (MetadataVersion.V3_6_IV0, 0, False, ["FeatureLevel"], True),
        (MetadataVersion.V3_6_IV1, 0, False, ["BeginTransaction", "FeatureLevel", "EndTransaction"], False),
        (
            MetadataVersion.V3_6_IV1,
            0,
            True,
            ["AbortTransaction", "BeginTransaction", "FeatureLevel", "EndTransaction"],
            False,
        ),
        (
            MetadataVersion.V4_3_IV0,
            1,
            False,
            ["BeginTransaction", "FeatureLevel", "FeatureLevel", "Config", "EndTransaction"],
            False,
        ),
    ],
)
def test_how_an_empty_log_is_filled(version, elr, begun, written, is_atomic):
    stage = ControllerStage()
    stage.image = Image(ahead=True)
    if begun:
        stage.apply((BeginTransactionRecord(name="Bootstrap records"), 0))
    decision = activation.activate(stage.context(), levels(version, elr))
    assert (kinds(decision), decision.is_atomic) == (written, is_atomic)


def test_an_open_transaction_is_aborted():
    stage = ControllerStage()
    assert activation.activate(stage.context(), levels(MetadataVersion.V4_3_IV0)).records == []
    stage.apply((BeginTransactionRecord(name="x"), 0))
    decision = activation.activate(stage.context(), levels(MetadataVersion.V4_3_IV0))
    assert kinds(decision) == ["AbortTransaction"]
    assert decision.records[0][0].reason == "Controller failover"
    stage.carry_out(decision)
    assert not stage.image.in_transaction


def test_logs_that_no_controller_wrote():
    old = ControllerStage(MetadataVersion.V3_6_IV0, elr=0)
    old.apply((BeginTransactionRecord(name="x"), 0))
    with pytest.raises(CorruptDataError, match=r"metadata\.version 3\.6-IV0 does not have"):
        activation.activate(old.context(), [])
    empty = ControllerStage()
    empty.image = Image(ahead=True)
    with pytest.raises(CorruptDataError, match=r"name no metadata\.version"):
        activation.activate(empty.context(), [])


def test_a_record_that_says_nothing():
    stage = ControllerStage()
    decision = activation.no_op(stage.context())
    assert kinds(decision) == ["NoOp"]
    stage.carry_out(decision)
