"""Classes of a package under ``protocol`` by name, without importing their 130 neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def module_of(class_name: str) -> str:
    """The module that holds a message class: ``FetchRequest`` is in ``fetch``, ``KRaftVersionRecord`` in
    ``kraft_version_record``.
    """
    if class_name in ("RequestHeader", "ResponseHeader"):
        return "headers"
    stem = re.sub("(Request|Response)$", "", class_name).replace("KRaft", "Kraft")
    return _WORD.sub("_", stem).lower()


def loader(package: str) -> Callable[[str], Any]:
    """A module ``__getattr__`` (PEP 562) that imports the module of a class when it is first asked for."""

    def load(name: str) -> Any:
        module = f"{package}.{module_of(name)}"
        if not name[:1].isupper() or find_spec(module) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return load
