"""Whether a value is what a field's annotation says, and what that is in words.

Annotations are for type checkers and editors; a program that runs without them deserves the same answer. The forms
that occur are plain classes, ``None``, unions, ``Literal``, ``tuple[X, ...]``, ``Iterable[X]`` and ``Mapping[K, V]``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

from kraftcore.config.errors import suggestion

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    str: "a text",
    NoneType: "None",
    os.PathLike: "a path",
}


def fits(value: object, form: Any) -> bool:
    """Whether a value has a form; of what may be iterated over once only, whether it may be."""
    origin, inner = get_origin(form) or form, get_args(form)
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in inner)
    if form is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)
    if getattr(origin, "_is_protocol", False):
        return True  # whoever needs such an object looks for its methods
    if not isinstance(value, origin):
        return False
    if origin is Mapping:
        return all(fits(key, inner[0]) and fits(each, inner[1]) for key, each in value.items())
    if origin in (Iterable, tuple):
        return is_list(value) and (not isinstance(value, tuple) or all(fits(each, inner[0]) for each in value))
    return True


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether it is to be read one by one. A text is made of texts, and bytes of numbers: neither is meant so."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | memoryview)


def in_words(form: Any) -> str:
    """A form as a sentence has it: "a text or None"."""
    *most, last = _alternatives(form)
    return f"{', '.join(most)} or {last}" if most else last


def _alternatives(form: Any) -> list[str]:
    origin, inner = get_origin(form) or form, get_args(form)
    if origin in (Union, UnionType):
        return [word for each in inner for word in _alternatives(each)]
    if origin is Literal:
        return [str(each) for each in inner]
    if origin is Mapping:
        return [f"a dict, with {in_words(inner[1])} by {in_words(inner[0])}"]
    if origin in (Iterable, tuple):
        return [f"a list, with {in_words(inner[0])} for each entry"]
    return [_WORDS.get(origin) or with_article(origin)]


def suggestion_of(value: object, form: Any) -> str:
    """A question to put behind, for a text (or one in a list) that looks like one of a form's choices."""
    choices = [each for each in _leaves(form) if isinstance(each, str)]
    for text in value if isinstance(value, tuple) else (value,):
        if choices and isinstance(text, str) and text not in choices:
            return suggestion(text, choices)
    return ""


def _leaves(form: Any) -> list[Any]:
    inner = get_args(form)
    return [leaf for each in inner for leaf in _leaves(each)] if inner else [form]


def with_article(kind: type) -> str:
    """A class, for a sentence about one of its objects: "an Endpoint"."""
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def shown(value: object, form: Any) -> str:
    """A value that does not fit, for a message; where passwords may be in it only what it is."""
    origin = get_origin(form) or form
    leaves = get_args(form) if origin in (Union, UnionType) else (form,)
    tells = any(get_origin(each) is Mapping or is_dataclass(each) for each in leaves)
    return with_article(type(value)) if tells else repr(value)
