"""What a public module shows of itself: the names in its ``__all__``, perhaps loaded when they are first asked for.

A module that imports what it has lists it::

    __all__ = ["Cluster", "in_thread"]
    __dir__ = listing(__all__)

One that loads it later has the same names twice, as type checkers read no table; a test compares the two::

    if TYPE_CHECKING:
        from kraftcore.testing.cluster import Cluster as Cluster
    else:
        __all__ = names_of(_HOMES)
        __dir__ = listing(__all__)
        __getattr__ = loader(__name__, _HOMES)

Type checkers see no ``__getattr__``: they would take every name for one that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def listing(names: Iterable[str]) -> Callable[[], list[str]]:
    """A module's ``__dir__`` (PEP 562): its public names alone, for ``dir``, for editors and for the tab key."""
    shown = sorted(names)
    return lambda: list(shown)


def names_of(homes: Mapping[str, Iterable[str]], *more: str) -> list[str]:
    """Every name of a table for ``loader``, and more, sorted: a module's ``__all__``."""
    return sorted([*more, *(name for names in homes.values() for name in names)])


def loader(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` (PEP 562), which imports what has a name when it is first asked for.

    Args:
        package: the module's name.
        homes: a module to the names that it defines; a package also to its modules.

    Raises:
        AttributeError: (the function) no module has the name.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return import_module(f"{home}.{name}")
        found = import_module(home)
        return getattr(found, name) if hasattr(found, name) else import_module(f"{home}.{name}")

    return load
