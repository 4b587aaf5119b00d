"""The subject of a certificate as Java prints it: a distinguished name in RFC 2253's form.

Kafka's ``ssl.principal.mapping.rules`` and access control lists are written for that text, so it has to be the same to
the letter: ``X500Principal.getName()``. Python's ``ssl`` gives other names of attributes, and no types of their values,
so the subject is read from the certificate itself, which OpenSSL has verified.
"""

from __future__ import annotations

from typing import Final

# Keywords of RFC 2253, section 2.3, by object identifier; other attributes are printed with their encoded value.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# Text encodings by type of the value.
_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_VERSION, _NAME_AT = 0xA0, 4
_LONG_LENGTH: Final = 0x80


def subject_of(certificate: bytes) -> str:
    """The distinguished name of a certificate's subject, last part first: ``CN=a,OU=b``.

    Args:
        certificate: X.509 in DER.

    Raises:
        ValueError: the bytes are not an X.509 certificate.
    """
    try:
        body = _parts(_parts(certificate)[0][1])[0][1]  # the part that is signed
        fields = _parts(body)
        if fields[0][0] == _VERSION:
            del fields[0]
        names = _parts(fields[_NAME_AT][1])
        return ",".join("+".join(_attribute(value) for _, value in _parts(name)) for _, name in reversed(names))
    except IndexError:
        raise ValueError("the certificate lacks a part") from None


def _attribute(encoded: bytes) -> str:
    (_, identifier), (kind, value) = _parts(encoded)
    number = _dotted(identifier)
    keyword, encoding = _KEYWORDS.get(number), _ENCODINGS.get(kind)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{_encoded(kind, value).hex()}"
    return f"{keyword}={_escaped(value.decode(encoding))}"


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element in a row (X.690, definite lengths)."""
    found = []
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("the certificate ends within an element")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & _LONG_LENGTH:
            width = length & ~_LONG_LENGTH
            length = int.from_bytes(data[at : at + width])
            at += width
        if at + length > len(data):
            raise ValueError("the certificate ends within an element")
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _encoded(kind: int, value: bytes) -> bytes:
    size = len(value)
    if size < _LONG_LENGTH:
        return bytes([kind, size]) + value
    width = (size.bit_length() + 7) // 8
    return bytes([kind, _LONG_LENGTH | width]) + size.to_bytes(width) + value


def _dotted(identifier: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(value: str) -> str:
    body = value.strip(" ")
    lead = len(value) - len(value.lstrip(" ")) if body else len(value)
    trail = len(value) - lead - len(body)
    text = "".join(f"\\{letter}" if letter in ',=+"\\<>;#' else letter for letter in body)
    return "\\ " * lead + text + "\\ " * trail
