"""Which topic names are legal (Kafka's ``Topic.validate``)."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def what_is_wrong(name: str) -> str | None:
    """Why a topic cannot have this name, in Kafka's words; None if it can."""
    if len(name) <= MAX_LENGTH and _LEGAL.fullmatch(name) and name not in (".", ".."):
        return None
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name.encode("utf-16-le", "surrogatepass")) // 2 > MAX_LENGTH:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    else:
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return f"Topic name is invalid: {why}"
