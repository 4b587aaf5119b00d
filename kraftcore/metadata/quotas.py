"""Client quotas of the image (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from kraftcore.metadata.journal import Part
from kraftcore.protocol.records.client_quota_record import ClientQuotaRecord

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of type (``user``, ``client-id``, ``ip``) and name, sorted by type; None stands for the default of the type."""

_NONE: Mapping[str, float] = MappingProxyType({})


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """The key of an entity, from its names by type."""
    return tuple(sorted(names.items()))


class Quotas(Part[QuotaEntity, Mapping[str, float]]):
    """Quotas by entity and key; an entity without quotas is not in it."""

    __slots__ = ()

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        """The quotas of an entity; empty if it has none."""
        return self._items.get(entity, _NONE)

    def on_quota(self, record: ClientQuotaRecord) -> None:
        """Set or remove a quota."""
        entity = quota_entity({each.entity_type: each.entity_name for each in record.entity})
        changed = dict(self._items.get(entity, _NONE))
        if record.remove:
            if changed.pop(record.key, None) is None:
                return
        else:
            changed[record.key] = record.value
        if changed:
            self.put(entity, MappingProxyType(changed))
        else:
            self.drop(entity)


def quota_records(quotas: dict[QuotaEntity, Mapping[str, float]]) -> Iterator[ClientQuotaRecord]:
    """The records of the quotas in a snapshot."""
    for entity, values in quotas.items():
        named = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, value in values.items():
            yield ClientQuotaRecord(entity=named, key=key, value=value, remove=False)
