"""Declarations of settings: property, range and text of each, and how it is read and checked.

A class of settings is a dataclass. Each field is declared once, by ``number``, ``flag``, ``text``, ``several`` or
``composed``; the class's docstring, the names that files and variables may use, validation and the table in
docs/configuration.md are made from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property, wraps
from inspect import getattr_static
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.properties import Properties, read_flag, read_integer
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import LocalError
from kraftcore.forms import fits, in_words, listed, shown, suggestion_of, with_article
from kraftcore.ports.transport import Address
from kraftcore.raft.quorum import VoterSet

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_SETTING = "kraftcore.setting"  # in a field's metadata
_Given = TypeVar("_Given")
_Kept = TypeVar("_Kept")
_Class = TypeVar("_Class")
_UNITS = {
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
    "_ms": ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1000, "s")),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with a text for its value.

    Attributes:
        key: property name: Kafka's, or ``kraftcore.*`` where Kafka has no property.
        text: its meaning, in whole sentences.
        is_composed: whether its value is composed of several properties, not read from ``key`` alone.
        choices: allowed texts, besides None; empty: any text.
    """

    key: str
    text: str
    is_composed: bool = False
    choices: tuple[str, ...] = ()

    @property
    def limits(self) -> str:
        """The allowed values, for documentation; empty where the text says them."""
        return ", ".join(self.choices)

    def check(self, value: object) -> None:
        """Check a given value beyond its type, which `Given` checks.

        Raises:
            ConfigError: the value is not allowed; the reason is put behind the setting's name.
        """

    def read(self, properties: Properties) -> Any:
        """Read its value from a file or from variables that have its property.

        Raises:
            ConfigError: the text is not a value of this setting.
        """
        return self.read_as(properties, self.key)

    def read_as(self, properties: Properties, key: str) -> Any:
        """Read its value from another property."""
        return properties.get(key)


@dataclass(frozen=True, slots=True)
class Number(Setting):
    """A setting that is a whole number.

    Attributes:
        low: least value.
        high: greatest value.
        low_in_file: least value in a file, where Kafka's differs; values from there up to ``low`` count as ``low``.
            None: ``low``.
    """

    low: int = 0
    high: int = INT32_MAX
    low_in_file: int | None = None

    @property
    def limits(self) -> str:
        """The range, ends included."""
        top = {INT32_MAX: "2^31-1", INT64_MAX: "2^63-1", 2**62: "2^62", 2**40: "2^40"}.get(self.high, f"{self.high}")
        low = {INT64_MIN: "-2^63"}.get(self.low, f"{self.low}")
        return f"{low} to {top}"

    def check(self, value: object) -> None:
        """See ``Setting.check``."""
        if isinstance(value, int) and not self.low <= value <= self.high:
            raise ConfigError(f"is {value}: it must be between {self.low} and {self.high}")

    def read(self, properties: Properties) -> int:
        """See ``Setting.read``."""
        low = self.low if self.low_in_file is None else self.low_in_file
        return read_integer(properties, self.key, low, self.high)

    def read_as(self, properties: Properties, key: str) -> int:
        """See ``Setting.read_as``; another property has the range ``low`` to ``high``."""
        return read_integer(properties, key, self.low, self.high)


class Flag(Setting):
    """A setting that is true or false."""

    __slots__ = ()

    @property
    def limits(self) -> str:
        """The two values."""
        return "true, false"

    def read_as(self, properties: Properties, key: str) -> bool:
        """See ``Setting.read_as``."""
        return read_flag(properties, key)


class Several(Setting):
    """A setting that is a list of texts, separated by commas."""

    __slots__ = ()

    def read_as(self, properties: Properties, key: str) -> tuple[str, ...]:
        """See ``Setting.read_as``."""
        return tuple(properties.list(key))


class TopicId(Setting):
    """A setting that is the id of a topic."""

    __slots__ = ()

    def check(self, value: object) -> None:
        """See ``Setting.check``."""
        if value == ZERO_UUID:
            raise ConfigError(f"is {value!r}: it must be an id of a topic")

    def read_as(self, properties: Properties, key: str) -> Uuid:
        """See ``Setting.read_as``."""
        try:
            return Uuid.from_string(properties.get(key) or "")
        except LocalError as error:
            raise properties.error(f"{key}: {error}", key) from None


class Converted(Generic[_Given, _Kept]):
    """A field that may be given in other forms than it is kept in; the class's ``__post_init__`` converts.

    Args:
        default: in the form that is kept.
        setting: its declaration, if it has a property.
    """

    def __init__(self, default: _Kept, setting: Setting | None = None) -> None:
        self._default = default
        self.setting = setting

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> _Kept: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _Kept: ...
    def __get__(self, instance: object | None, owner: type) -> _Kept:
        if instance is None:
            return self._default
        kept: _Kept = instance.__dict__[self._name]
        return kept

    def __set__(self, instance: object, value: _Given) -> None:
        instance.__dict__[self._name] = value


def declare(setting: Setting) -> Mapping[str, Setting]:
    """Make the ``metadata`` of a field that ``number`` and its like do not fit."""
    return {_SETTING: setting}


def number(
    default: int, key: str, text: str, *, low: int = 0, high: int = INT32_MAX, low_in_file: int | None = None
) -> Any:
    """A field with a whole number; see ``Number``."""
    return field(default=default, metadata=declare(Number(key, text, low=low, high=high, low_in_file=low_in_file)))


def flag(default: bool, key: str, text: str, *, is_composed: bool = False) -> Any:
    """A field that is true or false."""
    return field(default=default, metadata=declare(Flag(key, text, is_composed)))


def text(default: Any, key: str, text: str, *, choices: tuple[str, ...] = ()) -> Any:
    """A field with a text, or None."""
    return field(default=default, metadata=declare(Setting(key, text, choices=choices)))


def several(key: str, text: str) -> Converted[Iterable[str], tuple[str, ...]]:
    """A field with a tuple of texts, none by default; given as any list of them."""
    return Converted((), Several(key, text))


def composed(default: Any, key: str, text: str) -> Any:
    """A field whose value is composed of several properties, ``key`` the first of them."""
    return field(default=default, metadata=declare(Setting(key, text, True)))


def composed_mapping(key: str, text: str, *, is_secret: bool = False) -> Any:
    """A composed field with a dict, empty by default; a secret one is not printed."""
    return field(default_factory=dict, hash=False, repr=not is_secret, metadata=declare(Setting(key, text, True)))


def declared(owner: type) -> dict[str, Setting]:
    """The settings of a class by field, in order; fields without a property are left out."""
    found: dict[str, Setting] = {}
    for each in fields(owner):
        descriptor = getattr_static(owner, each.name, None)
        setting = descriptor.setting if isinstance(descriptor, Converted) else each.metadata.get(_SETTING)
        if setting is not None:
            found[each.name] = setting
    return found


def default_text(each: Field[Any]) -> str | None:
    """A field's default as in a file, large numbers also in larger units; None: it must be given."""
    value = each.default
    if value is MISSING:
        return None if each.default_factory is MISSING else "none"
    if value is None or (not isinstance(value, int | str) and not value):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        for kind, units in _UNITS.items():
            unit = next(((size, name) for size, name in units if value >= size and value % size == 0), None)
            if kind in each.name and unit is not None:
                return f"{value} ({value // unit[0]} {unit[1]})"
    return str(value)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def settings(*, place: str | None = None, later: tuple[str, ...] = ()) -> Callable[[type[_Class]], type[_Class]]:
    """Class decorator: a frozen dataclass whose fields are given by name, and checked.

    Values are checked by the field's annotation, for a `Converted` field the first of the two, and by its declaration
    (``number`` and its like). Type checkers need this decorator, too: with ``dataclass`` mypy would not see the types
    that a `Converted` field without a default accepts.

    Args:
        place: setting of ``NodeConfig`` whose value this class is, for messages; None: this is ``NodeConfig`` itself.
        later: names in annotations that its module imports for type checkers only; ``__post_init__`` checks their
            values.
    """

    def decorate(owner: type[_Class]) -> type[_Class]:
        made: Any = dataclass(frozen=True, kw_only=True, repr=False)(owner)
        given = Given(made, place, later)
        make = made.__init__

        @wraps(make)
        def checked(self: object, *unnamed: object, **values: object) -> None:
            make(self, **given.checked(type(self).__name__, unnamed, values))

        made.__init__ = checked
        made.__repr__ = one_line
        decorated: type[_Class] = made
        return decorated

    return decorate


class Given:
    """Checks the arguments of a class of settings.

    Args:
        owner: the class.
        place: see ``settings``.
        later: see ``settings``.
    """

    def __init__(self, owner: type[DataclassInstance], place: str | None, later: Iterable[str]) -> None:
        self._owner = owner
        self._place = place
        self._later = dict.fromkeys(later, object)
        self._settings = declared(owner)
        self._secrets = {each.name for each in fields(owner) if not each.repr}

    @cached_property
    def forms(self) -> dict[str, Any]:
        """Allowed forms by field; evaluated when the first object is made."""
        hints = get_type_hints(self._owner, localns=self._later)
        return {name: get_args(form)[0] if get_origin(form) is Converted else form for name, form in hints.items()}

    def label(self, name: str) -> str:
        """A field's name for a message, with its property."""
        named = name if self._place is None else f"{self._place}.{name}"
        return f"{named} ({self._settings[name].key})" if name in self._settings else named

    def _meaning(self, name: str) -> str:
        found = self._settings.get(name)
        sentence = "" if found is None else found.text.partition(".")[0]
        return f": {sentence[0].lower()}{sentence[1:]}" if sentence else ""

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse names that are not fields.

        Raises:
            ConfigError: a name is unknown; a similar name is suggested.
        """
        known = [each.name for each in fields(self._owner)]
        for name in names:
            if name not in known:
                own = next((each for each, setting in self._settings.items() if setting.key == name), None)
                close = f"; did you mean {own}?" if own else suggestion(name, known)
                none = "there is no" if self._place is None else f"{self._place} has no"
                raise self._error(f"{none} setting {name}{close}", name)

    def checked(self, kind: str, unnamed: Sequence[object], given: Mapping[str, object]) -> dict[str, object]:
        """Check the arguments that the class is called with, and return them.

        An iterable becomes a tuple, for it may be possible to iterate over it only once.

        Raises:
            ConfigError: a value has no name, a setting is unknown, a required one is missing, or a value does not fit
                the field's annotation, or is out of range.
        """
        required = [each.name for each in fields(self._owner) if default_text(each) is None]
        if unnamed:
            raise self._error(
                f"settings have names: write {kind}({', '.join(f'{each}=...' for each in required)}, ...)"
            )
        self.check_names(given)
        for name in required:
            if name not in given:
                raise self._error(f"{self.label(name)} is missing{self._meaning(name)}", name)
        return {name: self._taken(name, value) for name, value in given.items()}

    def _taken(self, name: str, value: object) -> object:
        form = self.forms[name]
        value = listed(value, form)
        setting = self._settings.get(name)
        try:
            if not fits(value, form):
                said = with_article(type(value)) if name in self._secrets else shown(value, form)
                raise ConfigError(f"is {said}: it must be {in_words(form)}{suggestion_of(value, form)}")
            if setting is not None:
                setting.check(value)
        except ConfigError as error:
            raise self._error(f"{self.label(name)} {error.reason}", name) from None
        return value

    def _error(self, reason: str, name: str | None = None) -> ConfigError:
        about = name if self._place is None else self._place
        return ConfigError(reason, [] if about is None else [about])


def one_line(self: DataclassInstance) -> str:
    """Print the values that differ from the defaults, as arguments, without secrets."""
    shown = []
    for each in fields(self):
        value = getattr(self, each.name)
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if each.repr and value != default:
            shown.append(f"{each.name}={_given_again(value)}")
    return f"{type(self).__name__}({', '.join(shown)})"


def _given_again(value: object) -> str:
    if isinstance(value, VoterSet):
        return repr([f"{voter.key.id}@{Address(*endpoint[1:])}" for voter in value for endpoint in voter.endpoints[:1]])
    if isinstance(value, tuple) and type(value).__repr__ is not tuple.__repr__:  # a listener or an address
        return repr(str(value))
    if type(value) is tuple:
        return f"[{', '.join(map(_given_again, value))}]"
    return repr(value)


class _Documentation:
    """The docstring of a class of settings, made only when it is read, for a server does not need it."""

    def __init__(self, written: str) -> None:
        self._written = written

    def __get__(self, instance: object | None, owner: type) -> str:
        import inspect
        import textwrap

        defaults = {each.name: default_text(each) for each in fields(owner)}
        entries = []
        for name, setting in declared(owner).items():
            default = defaults[name]
            facts = ["must be given" if default is None else "" if default == "none" else f"default {default}"]
            facts.append("" if isinstance(setting, Flag) else setting.limits)
            entry = f"{name}: {'; '.join(filter(None, (f'``{setting.key}``', *facts)))}. {setting.text}"
            entries.append(textwrap.fill(entry, 112, subsequent_indent="    ", break_on_hyphens=False))
        attributes = "Attributes:\n" + textwrap.indent("\n".join(entries), "    ")
        # Python 3.13 strips the indentation of docstrings, earlier ones leave it.
        before, raises, after = inspect.cleandoc(self._written).partition("Raises:")
        return f"{before}{attributes}\n\n{raises}{after}"


def documented(owner: type[_Class]) -> type[_Class]:
    """Class decorator: puts the declarations of the settings into the docstring, as the class's attributes."""
    if owner.__doc__ is not None:  # None under python -OO
        owner.__doc__ = _Documentation(owner.__doc__)  # type: ignore[assignment]
    return owner
