"""Whether a value is what a field's annotation says, and what that is in words.

Annotations are for type checkers and editors; a program that runs without them deserves the same answer. The forms
that occur are plain classes, ``None``, unions, ``Literal``, ``tuple[X, ...]``, ``tuple[X, Y]``, ``Iterable[X]`` and
``Mapping[K, V]``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
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
    if form is int or form is float:
        return isinstance(value, (int, form)) and not isinstance(value, bool)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)
    if getattr(origin, "_is_protocol", False):
        return True  # whoever needs such an object looks for its methods
    if not isinstance(value, origin):
        return False
    if origin is Mapping:
        return all(fits(key, inner[0]) and fits(each, inner[1]) for key, each in value.items())
    if origin is tuple and inner[1:] != (...,):
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(fits, value, inner))
    if origin in (Iterable, tuple):
        return is_list(value) and (not isinstance(value, tuple) or all(fits(each, inner[0]) for each in value))
    return True


def is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether it is to be read one by one. A text is made of texts, and bytes of numbers: neither is meant so."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | memoryview)


def listed(value: object, form: Any) -> object:
    """A value; of what may be read only once, where a list is meant, a tuple."""
    lists: list[Any] = []
    others: list[Any] = []
    for each in get_args(form) if get_origin(form) is UnionType else (form,):
        (lists if get_origin(each) in (Iterable, tuple) else others).append(each)
    return tuple(value) if lists and is_list(value) and not any(fits(value, each) for each in others) else value


@cache
def _forms(owner: type, later: tuple[str, ...]) -> dict[str, Any]:
    return get_type_hints(owner, localns=dict.fromkeys(later, object))


def check_fields(made: DataclassInstance, *later: str) -> tuple[str, str] | None:
    """For ``__post_init__`` of a dataclass that programs make: the first field that is not as annotated.

    Lists become tuples where the annotation has a tuple.

    Args:
        made: the object.
        later: names in annotations that its module imports for type checkers only: what has those is not checked.

    Returns:
        The field, and a sentence about it; None: all are as they should be.
    """
    forms = _forms(type(made), later)
    for each in fields(made):
        form = forms[each.name]
        given = getattr(made, each.name)
        value = listed(given, form)
        if not fits(value, form):
            said = shown(value, form) if each.repr else with_article(type(value))
            name = f"{type(made).__name__}.{each.name}"
            return each.name, f"{name} is {said}: it must be {in_words(form)}{suggestion_of(value, form)}"
        if value is not given:
            object.__setattr__(made, each.name, value)
    return None


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
    if origin is tuple and inner[1:] != (...,):
        return [f"a tuple of {', '.join(map(in_words, inner))}"]
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


def suggestion(name: str, known: Iterable[str]) -> str:
    """A question to put behind an unknown name: the known one that looks most like it, or nothing."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def with_article(kind: type) -> str:
    """A class, for a sentence about one of its objects: "an Endpoint"."""
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def shown(value: object, form: Any) -> str:
    """A value that does not fit, for a message; where passwords may be in it only what it is."""
    origin = get_origin(form) or form
    leaves = get_args(form) if origin in (Union, UnionType) else (form,)
    tells = any(get_origin(each) is Mapping or is_dataclass(each) for each in leaves)
    return with_article(type(value)) if tells else repr(value)
