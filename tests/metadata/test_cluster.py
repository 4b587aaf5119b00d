"""What a registration says of a broker's directories."""

from __future__ import annotations

import pytest

from kraftcore.core.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from kraftcore.metadata import Broker

ONE, OTHER = Uuid(b"1" * 16), Uuid(b"2" * 16)


def broker(*directories: Uuid, cordoned: tuple[Uuid, ...] | None = None) -> Broker:
    return Broker(id=1, epoch=1, incarnation_id=ONE, directories=directories, cordoned_directories=cordoned)


@pytest.mark.parametrize(
    ("directory", "with_one", "without"),
    [
        (ONE, True, True),
        (OTHER, False, True),
        (UNASSIGNED_DIRECTORY, True, True),
        (MIGRATING_DIRECTORY, True, True),
        (LOST_DIRECTORY, False, False),
        (Uuid(bytes(15) + b"\x09"), False, True),
    ],
    ids=str,
)
def test_online_directories(directory: Uuid, with_one: bool, without: bool) -> None:
    """Kafka 4.3.1, DirectoryId.isOnline."""
    assert broker(ONE).has_online_directory(directory) == with_one
    assert broker().has_online_directory(directory) == without


def test_cordoned_directories() -> None:
    assert broker(ONE, OTHER).has_uncordoned_directory
    assert broker(ONE, OTHER, cordoned=(ONE,)).has_uncordoned_directory
    assert not broker(ONE, OTHER, cordoned=(OTHER, ONE)).has_uncordoned_directory
    assert broker(cordoned=()).has_uncordoned_directory


def test_active() -> None:
    one = Broker(id=1, epoch=1, incarnation_id=ONE, is_fenced=False)
    assert one.is_active
    assert not broker(ONE).is_active
    assert not Broker(id=1, epoch=1, incarnation_id=ONE, is_fenced=False, is_shutting_down=True).is_active
