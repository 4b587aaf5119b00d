"""Listeners, voters and servers as Kafka writes them: ``NAME://host:port``, ``id@host:port``, ``host:port``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kraftcore.config.errors import ConfigError
from kraftcore.ports.transport import Address
from kraftcore.raft.quorum import Endpoint, VoterSet, static_voters

DEFAULT_LISTENER = "CONTROLLER"
ALL_INTERFACES = "0.0.0.0"  # noqa: S104
WILDCARDS = frozenset({"", ALL_INTERFACES, "::"})  # hosts to listen on, not to connect to

_LISTENER = re.compile(r"(?:([^:/\s]+)://)?(?:\[([0-9a-fA-F:.%\w-]*)\]|([^\[\]:/@\s]*)):([0-9]{1,5})", re.ASCII)
_VOTER_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


def parse_endpoint(value: Endpoint | str) -> Endpoint:
    """Read a listener: ``CONTROLLER://127.0.0.1:9093``, ``://`` and name may be missing.

    Args:
        value: the text, IPv6 addresses in brackets; an ``Endpoint`` is taken as it is.

    Returns:
        The name in upper case, ``CONTROLLER`` if there is none. An empty host stays empty.

    Raises:
        ConfigError: the text has another form, or a port above 65535.
    """
    if isinstance(value, Endpoint):
        return value
    name, host, port = _split(value, "NAME://host:port, for example CONTROLLER://127.0.0.1:9093")
    return Endpoint((name or DEFAULT_LISTENER).upper(), host, port)


def parse_address(value: Address | str) -> Address:
    """Read a server, ``host:port``.

    Raises:
        ConfigError: the text has another form; a listener's name in front is refused, too.
    """
    if isinstance(value, Address):
        return value
    form = "host:port, for example controller-1:9093 or [::1]:9093"
    name, host, port = _split(value, form)
    if name is not None or not host or not port:
        raise ConfigError(f"{value!r} is no server: write {form}")
    return Address(host, port)


def parse_voters(value: VoterSet | str | Iterable[str], listener: str = DEFAULT_LISTENER) -> VoterSet:
    """Read static voters: ``1@host:port,2@host:port``, as one text or one text each.

    Args:
        value: the texts; a ``VoterSet`` is taken as it is.
        listener: name of the listener that these addresses belong to.

    Raises:
        ConfigError: a text has another form, an id is negative, or an id or address is given twice.
    """
    if isinstance(value, VoterSet):
        return value
    entries: dict[int, Endpoint] = {}
    for text in split_list(value) if isinstance(value, str) else value:
        number, at, place = text.strip().partition("@")
        if not at or not _VOTER_ID.fullmatch(number) or int(number) >= 1 << 31:
            raise ConfigError(f"{text!r} is no voter: write id@host:port, for example 1@controller-1:9093")
        if int(number) in entries:
            raise ConfigError(f"two voters have the id {int(number)}")
        address = parse_address(place)
        entries[int(number)] = Endpoint(listener, address.host, address.port)
        same = next(
            (other for other in entries if other != int(number) and entries[other] == entries[int(number)]), None
        )
        if same is not None:
            raise ConfigError(
                f"the voters {same} and {int(number)} have the same address, {address}: give each its own"
            )
    return static_voters(entries.items())


def split_list(text: str) -> list[str]:
    """Split a list at its commas, as Kafka does: blanks around entries go; an empty text is an empty list."""
    return [entry.strip() for entry in text.split(",")] if text.strip() else []


def _split(text: str, form: str) -> tuple[str | None, str, int]:
    found = _LISTENER.fullmatch(text.strip())
    if found is None or int(found[4]) > 65535:
        raise ConfigError(f"{text!r} is no address: write {form}; ports go up to 65535")
    return found[1], found[2] if found[2] is not None else found[3], int(found[4])
