"""Conditions of a read: offset, time, epoch, record type, control record or not, cluster and node.

Files, batches and rows are skipped as early as possible. Spark applies pushed-down filters again, so they may let too
many rows through, but must never leave out a wanted row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.stores import LOG, LogFile, last_timestamp
from kraftcore.plugins.spark.views import RecordType, find_type

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_LIMIT = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK_SKEW_MS = 3_600_000
FILTERS = frozenset({
    "offset_from", "offset_to", "time_from", "time_to", "epoch_from", "epoch_to", "control", "type", "types",
    "clock_skew_ms",
})  # fmt: skip
"""Names of the options that ``Filters.from_options`` reads."""


@dataclass(frozen=True)
class Span:
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int = -_LIMIT
    high: int = _LIMIT

    def cut(self, low: int | None = None, high: int | None = None) -> Span:
        """The part between ``low`` and ``high``, both included; None: no bound."""
        return Span(
            max(self.low, low if low is not None else self.low), min(self.high, high if high is not None else self.high)
        )

    @property
    def is_open(self) -> bool:
        """Whether the span has no bound."""
        return self == Span()


@dataclass(frozen=True)
class Filters:
    """Conditions that rows must meet.

    Attributes:
        offset: offsets in the log, or inside a snapshot.
        time_ms: timestamps of records, in ms since 1970.
        epoch: leader epochs.
        control: True: control records only; False: other records only; None: both.
        types: Kafka's names of record types; None: all.
        clusters, nodes: ids of clusters and nodes; None: all.
        clock_skew_ms: the most by which leaders' clocks differ. A segment is skipped for its time only if its first
            batch is this much later than ``time_ms`` allows, for no index holds a segment's smallest timestamp.
    """

    offset: Span = field(default_factory=Span)
    time_ms: Span = field(default_factory=Span)
    epoch: Span = field(default_factory=Span)
    control: bool | None = None
    types: frozenset[str] | None = None
    clusters: frozenset[str] | None = None
    nodes: frozenset[int] | None = None
    clock_skew_ms: int = CLOCK_SKEW_MS

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Filters:
        """Read the options ``offset_from``, ``offset_to`` (exclusive), ``time_from``, ``time_to`` (exclusive; ISO 8601
        or ms since 1970), ``epoch_from``, ``epoch_to`` (exclusive), ``control``, ``types`` and ``clock_skew_ms``.

        Raises:
            LocalError: a value that cannot be read.
        """
        control = options.get("control")
        if control not in (None, "true", "false"):
            raise LocalError(f"option control={control!r} is neither true nor false")
        return cls(
            _span(options, "offset", _integer),
            _span(options, "time", _time_ms),
            _span(options, "epoch", _integer),
            None if control is None else control == "true",
            _types(options.get("types") or options.get("type")),
            clock_skew_ms=_integer(options.get("clock_skew_ms") or str(CLOCK_SKEW_MS), "clock_skew_ms"),
        )

    def for_type(self, kind: RecordType) -> Filters:
        """These filters, for one record type only."""
        types = frozenset([kind.name])
        control = kind.is_control if self.control is None else self.control
        return replace(self, types=types if self.types is None else self.types & types, control=control)

    def wants(self, file: LogFile) -> bool:
        """Whether a file may hold wanted rows; reads at most the file's time index."""
        if self.clusters is not None and file.identity.cluster_id not in self.clusters:
            return False
        if self.nodes is not None and file.identity.node_id not in self.nodes:
            return False
        if file.source != LOG:
            return self.epoch.low <= file.epoch <= self.epoch.high
        if file.base_offset > self.offset.high:
            return False
        if file.next_offset is not None and file.next_offset <= self.offset.low:
            return False
        if self.time_ms.low > -_LIMIT:
            latest = last_timestamp(file)
            return latest is None or latest >= self.time_ms.low
        return True

    @property
    def codes(self) -> list[int] | None:
        """Codes of the wanted record types; None if all types are wanted or a type has no code."""
        if self.types is None:
            return None
        known = [kind.code for kind in map(find_type, self.types) if kind is not None]
        return known if len(known) == len(self.types) else None

    @property
    def all_batches(self) -> bool:
        """Whether every batch may hold wanted rows."""
        return self.offset.is_open and self.time_ms.is_open and self.epoch.is_open and self.control is None

    def push(self, filters: Iterable[Filter]) -> Filters:
        """These filters and those of Spark's filters that can be used; Spark applies all of its filters itself."""
        result = self
        for one in filters:
            name = ".".join(getattr(one, "attribute", ()))
            kind = type(one).__name__
            value = getattr(one, "value", None)
            if kind == "In":
                result = result._equal(name, frozenset(value or ()))
            elif kind in ("EqualTo", "EqualNullSafe"):
                result = result._equal(name, frozenset([value]))
            elif kind in _BOUNDS:
                result = result._bound(name, kind, value)
        return result

    def _equal(self, name: str, values: frozenset[Any]) -> Filters:
        if None in values or not values:
            return self
        if name == "cluster_id":
            return replace(self, clusters=values if self.clusters is None else self.clusters & values)
        if name == "node_id":
            return replace(self, nodes=values if self.nodes is None else self.nodes & values)
        if name == "type":
            return replace(self, types=values if self.types is None else self.types & values)
        if name == "is_control" and len(values) == 1:
            wanted = next(iter(values))
            return replace(self, control=wanted) if self.control in (None, wanted) else replace(self, types=frozenset())
        if name in ("offset", "epoch", "timestamp"):
            return self._bound(name, "GreaterThanOrEqual", min(values))._bound(name, "LessThanOrEqual", max(values))
        return self

    def _bound(self, name: str, kind: str, value: Any) -> Filters:
        if name == "timestamp":
            if not isinstance(value, datetime):
                return self
            value = int(value.timestamp() * 1000)
            slack = 1  # rows have whole milliseconds, the bound may not
        elif name in ("offset", "epoch") and isinstance(value, int):
            slack = 0
        else:
            return self
        attribute = "time_ms" if name == "timestamp" else name
        span: Span = getattr(self, attribute)
        low, high = _BOUNDS[kind](value)
        span = span.cut(None if low is None else low - slack, None if high is None else high + slack)
        changed: dict[str, Any] = {attribute: span}
        return replace(self, **changed)


_BOUNDS: dict[str, Callable[[int], tuple[int | None, int | None]]] = {
    "GreaterThan": lambda value: (value, None),  # not +1: with the slack of times the bound would be too narrow
    "GreaterThanOrEqual": lambda value: (value, None),
    "LessThan": lambda value: (None, value),
    "LessThanOrEqual": lambda value: (None, value),
}


def _span(options: Mapping[str, str], name: str, read: Callable[[str, str], int]) -> Span:
    low, high = options.get(f"{name}_from"), options.get(f"{name}_to")
    return Span().cut(
        None if low is None else read(low, f"{name}_from"), None if high is None else read(high, f"{name}_to") - 1
    )


def _integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise LocalError(f"option {name}={text!r} is not a whole number") from None


def _time_ms(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise LocalError(f"option {name}={text!r} is neither ISO 8601 nor milliseconds since 1970") from None
    # Rounded up: rows have whole milliseconds, and both bounds begin at the first one not below the time.
    return -((_EPOCH - (at if at.tzinfo else at.replace(tzinfo=UTC))) // timedelta(milliseconds=1))


def _types(text: str | None) -> frozenset[str] | None:
    if not text:
        return None
    names = set()
    for part in text.split(","):
        kind = find_type(part.strip())
        if kind is None:
            raise LocalError(f"option types: there is no record type {part.strip()!r}")
        names.add(kind.name)
    return frozenset(names)
