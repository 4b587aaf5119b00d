"""Decisions on feature levels (KIP-584, KIP-1022): UpdateFeatures, and the feature fields of ApiVersions.

All updates of a request are made, or none. A level is supported when this controller, every registered broker and every
registered controller support it; static voters have to be registered. metadata.version goes down only across levels
that did not change record formats. kraft.version belongs to the consensus, which is asked to raise it; the decision's
own record is then a NoOp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraftcore.errors import LocalError
from kraftcore.metadata import LevelRange
from kraftcore.metadata.configs import BROKER
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, KRaftUpgrade, Record, Refusal
from kraftcore.plugins.controller.hash_order import in_hash_order
from kraftcore.plugins.controller.topic_configs import MIN_ISR
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    MetadataVersion,
    check_dependencies_of,
    supported_levels,
)
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord
from kraftcore.protocol.schema import Request

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_PREFIX: Final = "The update failed for all features since the following feature had an error: "
_NOT_SUPPORTED: Final = LevelRange(0, 0)


def update(context: Context, request: UpdateFeaturesRequest, version: int) -> ControllerResult:
    """Raise and lower feature levels."""
    wanted: dict[str, tuple[int, int]] = {}  # the last update of a feature that is named twice
    for each in request.feature_updates:
        wanted[each.feature] = each.max_version_level, each.upgrade_type if version >= 1 else UPGRADE
    features = context.image.features
    levels = {
        **features,
        METADATA_VERSION: int(features.metadata_version_or_minimum),
        **{name: level for name, (level, _) in wanted.items()},
    }
    records: list[Record] = []
    upgrade = None
    for name in in_hash_order(wanted):
        level, kind = wanted[name]
        try:
            _check_update(context, name, level, kind)
            if name == METADATA_VERSION:
                _check_metadata_version(features.metadata_version_or_minimum, level, kind)
            elif name == KRAFT_VERSION.name:
                if level < context.kraft_version:
                    raise _invalid(name, level, "Can't downgrade the version of this feature.")
                if level > context.kraft_version:
                    upgrade = KRaftUpgrade(level, version >= 1 and request.validate_only)
                if kind == UPGRADE:
                    records.append((NoOpRecord(), 0))
                continue
            else:
                _check_known(name, level, levels)
        except Refusal as refused:
            raise Refusal(refused.code, f"{_PREFIX}{refused.text}") from None
        records.append((FeatureLevelRecord(name=name, feature_level=level), 0))
    if wanted.get(ELIGIBLE_LEADER_REPLICAS_VERSION.name, (0, 0))[0] > 0:
        records[:0] = one_min_isr_records(context)
    answer = UpdateFeaturesResponse(error_message=None)
    if version <= 1:
        result = UpdateFeaturesResponse.UpdatableFeatureResult
        answer.results = [
            result(feature=each.feature, error_message=ErrorCode.NONE.name) for each in request.feature_updates
        ]
    validate_only = version >= 1 and request.validate_only
    return ControllerResult(answer, [] if validate_only else records, kraft_upgrade=upgrade)


def refused_upgrade(level: int, error: ErrorCode, message: str | None) -> UpdateFeaturesResponse:
    """The answer when the consensus does not raise kraft.version.

    Args:
        level: the requested level.
        error: of the consensus.
        message: of the consensus; may be None.
    """
    if error is ErrorCode.INVALID_UPDATE_VERSION:
        message = _invalid(KRAFT_VERSION.name, level, message or "").text
    return UpdateFeaturesResponse(error_code=error, error_message=f"{_PREFIX}{message}")


def _invalid(name: str, level: int, why: str) -> Refusal:
    text = f"Invalid update version {level} for feature {name}. {why}"
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, text)


def _check_update(context: Context, name: str, level: int, kind: int) -> None:
    """Check an update by the rules for every feature."""
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    why = _why_not_supported(context, name, level)
    if why is not None:
        raise _invalid(name, level, why)
    present = present_level(context, name)
    if level < present and kind == UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > present and kind != UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")


def present_level(context: Context, name: str) -> int:
    """The finalized level of any feature."""
    if name == METADATA_VERSION:
        return int(context.image.features.metadata_version_or_minimum)
    return context.kraft_version if name == KRAFT_VERSION.name else context.image.features.level(name)


def _why_not_supported(context: Context, name: str, level: int) -> str | None:
    image, me = context.image, context.settings.node_id
    local = LevelRange(*supported_levels().get(name, _NOT_SUPPORTED))
    why = _outside(f"Local controller {me}", local, level) or _why_not_by_all(
        "Broker", ((each.id, each.features) for each in image.brokers.values()), name, level
    )
    if why is not None or image.features.metadata_version_or_minimum < MetadataVersion.V3_7_IV0:
        return why  # below this level controllers do not register
    others = {each.id: each.features for each in image.controllers.values() if each.id != me}
    why = _why_not_by_all("Controller", others.items(), name, level)
    if why is not None:
        return why
    for voter in sorted(context.settings.static_voters - {me}):
        if voter not in others:
            return f"controller {voter} has not registered, and may not support this feature"
    return None


def _why_not_by_all(
    what: str, nodes: Iterable[tuple[int, Mapping[str, LevelRange]]], name: str, level: int
) -> str | None:
    for node_id, features in sorted(nodes, key=lambda node: node[0]):
        why = _outside(f"{what} {node_id}", features.get(name, _NOT_SUPPORTED), level)
        if why is not None:
            return why
    return None


def _outside(who: str, known: LevelRange, level: int) -> str | None:
    if known.min <= level <= known.max:
        return None
    if known.max == 0:
        return f"{who} does not support this feature."
    levels = f"{known.min}-{known.max}" if known.min != known.max else f"{known.min}"
    return f"{who} only supports versions {levels}"


def _check_metadata_version(present: MetadataVersion, level: int, kind: int) -> None:
    wanted = MetadataVersion.from_level(level)
    if wanted >= present or not present.records_change_between(wanted):
        return
    if kind == UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    else:
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
    text = f"Unsupported metadata.version downgrade from {present:d} to {level}. {why}"
    raise Refusal(ErrorCode.INVALID_UPDATE_VERSION, text)


def _check_known(name: str, level: int, levels: Mapping[str, int]) -> None:
    if all(known.name != name for known in FEATURES):
        raise _invalid(name, level, f"Feature {name} not found.")
    try:
        check_dependencies_of(name, levels)
    except LocalError as refused:
        raise _invalid(name, level, str(refused)) from None


def one_min_isr_records(context: Context) -> list[Record]:
    """The records that make min.insync.replicas equal on all brokers, as eligible leader replicas need (KIP-966)."""
    configs = context.image.configs
    records: list[Record] = []
    if MIN_ISR not in configs.of(BROKER, ""):
        records.append((cluster_min_isr(context.settings.value(MIN_ISR)), 0))
    brokers = [resource.name for resource in configs if resource.type == BROKER and resource.name]
    records += [
        (ConfigRecord(resource_type=BROKER, resource_name=name, name=MIN_ISR, value=None), 0)
        for name in sorted(brokers, key=int)
        if MIN_ISR in configs.of(BROKER, name)
    ]
    return records


def cluster_min_isr(count: int) -> ConfigRecord:
    """The record that sets min.insync.replicas as the default of all brokers."""
    return ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_ISR, value=str(count))


def describe(levels: Mapping[str, int], kraft_version: int, response: ApiVersionsResponse, epoch: int) -> None:
    """Fill in the feature fields of an ApiVersions answer.

    Args:
        levels: finalized levels by feature.
        kraft_version: its finalized level.
        response: takes the features.
        epoch: of the features: an offset that never falls, and rises when a feature changes.
    """
    supported = ApiVersionsResponse.SupportedFeatureKey
    response.supported_features = [
        supported(name=name, min_version=least, max_version=most) for name, (least, most) in supported_levels().items()
    ]
    finalized_levels = {**levels, KRAFT_VERSION.name: kraft_version}
    finalized = ApiVersionsResponse.FinalizedFeatureKey
    response.finalized_features_epoch = epoch
    response.finalized_features = [
        finalized(name=name, max_version_level=level, min_version_level=level)
        for name, level in finalized_levels.items()
        if level
    ]


def _refuse(
    request: UpdateFeaturesRequest, version: int, error: ErrorCode, message: str | None
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error, error_message=message)


APIS: dict[type[Request], Api] = {UpdateFeaturesRequest: Api(update, _refuse)}
