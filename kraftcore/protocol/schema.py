"""How a message is written down: the Python class is the schema.

    class VoteRequest(Request, api_key=52, versions=(0, 2), flexible_from=0):
        cluster_id: str | None = string(nullable="0+", default=None)
        voter_id: int = int32("1+", default=-1, ignorable=True)
        topics: list[TopicData] = array(TopicData)

Each field function takes the versions that have the field (``"0+"``, ``"1-3"``, ``"4"``) and what else Kafka says about
it. The type checker sees a keyword constructor and typed attributes; at run time the class gets ``__slots__``
and a layout that the compiled codec uses. Structs are nested where they are used, or stand beside the message when
several of its fields share one.

Versions: ``versions`` are those Kafka 4.3.1 speaks, and what a node offers. ``removed_versions`` are those that 4.x
dropped (KIP-896) and ZooKeeper-era nodes sent; they decode and encode all the same. A message without ``versions`` was
removed altogether. Whether a version may be used on a connection is the caller's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypedDict, TypeVar, Unpack, cast, dataclass_transform, overload

from kraftcore.core.uuid import Uuid
from kraftcore.core.wire.struct import Field, lay_out
from kraftcore.core.wire.struct import Struct as CoreStruct
from kraftcore.namespace import listing

__all__ = ["Message", "MetadataRecord", "Request", "Response", "Schema", "Struct"]
__dir__ = listing(__all__)

T = TypeVar("T", bound="Struct")
E = TypeVar("E")
Span = tuple[int, int | None]
Records = bytes | bytearray | memoryview
"""What a records field takes; a decoded one is a read-only memoryview of the frame."""


class Schema(NamedTuple):
    """What is known about a message class besides its fields.

    Attributes:
        api_key: number of the api, or of the record type for a metadata record; None for other data.
        versions: first and last version that Kafka 4.3.1 speaks, or None.
        removed_versions: versions it no longer speaks, or None.
        flexible_from: first flexible version, or None.
        is_response: True for responses.
        listeners: where Kafka 4.3.1 serves the api: ``broker``, ``controller``.
        latest_unstable: the last version is offered only with unstable versions enabled.
        header_versions: header version for the message versions that break the rule.
        first_header: header version of an inflexible message, or None if the class is neither request nor response.
    """

    api_key: int | None = None
    versions: tuple[int, int] | None = None
    removed_versions: tuple[int, int] | None = None
    flexible_from: int | None = None
    is_response: bool = False
    listeners: tuple[str, ...] = ()
    latest_unstable: bool = False
    header_versions: Mapping[int, int] | int | None = None
    first_header: int | None = None

    @property
    def decodable_versions(self) -> tuple[tuple[int, int], ...]:
        """Version ranges the codec knows, oldest first."""
        return tuple(span for span in (self.removed_versions, self.versions) if span is not None)

    @property
    def stable_versions(self) -> tuple[int, int] | None:
        """The range a node offers in ApiVersions; None when it is empty."""
        if self.versions is None or not self.latest_unstable:
            return self.versions
        low, high = self.versions
        return (low, high - 1) if low < high else None

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from

    def header_version(self, version: int) -> int:
        """Version of the request or response header; -1 for what travels without one."""
        if self.first_header is None:
            return -1
        if isinstance(self.header_versions, int):
            return self.header_versions
        if self.header_versions is not None and version in self.header_versions:
            return self.header_versions[version]
        return self.first_header + self.is_flexible(version)


@cache
def parse_versions(text: str) -> Span:
    """Read ``"3+"``, ``"0-2"``, ``"4"`` or ``"none"``."""
    if text == "none":
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), None
    low, dash, high = text.partition("-")
    return int(low), int(high if dash else low)


def within(span: Span | None, version: int) -> bool:
    """Whether a version is one of these; None: there are none."""
    return span is not None and span[0] <= version and (span[1] is None or version <= span[1])


class StructMeta(type):
    """Turns field specifications in a class body into slots and a layout."""

    __layout__: Any

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructMeta:
        """Create the class; ``options`` go to ``__init_subclass__``."""
        fields = tuple(value.bind(key) for key, value in namespace.items() if isinstance(value, Field))
        inherited = any(base.__layout__.fields for base in bases if isinstance(base, StructMeta))
        if fields and inherited:
            raise TypeError(f"{name}: fields cannot be added to a class that has its own")
        for field in fields:
            del namespace[field.name]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace.setdefault("__codecs__", {})
        cls = super().__new__(mcs, name, bases, namespace, **options)
        if not inherited:
            lay_out(cast(type[CoreStruct], cls), fields)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)


@dataclass_transform(kw_only_default=True, eq_default=True)
class Struct(CoreStruct, metaclass=StructMeta):
    """Base of structs nested in messages."""

    __layout__: ClassVar[Any]


class Message(Struct):
    """Base of everything with versions of its own. ``schema`` says which."""

    schema: ClassVar[Schema] = Schema()
    _first_header: ClassVar[int | None] = None
    _is_response: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        versions: tuple[int, int] | None = None,
        removed_versions: tuple[int, int] | None = None,
        flexible_from: int | None = None,
        api_key: int | None = None,
        listeners: tuple[str, ...] = (),
        latest_unstable: bool = False,
        header_versions: Mapping[int, int] | int | None = None,
    ) -> None:
        super().__init_subclass__()
        cls.schema = Schema(
            api_key=api_key,
            versions=versions,
            removed_versions=removed_versions,
            flexible_from=flexible_from,
            is_response=cls._is_response,
            listeners=listeners,
            latest_unstable=latest_unstable,
            header_versions=header_versions,
            first_header=cls._first_header,
        )


class Request(Message):
    """Base of requests."""

    _first_header = 1


class Response(Message):
    """Base of responses."""

    _first_header = 0
    _is_response = True


class MetadataRecord(Message):
    """Base of the records in the metadata log; ``api_key`` is the record type."""


class Data(Message):
    """Base of messages that travel or rest inside others: headers, control records, principals, group metadata."""


def _field(type_name: str, versions: str, options: dict[str, Any]) -> Any:
    for name in ("nullable", "tagged", "flexible"):
        if options.get(name) is not None:
            options[name] = parse_versions(options[name])
    if "kafka" in options:
        options["kafka_name"] = options.pop("kafka")
    return Field(type_name, versions=parse_versions(versions), **options)


class _Options(TypedDict, total=False):
    """What every field function takes.

    tagged: versions in which the field is tagged; with tag. tag: its tag. ignorable: may be dropped silently where the
    version lacks the field. kafka: Kafka's name where it is not the attribute's in CamelCase.
    """

    tagged: str
    tag: int
    ignorable: bool
    kafka: str


class _FlexibleOptions(_Options, total=False):
    flexible: str


def boolean(versions: str = "0+", *, default: bool = False, **options: Unpack[_Options]) -> bool:
    """A bool, one byte."""
    return cast(bool, _field("bool", versions, {"default": default, **options}))


def int8(versions: str = "0+", *, default: int = 0, **options: Unpack[_Options]) -> int:
    """An int, -2**7 to 2**7 - 1."""
    return cast(int, _field("int8", versions, {"default": default, **options}))


def int16(versions: str = "0+", *, default: int = 0, **options: Unpack[_Options]) -> int:
    """An int, -2**15 to 2**15 - 1."""
    return cast(int, _field("int16", versions, {"default": default, **options}))


def uint16(versions: str = "0+", *, default: int = 0, **options: Unpack[_Options]) -> int:
    """An int, 0 to 2**16 - 1."""
    return cast(int, _field("uint16", versions, {"default": default, **options}))


def int32(versions: str = "0+", *, default: int = 0, **options: Unpack[_Options]) -> int:
    """An int, -2**31 to 2**31 - 1."""
    return cast(int, _field("int32", versions, {"default": default, **options}))


def uint32(versions: str = "0+", *, default: int = 0, **options: Unpack[_Options]) -> int:
    """An int, 0 to 2**32 - 1."""
    return cast(int, _field("uint32", versions, {"default": default, **options}))


def int64(versions: str = "0+", *, default: int = 0, **options: Unpack[_Options]) -> int:
    """An int, -2**63 to 2**63 - 1."""
    return cast(int, _field("int64", versions, {"default": default, **options}))


def float64(versions: str = "0+", *, default: float = 0.0, **options: Unpack[_Options]) -> float:
    """A float, IEEE 754 double."""
    return cast(float, _field("float64", versions, {"default": default, **options}))


def uuid(versions: str = "0+", **options: Unpack[_Options]) -> Uuid:
    """A Uuid, 16 bytes; the zero uuid when left out."""
    return cast(Uuid, _field("uuid", versions, {**options}))


@overload
def string(versions: str = "0+", *, default: str = "", **options: Unpack[_FlexibleOptions]) -> str: ...


@overload
def string(
    versions: str = "0+", *, nullable: str, default: str | None = "", **options: Unpack[_FlexibleOptions]
) -> str | None: ...


def string(
    versions: str = "0+", *, nullable: str | None = None, default: str | None = "", **options: Any
) -> str | None:
    """A str of at most 32,767 UTF-8 bytes."""
    return cast(str, _field("string", versions, {"nullable": nullable, "default": default, **options}))


@overload
def octets(versions: str = "0+", *, default: bytes = b"", **options: Unpack[_Options]) -> bytes: ...


@overload
def octets(
    versions: str = "0+", *, nullable: str, default: bytes | None = b"", **options: Unpack[_Options]
) -> bytes | None: ...


def octets(
    versions: str = "0+", *, nullable: str | None = None, default: bytes | None = b"", **options: Any
) -> bytes | None:
    """Bytes; Kafka's type ``bytes``. Any bytes-like object is taken."""
    return cast(bytes, _field("bytes", versions, {"nullable": nullable, "default": default, **options}))


@overload
def record_batches(versions: str = "0+", *, default: Records = b"", **options: Unpack[_Options]) -> Records: ...


@overload
def record_batches(
    versions: str = "0+", *, nullable: str, default: Records | None = b"", **options: Unpack[_Options]
) -> Records | None: ...


def record_batches(
    versions: str = "0+", *, nullable: str | None = None, default: Records | None = b"", **options: Any
) -> Records | None:
    """Record batches, not looked into. Decoded ones are a read-only memoryview of the frame."""
    return cast(bytes, _field("records", versions, {"nullable": nullable, "default": default, **options}))


@overload
def struct(struct_class: type[T], versions: str = "0+", **options: Unpack[_Options]) -> T: ...


@overload
def struct(
    struct_class: type[T], versions: str = "0+", *, nullable: str, default: None, **options: Unpack[_Options]
) -> T | None: ...


def struct(struct_class: type[T], versions: str = "0+", **options: Any) -> T | None:
    """One nested struct; a struct of defaults when left out, unless the default is None."""
    return cast(T, _field("struct", versions, {"struct_class": struct_class, **options}))


@overload
def array(element: Callable[..., E], versions: str = "0+", **options: Unpack[_Options]) -> list[E]: ...


@overload
def array(
    element: Callable[..., E], versions: str = "0+", *, nullable: str, default: None = ..., **options: Unpack[_Options]
) -> list[E] | None: ...


def array(element: Callable[..., E], versions: str = "0+", **options: Any) -> list[E] | None:
    """A list of structs (give the class) or of plain values (give the field function, as in ``array(int32)``)."""
    options["is_array"] = True
    if isinstance(element, type):
        options["struct_class"] = element
        return cast(list[E], _field("struct", versions, options))
    return cast(list[E], _field(_TYPE_NAMES[element], versions, options))


_TYPE_NAMES: dict[Callable[..., Any], str] = {
    boolean: "bool",
    int8: "int8",
    int16: "int16",
    uint16: "uint16",
    int32: "int32",
    uint32: "uint32",
    int64: "int64",
    float64: "float64",
    string: "string",
    octets: "bytes",
    uuid: "uuid",
}
