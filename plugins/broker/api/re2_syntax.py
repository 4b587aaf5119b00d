"""Whether a text is a regular expression of RE2/J, by which Kafka's brokers select transactional ids (KIP-1152).

Nothing is matched here. Source: com.google.re2j 1.8, Parser, with the flags of ``Pattern.compile``.
"""

from __future__ import annotations

import re
from typing import Final

_REPEATED_MAX: Final = 1000
_DIGITS_MAX: Final = 4  # digits of the largest count; leading zeros are refused
_RUNE_MAX: Final = 0x10FFFF
_REPEAT: Final = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}", re.ASCII)
_NAMED: Final = re.compile(r"\(\?P?<([0-9A-Za-z_]+)>", re.ASCII)
_FLAGS: Final = re.compile(r"\(\?[imsU]*(?:-[imsU]+)?([:)])")
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<itself>[^0-9A-Za-z])|(?P<named>[afnrtv])|(?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2})"
    r"|x(?P<hex>[0-9A-Fa-f]{2})|x\{(?P<long>[0-9A-Fa-f]+)\})",
    re.DOTALL,
)
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_UNICODE: Final = re.compile(r"\\[pP](?:\{\^?([^}]*)\}|([^{]))", re.DOTALL)
_PERL: Final = re.compile(r"\\[dDsSwW]")
_POSIX: Final = re.compile(
    r"\[:\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]"
)
_PLACE: Final = re.compile(r"\\[AbBz]")
_NAMES: Final = """
    Any Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid C
    Canadian_Aboriginal Carian Cc Cf Cham Cherokee Co Common Coptic Cs Cuneiform Cypriot Cyrillic Deseret Devanagari
    Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew
    Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada
    Katakana Kayah_Li Kharoshthi Khmer L Lao Latin Lepcha Limbu Linear_B Lisu Ll Lm Lo Lt Lu Lycian Lydian M
    Malayalam Mandaic Mc Me Meetei_Mayek Mn Mongolian Myanmar N Nd New_Tai_Lue Nko Nl No Ogham Ol_Chiki Old_Italic
    Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya P Pc Pd Pe Pf Phags_Pa Phoenician Pi Po Ps Rejang Runic S
    Samaritan Saurashtra Sc Shavian Sinhala Sk Sm So Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham
    Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi Z Zl Zp Zs
"""
GROUPS: Final = frozenset(_NAMES.split())
"""Names of groups of characters, categories and scripts of Unicode, as ``\\p`` takes them."""


class _BadPatternError(Exception):
    pass


def is_re2(pattern: str) -> bool:
    """Whether RE2/J accepts the pattern."""
    try:
        _Parser(pattern).parse()
    except _BadPatternError:
        return False
    return True


class _Parser:
    """Parses a pattern once, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._last_end = text.rfind(":]")  # end of the last named class
        self._names: set[str] = set()
        # For the pattern and each open group: whether there is a last part that a repetition can follow.
        self._open = [False]

    def parse(self) -> None:
        """Parse the pattern; raise _BadPatternError if RE2/J refuses it."""
        was_repeated = False
        while self._at < len(self._text):
            was_repeated = self._part(self._text[self._at], was_repeated)
        if len(self._open) > 1:
            raise _BadPatternError

    def _part(self, first: str, was_repeated: bool) -> bool:
        """Skip the next part; return whether it repeats the part before it."""
        if first in "*+?":
            self._at += 1
            self._repeat(was_repeated)
            return True
        if first == "{" and (found := _REPEAT.match(self._text, self._at)):
            self._at = found.end()
            _check_times(found)
            self._repeat(was_repeated)
            return True
        if first == "(":
            self._begin_group()
        elif first == ")":
            if len(self._open) == 1:
                raise _BadPatternError
            self._at += 1
            self._open.pop()
            self._add()
        elif first == "|":
            self._at += 1
            self._open[-1] = False
        elif first == "[":
            self._class()
            self._add()
        elif first == "\\":
            self._escape()
        else:
            self._at += 1
            self._add()
            return first == "{"  # RE2/J takes it for a repetition, which no other may follow
        return False

    def _add(self) -> None:
        self._open[-1] = True

    def _repeat(self, was_repeated: bool) -> None:
        if self._text.startswith("?", self._at):
            self._at += 1
        if was_repeated or not self._open[-1]:
            raise _BadPatternError

    def _begin_group(self) -> None:
        text, at = self._text, self._at
        if not text.startswith("(?", at):
            self._at += 1
        elif found := _NAMED.match(text, at):
            if found[1] in self._names:
                raise _BadPatternError
            self._names.add(found[1])
            self._at = found.end()
        elif found := _FLAGS.match(text, at):
            self._at = found.end()
            if found[1] == ")":
                return
        else:
            raise _BadPatternError
        self._open.append(False)

    def _escape(self) -> None:
        text, at = self._text, self._at
        if text.startswith("\\Q", at):
            end = text.find("\\E", at + 2)
            if (len(text) if end < 0 else end) > at + 2:
                self._add()
            self._at = len(text) if end < 0 else end + 2
            return
        if found := _PLACE.match(text, at):
            self._at = found.end()
        elif not self._group():
            self._character()
        self._add()

    def _group(self) -> bool:
        """Skip a Unicode group of characters; return whether there was one."""
        found = _PERL.match(self._text, self._at)
        if found is None and self._text.startswith(("\\p", "\\P"), self._at):
            found = _UNICODE.match(self._text, self._at)
            if found is None or (found[2] or found[1]) not in GROUPS:
                raise _BadPatternError
        if found is not None:
            self._at = found.end()
        return found is not None

    def _character(self) -> int:
        """Skip a character, literal or escaped, and return its code point."""
        text, at = self._text, self._at
        if not text.startswith("\\", at):
            self._at += 1
            return ord(text[at])
        found = _ESCAPE.match(text, at)
        if found is None:
            raise _BadPatternError
        self._at = found.end()
        kind, value = found.lastgroup, found[found.lastgroup or 0]
        if kind == "itself":
            return ord(value)
        if kind == "named":
            return _CONTROLS[value]
        number = int(value, 8 if kind == "octal" else 16)
        if number > _RUNE_MAX:
            raise _BadPatternError
        return number

    def _class(self) -> None:
        text = self._text
        self._at += 2 if text.startswith("[^", self._at) else 1
        first = self._at
        while self._at == first or not text.startswith("]", self._at):
            if self._at >= len(text):
                raise _BadPatternError
            if text.startswith("[:", self._at) and self._at < self._last_end:
                found = _POSIX.match(text, self._at)
                if found is None:
                    raise _BadPatternError
                self._at = found.end()
            elif not self._group():
                self._range()
        self._at += 1

    def _range(self) -> None:
        text = self._text
        low = self._character()
        if text.startswith("-", self._at) and not text.startswith("-]", self._at):
            self._at += 1
            if self._at >= len(text) or self._character() < low:
                raise _BadPatternError


def _check_times(found: re.Match[str]) -> None:
    if max(len(found[1]), len(found[3] or "")) > _DIGITS_MAX:
        raise _BadPatternError
    least = int(found[1])
    most = least if found[3] is None else int(found[3])
    if not least <= most <= _REPEATED_MAX:
        raise _BadPatternError
