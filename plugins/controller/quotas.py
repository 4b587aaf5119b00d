"""Decisions on client quotas: AlterClientQuotas (KIP-546, KIP-612).

Entries of a request are independent of each other: a bad one writes nothing, the good ones are one batch. Setting a
value that is set already, or removing a key that is not set, writes nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from kraftcore.configdef.keys import ConfigDef, definitions
from kraftcore.configdef.types import ConfigType
from kraftcore.metadata import quota_entity
from kraftcore.plugins.controller.decision import (
    Api,
    Context,
    ControllerResult,
    Record,
    Refusal,
    check_item_count,
    check_record_count,
)
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kraftcore.protocol.records.client_quota_record import ClientQuotaRecord
from kraftcore.protocol.schema import Request

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_ORDER: Final = {CLIENT_ID: 0, USER: 1, IP: 2}  # in records and answers, the order of Kafka's hash table
_MOST: Final = {
    ConfigType.INT: (float((1 << 31) - 1), "an INT"),
    ConfigType.LONG: (float((1 << 63) - 1), "a LONG"),
}
_FRACTION: Final = 1e-6
_LOCALHOST: Final = "localhost"

Entity = dict[str, str | None]
"""Names by type of entity, in Kafka's order; None stands for the type's default."""
_Ops = Mapping[str, float | None]


def alter(context: Context, request: AlterClientQuotasRequest, version: int) -> ControllerResult:
    """Set and remove quotas."""
    check_item_count(sum(max(len(entry.ops), 1) for entry in request.entries))
    results: dict[tuple[tuple[str, str | None], ...], tuple[Entity, Refusal | None]] = {}
    records: list[Record] = []
    for entry in request.entries:
        entity = _read_entity(entry.entity)
        key = tuple(entity.items())
        ops: dict[str, float | None] = {}
        names_a_key_twice = False
        for op in entry.ops:
            names_a_key_twice |= op.key in ops
            ops.setdefault(op.key, None if op.remove else op.value)
        if key in results or names_a_key_twice:
            text = f"Ignoring duplicate entity {_show(entity)}"
            results[key] = entity, Refusal(ErrorCode.INVALID_REQUEST, text)
            continue
        try:
            records += _alter_entity(context, entity, ops)
        except Refusal as refused:
            results[key] = entity, refused
        else:
            results[key] = entity, None
    check_record_count(len(records))
    answer = AlterClientQuotasResponse(entries=[_result(*each) for each in results.values()])
    return ControllerResult(answer, [] if request.validate_only else records)


def _read_entity(given: list[AlterClientQuotasRequest.EntryData.EntityData]) -> Entity:
    names = {each.entity_type: each.entity_name for each in given}
    return {kind: names[kind] for kind in sorted(names, key=lambda kind: (_ORDER.get(kind, len(_ORDER)), kind))}


def _show(entity: Entity) -> str:
    """Print an entity as Kafka's messages do."""
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.items())
    return f"ClientQuotaEntity(entries={{{names}}})"


def _alter_entity(context: Context, entity: Entity, ops: _Ops) -> list[Record]:
    keys = _keys(entity)
    present = context.image.quotas.of(quota_entity(entity))
    records: list[Record] = []
    for name, value in ops.items():
        if value is not None:
            _check_value(keys, name, value)
        if value == present.get(name):
            continue
        record = ClientQuotaRecord(
            entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=who) for kind, who in entity.items()],
            key=name,
            value=value or 0.0,
            remove=value is None,
        )
        records.append((record, 0))
    return records


def _keys(entity: Entity) -> ConfigDef:
    """Check an entity, and return the keys that it can have."""
    if not entity:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in _ORDER:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP not in entity:
        return definitions("user-quota")
    if len(entity) > 1:
        text = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        raise Refusal(ErrorCode.INVALID_REQUEST, text)
    ip = entity[IP]
    if ip is not None and not is_address(ip):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{ip} is not a valid IP or resolvable host.")
    return definitions("ip-quota")


def _check_value(keys: ConfigDef, name: str, value: float) -> None:
    key = keys.get(name)
    if key is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {name}")
    if not value > 0:  # refuses NaN, too
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Quota {name} must be greater than 0")
    limit = _MOST.get(key.type)
    if limit is None:
        return
    most, kind = limit
    if value > most:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Proposed value for {name} is too large for {kind}.")
    if value % 1 > _FRACTION:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} cannot be a fractional value.")


_SHORT_IPV4 = re.compile(r"[0-9]{1,10}(\.[0-9]{1,10}){0,3}", re.ASCII)


def is_address(text: str) -> bool:
    """Whether a text is an IP address, or ``localhost``. Other names are not resolved: that would take too long.

    As in Java, an IPv4 address may have fewer than four parts (the last one then fills the rest), and an IPv6 address
    may stand in brackets.
    """
    if text == _LOCALHOST:
        return True
    if _SHORT_IPV4.fullmatch(text):
        *first, last = map(int, text.split("."))
        return all(part < 256 for part in first) and last < 256 ** (4 - len(first))
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _result(entity: Entity, refused: Refusal | None) -> AlterClientQuotasResponse.EntryData:
    kind = AlterClientQuotasResponse.EntryData
    return kind(
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else refused.text,
        entity=[kind.EntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
    )


def _refuse(
    request: AlterClientQuotasRequest, version: int, error: ErrorCode, message: str | None
) -> AlterClientQuotasResponse:
    refused = Refusal(error, error.message)
    entities = [{each.entity_type: each.entity_name for each in entry.entity} for entry in request.entries]
    return AlterClientQuotasResponse(entries=[_result(entity, refused) for entity in entities])


APIS: dict[type[Request], Api] = {AlterClientQuotasRequest: Api(alter, _refuse)}
