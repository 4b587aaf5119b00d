"""IP addresses as Java writes them: in that form access control entries of Kafka name hosts."""

from __future__ import annotations

import ipaddress


def host_address(address: str | bytes) -> str:
    """An IP address in the words of ``InetAddress.getHostAddress``.

    Java writes eight groups in hexadecimal, without leading zeros and without ``::``; IPv4 addresses inside IPv6 ones
    are IPv4 addresses.

    Args:
        address: as text, or 4 or 16 bytes.

    Raises:
        ValueError: it is none.
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    packed = found.packed
    groups = ":".join(f"{int.from_bytes(packed[at : at + 2]):x}" for at in range(0, 16, 2))
    return groups if found.scope_id is None else f"{groups}%{found.scope_id}"
