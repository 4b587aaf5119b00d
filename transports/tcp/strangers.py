"""Recognises peers of another protocol by their first bytes: which protocol it is, and what to do about it."""

from __future__ import annotations

TLS = b"\x16\x03"  # a record of a handshake: RFC 8446, section 5.1
TLS_ALERT = b"\x15\x03"
# The beginning of an alert, sent to peers without TLS, which could not read a whole one: Kafka's clients would take its
# first four bytes for the length of a frame, and ask for 336 MB of memory.
NO_TLS = TLS_ALERT
_HEADER_BYTES = 8  # header of the shortest request
_ALIKE = "set tls (listener.security.protocol.map, ssl.*) alike on both sides"
_ELSEWHERE = "no node listens at this address: correct it"
_VERBS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI ")
_STRANGERS = (
    (_VERBS, "it speaks HTTP, this side Kafka's protocol: correct whoever asks here for pages, metrics or health"),
    (b"HTTP", f"it speaks HTTP: {_ELSEWHERE}"),
    (b"SSH-", f"it speaks SSH: {_ELSEWHERE}"),
    ((b"PROX", b"\r\n\r\n"), "it speaks the PROXY protocol: have the load balancer pass connections on as they are"),
    (TLS, f"it speaks TLS, this side does not: {_ALIKE}"),
    (TLS_ALERT, f"it answers with a TLS alert: it expects TLS, which this side does not use: {_ALIKE}"),
)


def stranger_to_frames(first: bytes) -> str | None:
    """The other side's protocol, if its first bytes show another than frames without TLS; else None.

    Args:
        first: four bytes or more, or all that came.
    """
    return next((text for starts, text in _STRANGERS if first.startswith(starts)), None)


def stranger_to_tls(first: bytes) -> str | None:
    """The other side's protocol, if its first bytes show another than TLS; else None."""
    size = int.from_bytes(first[:4])
    if _HEADER_BYTES <= size < 1 << 24:  # nobody else begins like this; longer frames would begin as text does
        return f"it speaks without TLS, which this side wants: {_ALIKE}"
    return stranger_to_frames(first)
