"""Brokers: registration, heartbeats, fencing, controlled shutdown, unregistering (KIP-631, KIP-841, KIP-858, KIP-966).

A registered broker is in one of three states, which its heartbeats change:

======================  ================  ===============================  ==========================================
state                   WantFence         WantShutDown                     neither
======================  ================  ===============================  ==========================================
fenced                  stays             fenced, may shut down now        unfenced, if it has read its registration
unfenced                fenced            while it leads: controlled       stays
                                          shutdown; else: fenced, may
                                          shut down now
controlled shutdown     (no matter)       when it leads nothing and all active brokers have read as far as its
                                          shutdown offset: fenced, may shut down now; else stays
======================  ================  ===============================  ==========================================

With WantFence and WantShutDown a broker that is not in controlled shutdown is fenced and may shut down now.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from kraftcore.metadata import Broker
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Record, Refusal, check_record_count
from kraftcore.plugins.controller.directories import cordoned, offline
from kraftcore.plugins.controller.requester import check_epoch
from kraftcore.plugins.controller.soft_state import NO_OFFSET, NOT_SHUTTING_DOWN, BrokerSession
from kraftcore.plugins.controller.updates import PartitionUpdates
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import KRAFT_VERSION, METADATA_VERSION, MetadataVersion
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.unregister_broker_record import UnregisterBrokerRecord
from kraftcore.protocol.schema import Request

_FENCE, _UNFENCE = 1, -1
_FENCING_VERSION, _SHUTDOWN_VERSION = 0, 1
_SECURITY_PROTOCOLS = range(4)  # PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
_CLEAN_SHUTDOWN_FROM = 3
"""From this version on, a registration names the epoch before it; a mismatch is an unclean shutdown (KIP-966)."""


# --- registration


def register(context: Context, request: BrokerRegistrationRequest, version: int) -> ControllerResult:
    """Register a broker's process.

    A new incarnation gets the offset of the next record as its epoch, and is fenced. The same incarnation keeps its
    epoch and state; all other fields are taken from the request.
    """
    known: Broker | None = context.image.brokers.get(request.broker_id)
    _check_identity(context, request, known)
    has_directories = context.image.features.metadata_version_or_minimum >= MetadataVersion.V3_7_IV2
    if has_directories:
        _check_directories(context, request)
    record = _registration(context, request)
    if has_directories:
        record.log_dirs = list(request.log_dirs)
    records: list[Record] = []
    broker_id = request.broker_id
    session = None
    if known is not None and known.incarnation_id == request.incarnation_id:
        record.fenced = known.is_fenced
        record.in_controlled_shutdown = known.is_shutting_down
        record.broker_epoch = known.epoch
        session = context.soft.session(broker_id, known.epoch)
        if session is not None:
            session = session._replace(metadata_offset=NO_OFFSET, shutdown_offset=NOT_SHUTTING_DOWN)
    else:
        is_clean = (
            known is not None and version >= _CLEAN_SHUTDOWN_FROM and request.previous_broker_epoch == known.epoch
        )
        records = _end_of_incarnation(context, broker_id, is_clean)
        record.broker_epoch = context.next_offset
    records.append((record, context.image.features.metadata_version_or_minimum.register_broker_record_version))
    answer = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
    return ControllerResult(answer, records, is_atomic=False, sessions={broker_id: session})


def _check_identity(context: Context, request: BrokerRegistrationRequest, known: Broker | None) -> None:
    cluster_id = context.settings.cluster_id
    if request.cluster_id != cluster_id:
        text = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        raise Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if (
        known is not None
        and known.incarnation_id != request.incarnation_id
        and context.soft.is_alive(known.id, known.epoch, context.now_ms, context.settings.session_timeout_ms)
    ):
        raise Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        text = "Controller does not support registering ZK brokers."
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, text)


def _check_directories(context: Context, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(directory.is_reserved for directory in directories):
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    wanted = set(directories)
    if len(wanted) != len(directories):
        raise Refusal(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    owners = {
        directory: broker.id
        for broker in context.image.brokers.values()
        if broker.id != request.broker_id
        for directory in broker.directories
        if directory in wanted
    }
    for directory in directories:
        if directory in owners:
            text = f"Broker {owners[directory]} is already registered with directory {directory}"
            raise Refusal(ErrorCode.INVALID_REGISTRATION, text)


def _registration(context: Context, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    """The record of a registration, with the fields that depend on the request alone."""
    listeners: dict[str, RegisterBrokerRecord.BrokerEndpoint] = {}
    for each in request.listeners:
        if each.security_protocol not in _SECURITY_PROTOCOLS:
            text = f"Unknown security protocol {each.security_protocol} in listener {each.name}"
            raise Refusal(ErrorCode.INVALID_REQUEST, text)
        if not each.name:  # Kafka's controllers accept this, and stop when they read the record
            raise Refusal(ErrorCode.INVALID_REQUEST, "A listener has no name")
        if each.port == 0:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Port 0 in listener {each.name}")
        listeners[each.name] = RegisterBrokerRecord.BrokerEndpoint(
            name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
        )
    _check_features(context, request)
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=list(listeners.values()),
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )


def _check_features(context: Context, request: BrokerRegistrationRequest) -> None:
    """Check that the broker supports every finalized level; a feature it does not name has level 0 (KIP-584)."""
    finalized: dict[str, int] = dict(context.image.features)
    finalized[KRAFT_VERSION.name] = context.kraft_version
    ranges = [(each.name, each.min_supported_version, each.max_supported_version) for each in request.features]
    named = {name for name, _, _ in ranges}
    unnamed = [(name, 0, 0) for name, level in finalized.items() if level and name not in named]
    for name, low, high in ranges:
        _check_range(name, finalized.get(name, 0), low, high)
    if METADATA_VERSION not in named:
        raise Refusal(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
    for name, low, high in unnamed:
        _check_range(name, finalized[name], low, high)


def _check_range(name: str, level: int, low: int, high: int) -> None:
    if not low <= level <= high:
        raise Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. "
            f"The broker wants a version between {low} and {high}, inclusive.",
        )


def _end_of_incarnation(context: Context, broker_id: int, is_clean: bool) -> list[Record]:
    """Take a broker out of all ISRs for its new incarnation, and after an unclean shutdown out of the ELRs, too."""
    partitions = context.image.partitions
    if context.image.features.is_elr_on and not is_clean:
        updates = PartitionUpdates(context, unclean=broker_id)
        updates.refresh(partitions.with_isr_member(broker_id))
        updates.refresh(partitions.with_elr_member(broker_id))
    else:
        updates = PartitionUpdates(context, without=broker_id)
        updates.refresh(partitions.with_isr_member(broker_id))
    return updates.records


# --- heartbeats


class _State(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


def heartbeat(context: Context, request: BrokerHeartbeatRequest, version: int) -> ControllerResult:
    """Note that a broker is alive and how far it has read the metadata log, and do what it wants."""
    broker = check_epoch(context, request.broker_id, request.broker_epoch)
    registered_at: int = context.image.registration_offsets.get(broker.id, broker.epoch)
    session = context.soft.session(broker.id, broker.epoch) or BrokerSession(broker.epoch, context.now_ms)
    state, following = _transition(context, broker, session, request, registered_at)
    records: list[Record] = []
    if following is not state:
        if following is _State.UNFENCED:
            records = unfencing(context, broker)
        elif following is _State.CONTROLLED_SHUTDOWN:
            records = _beginning_of_shutdown(context, broker)
        else:
            records = fencing(context, broker)
    metadata_version = context.image.features.metadata_version_or_minimum
    changes_registration = bool(records)
    if request.offline_log_dirs and metadata_version >= MetadataVersion.V3_7_IV2:
        records += offline(context, broker, request.offline_log_dirs)
    if request.cordoned_log_dirs is not None and metadata_version >= MetadataVersion.V4_3_IV0:
        records += cordoned(broker, request.cordoned_log_dirs)
    changes_registration = changes_registration or bool(records)

    shutdown_offset = session.shutdown_offset
    if following is _State.CONTROLLED_SHUTDOWN:
        if shutdown_offset < 0:
            shutdown_offset = context.next_offset + len(records) - 1
    elif following is not _State.UNFENCED:
        shutdown_offset = NOT_SHUTTING_DOWN
    is_fenced = following in (_State.FENCED, _State.SHUTDOWN_NOW)
    offset = NO_OFFSET if changes_registration else request.current_metadata_offset
    answer = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= registered_at,
        is_fenced=is_fenced,
        should_shut_down=following is _State.SHUTDOWN_NOW,
    )
    sessions = {broker.id: BrokerSession(broker.epoch, context.now_ms, offset, shutdown_offset)}
    return ControllerResult(answer, records, is_atomic=False, sessions=sessions)


def _transition(
    context: Context, broker: Broker, session: BrokerSession, request: BrokerHeartbeatRequest, registered_at: int
) -> tuple[_State, _State]:
    """The state a broker is in, and its next state, by the table of this module."""
    wants_shutdown = request.want_shut_down
    if session.is_shutting_down:
        state = _State.CONTROLLED_SHUTDOWN
        may_go = not _leads(context, broker.id) and session.shutdown_offset <= _lowest_active_offset(context)
        return state, _State.SHUTDOWN_NOW if may_go else state
    if broker.is_fenced:
        state = _State.FENCED
        if wants_shutdown:
            return state, _State.SHUTDOWN_NOW
        has_read = request.current_metadata_offset >= registered_at
        return state, _State.UNFENCED if has_read and not request.want_fence else state
    state = _State.UNFENCED
    if wants_shutdown:
        waits = not request.want_fence and _leads(context, broker.id)
        return state, _State.CONTROLLED_SHUTDOWN if waits else _State.SHUTDOWN_NOW
    return state, _State.FENCED if request.want_fence else state


def _leads(context: Context, broker_id: int) -> bool:
    return context.image.partitions.leadership_count(broker_id) > 0


def _lowest_active_offset(context: Context) -> float:
    """The least offset that a broker which is neither fenced nor in controlled shutdown has read up to."""
    lowest = float("inf")
    for broker in context.image.brokers.values():
        if not broker.is_fenced:
            session = context.soft.session(broker.id, broker.epoch)
            if session is None:
                return NO_OFFSET
            if not session.is_shutting_down:
                lowest = min(lowest, session.metadata_offset)
    return lowest


def fencing(context: Context, broker: Broker) -> list[Record]:
    """The records that fence a broker: its partitions first, then the broker."""
    updates = PartitionUpdates(context, without=broker.id)
    updates.refresh(context.image.partitions.with_isr_member(broker.id))
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_FENCE)
    return [*updates.records, (change, _FENCING_VERSION)]


def unfencing(context: Context, broker: Broker) -> list[Record]:
    """The records that unfence a broker: the broker first, then the partitions without a leader that it may lead."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    updates = PartitionUpdates(context, including=broker.id)
    updates.refresh(context.image.partitions.without_leader())
    return [(change, _FENCING_VERSION), *updates.records]


def _beginning_of_shutdown(context: Context, broker: Broker) -> list[Record]:
    """The records that begin a controlled shutdown: the broker first, unless the log has it already; its partitions."""
    updates = PartitionUpdates(context, without=broker.id)
    if not broker.is_shutting_down:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        updates.records.append((change, _SHUTDOWN_VERSION))
    updates.refresh(context.image.partitions.with_isr_member(broker.id))
    return updates.records


def fence_expired(context: Context) -> ControllerResult:
    """Fence the broker that has been silent for longest, if its session is over; called by a timer.

    One broker at a time, so that the next decision, for which ``is_more`` asks, sees the changed partitions. A broker
    that is fenced already is fenced again, as in Kafka 4.3.1.
    """
    broker_id = context.soft.expired(context.now_ms, context.settings.session_timeout_ms)
    if broker_id is None:
        return ControllerResult(None)
    broker: Broker | None = context.image.brokers.get(broker_id)
    ended: Mapping[int, BrokerSession | None] = {broker_id: None}
    if broker is None or context.soft.session(broker_id, broker.epoch) is None:
        return ControllerResult(None, sessions=ended, is_more=True)
    return ControllerResult(None, fencing(context, broker), is_atomic=False, sessions=ended, is_more=True)


# --- unregistering


def unregister(context: Context, request: UnregisterBrokerRequest, version: int) -> ControllerResult:
    """Remove a broker that will not come back, as an administrator asks."""
    broker: Broker | None = context.image.brokers.get(request.broker_id)
    if broker is None:
        text = f"Broker ID {request.broker_id} is not currently registered"
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
    updates = PartitionUpdates(context, without=broker.id)
    updates.refresh(context.image.partitions.with_isr_member(broker.id))
    updates.refresh(context.image.partitions.with_elr_member(broker.id))
    records = updates.records
    records.append((UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch), 0))
    check_record_count(len(records))
    return ControllerResult(UnregisterBrokerResponse(), records, is_atomic=False, sessions={broker.id: None})


# --- whole requests refused


def _refuse_register(
    request: BrokerRegistrationRequest, version: int, error: ErrorCode, message: str | None
) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=error)


def _refuse_heartbeat(
    request: BrokerHeartbeatRequest, version: int, error: ErrorCode, message: str | None
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=error)


def _refuse_unregister(
    request: UnregisterBrokerRequest, version: int, error: ErrorCode, message: str | None
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error, error_message=message)


APIS: dict[type[Request], Api] = {
    BrokerRegistrationRequest: Api(register, _refuse_register),
    BrokerHeartbeatRequest: Api(heartbeat, _refuse_heartbeat),
    UnregisterBrokerRequest: Api(unregister, _refuse_unregister),
}
