"""Java's properties format, read as by ``java.util.Properties`` and written as by Kafka.

Reading follows ``Properties.load(InputStream)``: bytes are ISO-8859-1, ``\\uXXXX`` stands for one UTF-16 unit, ``\\``
at the end of a line joins it with the next one, ``=``, ``:`` or white space ends a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraftcore.errors import CorruptDataError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {char: "\\" + char for char in "\\=:#!"}


def parse_properties(data: bytes, *, path: str | None = None) -> dict[str, str]:
    """Read a properties file.

    Args:
        data: its content; line ends may be ``\\n``, ``\\r`` or both.
        path: for the error text.

    Returns:
        Values by key; of a repeated key the last value.

    Raises:
        CorruptDataError: a ``\\u`` escape without four hex digits, or half of a surrogate pair. All else is accepted.
    """
    return {key: value for _, key, value in read_properties(data, path=path)}


def read_properties(data: bytes, *, path: str | None = None) -> Iterator[tuple[int, str, str]]:
    """Read a properties file entry by entry, with line numbers.

    Args:
        data: as in ``parse_properties``.
        path: for the error text.

    Yields:
        Number of the line an entry begins in, from 1, then key and value.

    Raises:
        CorruptDataError: as ``parse_properties`` does.
    """
    for number, line in _logical_lines(data.decode("latin-1")):
        key_end = _find_key_end(line)
        rest = line[key_end:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        try:
            yield number, _unescape(line[:key_end]), _unescape(rest)
        except ValueError:
            raise CorruptDataError(f"broken \\u escape in the line {line!r}", path=path) from None


def format_properties(values: Mapping[str, str], comments: tuple[str, ...] = ()) -> bytes:
    """Write a properties file as Kafka does: comment lines first, no space around ``=``.

    Characters outside ASCII become ``\\u`` escapes. Kafka writes them as UTF-8 but reads them as ISO-8859-1, so it
    reads only escapes back correctly.

    Args:
        values: written in this order.
        comments: one line each, without the ``#``.
    """
    lines = [f"#{comment}" for comment in comments]
    for key, value in values.items():
        blanks = len(value) - len(value.lstrip(" "))
        text = "\\ " * min(blanks, 1) + _escape(value[min(blanks, 1) :])
        lines.append(_escape(key).replace(" ", "\\ ") + "=" + text)
    return "".join(line + "\n" for line in lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    natural = enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1)
    for number, line in natural:
        start = line.lstrip(_BLANK)
        if not start or start[0] in "#!":
            continue
        joined = [start]
        while (len(joined[-1]) - len(joined[-1].rstrip("\\"))) % 2:
            joined[-1] = joined[-1][:-1]
            joined.append(next(natural, (0, ""))[1].lstrip(_BLANK))
        yield number, "".join(joined)


def _find_key_end(line: str) -> int:
    escaped = False
    for position, char in enumerate(line):
        if not escaped and (char in "=:" or char in _BLANK):
            return position
        escaped = char == "\\" and not escaped
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                digits = text[position : position + 4]
                if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError(digits)
                char = chr(int(digits, 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        elif char == "\\":
            break  # a lone backslash at the very end is dropped
        parts.append(char)
    # Two escapes of UTF-16 units may make one character.
    return "".join(parts).encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _escape(text: str) -> str:
    return "".join(_escape_char(char) for char in text)


def _escape_char(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join("\\u" + units[at : at + 4] for at in range(0, len(units), 4))
