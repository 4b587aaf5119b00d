"""Access control entries of the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.errors import MetadataRecordError
from kraftcore.metadata.journal import Journal, Part
from kraftcore.protocol.records.access_control_entry_record import AccessControlEntryRecord
from kraftcore.protocol.records.remove_access_control_entry_record import RemoveAccessControlEntryRecord


class Acl(NamedTuple):
    """An access control entry. The numbers are Kafka's (ResourceType, PatternType, AclOperation, AclPermissionType).

    Attributes:
        resource_type: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user.
        resource_name: the name, or the beginning of names, or ``*``.
        pattern_type: 3 literal, 4 prefixed.
        principal: ``User:alice``, ``User:*``.
        host: an address, or ``*``.
        operation: the operation that it allows or denies.
        permission_type: 2 deny, 3 allow.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class Acls(Part[Uuid, Acl]):
    """Entries by their id.

    Attributes:
        on_change: called with an entry before and after a change, None where there was or is none, so that an index of
            the entries can be kept up to date. There can be one listener.
    """

    __slots__ = ("on_change",)

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.on_change: Callable[[Acl | None, Acl | None], None] | None = None

    def put(self, key: Uuid, value: Acl) -> None:
        """See `Part`."""
        self._tell(key, value)
        super().put(key, value)

    def drop(self, key: Uuid) -> None:
        """See `Part`."""
        self._tell(key, None)
        super().drop(key)

    def restore_item(self, key: Uuid, value: Acl | None) -> None:
        """See `Part`."""
        self._tell(key, value)
        super().restore_item(key, value)

    def _tell(self, key: Uuid, value: Acl | None) -> None:
        if self.on_change is not None:
            self.on_change(self._items.get(key), value)

    def on_entry(self, record: AccessControlEntryRecord) -> None:
        """Add an entry."""
        self.put(
            record.id,
            Acl(
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.principal,
                record.host,
                record.operation,
                record.permission_type,
            ),
        )

    def on_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        """Remove an entry.

        Raises:
            MetadataRecordError: there is no such entry.
        """
        if record.id not in self._items:
            raise MetadataRecordError(record, f"there is no access control entry with the id {record.id}")
        self.drop(record.id)


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    """The record that adds an entry."""
    return AccessControlEntryRecord(id=acl_id, **acl._asdict())


def acl_records(acls: dict[Uuid, Acl]) -> Iterator[AccessControlEntryRecord]:
    """The records of the entries in a snapshot."""
    for acl_id, acl in acls.items():
        yield acl_record(acl_id, acl)
