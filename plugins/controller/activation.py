"""The records that a controller writes when it becomes active, and while it is idle (KIP-631, 835, 868, 966).

A log without a metadata.version holds no metadata yet: the first active controller writes the records that formatting
left, in a metadata transaction if the level supports transactions, else as one batch. With eligible leader replicas on,
it also fixes min.insync.replicas for all brokers. A metadata transaction that a former controller left open is aborted,
and begun again if it was that first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftcore.errors import CorruptDataError
from kraftcore.plugins.controller.decision import Context, ControllerResult, Record
from kraftcore.plugins.controller.features import cluster_min_isr
from kraftcore.plugins.controller.topic_configs import MIN_ISR
from kraftcore.protocol.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, MetadataVersion
from kraftcore.protocol.records.abort_transaction_record import AbortTransactionRecord
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord

TRANSACTION: Final = "Bootstrap records"
FAILOVER: Final = "Controller failover"


def activate(context: Context, bootstrap: Sequence[Record]) -> ControllerResult:
    """Decide the records that a controller writes before anything else.

    Args:
        context: its image has all records of the log applied.
        bootstrap: the records of ``bootstrap.checkpoint``, for an empty log.

    Raises:
        CorruptDataError: the log cannot be one that a controller of its metadata.version wrote.
    """
    version = context.image.features.metadata_version
    if version is not None:
        return ControllerResult(None, _aborted(context, version))
    levels = {record.name: record.feature_level for record, _ in bootstrap if isinstance(record, FeatureLevelRecord)}
    if METADATA_VERSION not in levels:
        raise CorruptDataError("the bootstrap records name no metadata.version, and neither does the log")
    version = MetadataVersion.from_level(levels[METADATA_VERSION])
    records = _aborted(context, version)
    has_transactions = version >= MetadataVersion.V3_6_IV1
    if has_transactions:
        records.append((BeginTransactionRecord(name=TRANSACTION), 0))
    records += bootstrap
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION.name, 0) > 0:
        records.append((cluster_min_isr(context.settings.value(MIN_ISR)), 0))
    if has_transactions:
        records.append((EndTransactionRecord(), 0))
    return ControllerResult(None, records, is_atomic=not has_transactions)


def _aborted(context: Context, version: MetadataVersion) -> list[Record]:
    if not context.image.in_transaction:
        return []
    if version < MetadataVersion.V3_6_IV1:
        raise CorruptDataError(f"a metadata transaction is open, which metadata.version {version.text} does not have")
    return [(AbortTransactionRecord(reason=FAILOVER), 0)]


def no_op(context: Context) -> ControllerResult:
    """Write a NoOp record, by which readers see that the log works; the timer is ``metadata.max.idle.interval.ms``."""
    return ControllerResult(None, [(NoOpRecord(), 0)])
