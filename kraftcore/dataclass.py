"""The standard library's ``dataclass``, made for processes that start often.

That one writes and compiles up to seven methods for each class, which takes 0.2 to 0.5 ms, and a server has a hundred
such classes. This one compiles ``__init__`` alone; the other methods are closures that do the same. Whatever servers
and ``kraftcore storage format`` import uses it. ``InitVar`` and ``order`` are not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import MISSING, FrozenInstanceError, fields
    from dataclasses import dataclass as standard
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(cls=None, /, *, eq=True, frozen=False, slots=False, kw_only=False):
        """As ``dataclasses.dataclass``."""

        def decorate(cls):
            return _complete(standard(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls))

        def _complete(made):
            own = made.__dict__
            has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
            _add(made, "__init__", _make_init(made, is_frozen=frozen, has_slots=slots))
            _add(made, "__repr__", _make_repr(tuple(each.name for each in fields(made) if each.repr)))
            if eq:
                _add(made, "__eq__", _make_eq(_getter([each.name for each in fields(made) if each.compare])))
                if not has_hash:
                    made.__hash__ = _make_hash(made) if frozen else None
            if frozen:
                made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
                if slots:  # pickled and copied without being set
                    _add(made, "__getstate__", _get_state)
                    _add(made, "__setstate__", _set_state)
            return made

        return decorate if cls is None else decorate(cls)

    def _add(made, name, method):
        if name not in made.__dict__:
            setattr(made, name, method)

    def _make_init(made, *, is_frozen, has_slots):
        """Compiled from text, for it runs wherever such objects are made."""
        known = {"MISSING": MISSING, "set_field": object.__setattr__}
        parameters, keywords, body = ["self"], [], []
        for each in fields(made):
            name, default, value = each.name, f"default_{each.name}", each.name
            known[default] = each.default if each.default_factory is MISSING else each.default_factory
            if each.default_factory is not MISSING:
                value = f"{default}() if {name} is MISSING else {name}" if each.init else f"{default}()"
                parameter = f"{name}=MISSING"
            else:
                parameter = name if each.default is MISSING else f"{name}={default}"
                if not each.init:
                    if each.default is MISSING or not has_slots:
                        continue  # set by __post_init__, or an attribute of the class
                    value = default
            if each.init:
                (keywords if each.kw_only else parameters).append(parameter)
            body.append(f"set_field(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
        if hasattr(made, "__post_init__"):
            body.append("self.__post_init__()")
        if keywords:
            parameters += ["*", *keywords]
        lines = "\n ".join(body or ["pass"])
        exec(f"def __init__({', '.join(parameters)}):\n {lines}", known)  # noqa: S102  (names of fields alone)
        init = known["__init__"]
        init.__module__, init.__qualname__ = made.__module__, f"{made.__qualname__}.__init__"
        init.__annotations__ = {each.name: each.type for each in fields(made) if each.init} | {"return": None}
        return init

    def _getter(names):
        """The values of these fields as a tuple."""
        if len(names) > 1:
            return attrgetter(*names)
        if not names:
            return lambda instance: ()
        (name,) = names
        return lambda instance: (getattr(instance, name),)

    def _make_repr(names):
        @recursive_repr()
        def __repr__(self):
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{type(self).__qualname__}({values})"

        return __repr__

    def _make_eq(values):
        def __eq__(self, other):
            if other.__class__ is self.__class__:
                return values(self) == values(other)
            return NotImplemented

        return __eq__

    def _make_hash(made):
        hashed = [each.name for each in fields(made) if (each.compare if each.hash is None else each.hash)]
        values = _getter(hashed)

        def __hash__(self):
            return hash(values(self))

        return __hash__

    def _is_field(self, name):
        return "__dataclass_fields__" in type(self).__dict__ or name in self.__dataclass_fields__

    def _refuse_to_set(self, name, value):
        if _is_field(self, name):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def _refuse_to_delete(self, name):
        if _is_field(self, name):
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    def _get_state(self):
        return [getattr(self, each.name) for each in fields(self)]

    def _set_state(self, state):
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)
