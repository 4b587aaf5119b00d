"""A run for people: text in fixed columns, and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftcore.core.struct import Struct
    from kraftcore.transports.simulation.host import Host

LINES_KEPT = 4000
ROLE_COLOURS = {
    "unattached": "#c9ced6",
    "follower": "#7fb2e5",
    "prospective": "#f3d27a",
    "candidate": "#f0a04b",
    "leader": "#3f9b5f",
    "resigned": "#b58ac9",
    "down": "#ffffff",
}


@dataclass(slots=True)
class Span:
    """A stretch of a host's life."""

    start: int
    host: int
    role: str
    epoch: int


class Timeline:
    """Remembers a run.

    Attributes:
        lines: (microseconds, host number, kind, text), the latest `LINES_KEPT`.
        spans: changes of role.
        marks: (microseconds, host number or 0, kind).
        samples: per host (microseconds, high watermark).
    """

    def __init__(self, *, messages: bool = True) -> None:
        self.lines: list[tuple[int, int, str, str]] = []
        self.spans: list[Span] = []
        self.marks: list[tuple[int, int, str]] = []
        self.samples: dict[int, list[tuple[int, int]]] = {}
        self._messages = messages

    def note(self, now: int, host: Host | None, kind: str, text: str) -> None:
        """Something happened."""
        number = 0 if host is None else host.number
        self._line(now, number, kind, text)
        if kind not in ("note", "snapshot", "cleaned"):
            self.marks.append((now, number, kind))
        if host is not None and kind == "down":
            self.spans.append(Span(now, number, "down", -1))

    def message(self, now: int, source: Host, target: int, message: Struct) -> None:
        """A message was sent."""
        if self._messages:
            self._line(now, source.number, f"-> {target}", summary(message))

    def role(self, now: int, host: Host) -> None:
        """A replica changed its role or epoch."""
        replica = host.replica
        self.spans.append(Span(now, host.number, replica.role.value, replica.epoch))
        self._line(now, host.number, "role", f"{replica.role.value} in epoch {replica.epoch}")

    def sample(self, now: int, hosts: list[Host]) -> None:
        """Take down the high watermarks."""
        for host in hosts:
            if host.is_up:
                self.samples.setdefault(host.number, []).append((now, host.high_watermark))

    def _line(self, now: int, number: int, kind: str, text: str) -> None:
        self.lines.append((now, number, kind, text))
        if len(self.lines) > 2 * LINES_KEPT:
            del self.lines[:LINES_KEPT]

    def text(self, count: int = 60) -> str:
        """The last lines, in columns: time, host, kind, text."""
        return "\n".join(
            f"{now / 1e6:12.6f}  {number or '-':>3}  {kind:<12} {text}"
            for now, number, kind, text in self.lines[-count:]
        )

    def svg(self, seed: int, hosts: int, end: int) -> str:
        """The picture: a band of roles with epochs and a line of the high watermark per host, faults as marks."""
        left, width, row = 60, 1100, 70
        scale = width / max(end, 1)
        top = max((value for samples in self.samples.values() for _, value in samples), default=1) or 1
        parts = [_rect(0, 0, left + width + 20, hosts * row + 90, "#fbfbfa")]
        parts.append(_text(left, 20, f"seed {seed}: roles, epochs and high watermark over {end / 1e6:.0f} s", 13))
        for number in range(1, hosts + 1):
            y = 34 + (number - 1) * row
            parts.append(_text(10, y + 18, f"host {number}", 12))
            mine = [span for span in self.spans if span.host == number]
            for span, following in zip(mine, [*mine[1:], None], strict=True):
                x = left + span.start * scale
                stop = left + (following.start if following is not None else end) * scale
                title = f"{span.role}, epoch {span.epoch}, from {span.start / 1e6:.3f} s"
                parts.append(_rect(x, y, max(stop - x, 0.3), 26, ROLE_COLOURS[span.role], title))
                if span.role == "leader" and stop - x > 14:
                    parts.append(_text(x + 2, y + 17, str(span.epoch), 9, "#ffffff"))
            line = " ".join(
                f"{left + now * scale:.1f},{y + 60 - value / top * 30:.1f}"
                for now, value in self.samples.get(number, ())
            )
            parts.append(f'<polyline points="{line}" fill="none" stroke="#444" stroke-width="1"/>')
        for now, number, kind in self.marks:
            x = left + now * scale
            y = 30 if number == 0 else 34 + (number - 1) * row
            parts.append(
                f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + (hosts * row if number == 0 else 30)}" '
                f'stroke="#c0392b" stroke-width="0.6" opacity="0.7"><title>{kind} at {now / 1e6:.3f} s</title></line>'
            )
        x = float(left)
        for role, colour in ROLE_COLOURS.items():
            y = 44 + hosts * row
            parts += [_rect(x, y, 12, 12, colour), _text(x + 16, y + 10, role, 11)]
            x += 100
        height = hosts * row + 90
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {height}" '
            f'font-family="sans-serif">{"".join(parts)}</svg>\n'
        )


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    inner = f"<title>{title}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" stroke="#999" '
        f'stroke-width="0.2">{inner}</rect>'
    )


def _text(x: float, y: float, text: str, size: int, colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{text}</text>'


_SHOWN = (
    "error_code",
    "leader_id",
    "leader_epoch",
    "replica_id",
    "replica_epoch",
    "last_offset",
    "last_offset_epoch",
    "pre_vote",
    "vote_granted",
    "current_leader_epoch",
    "fetch_offset",
    "last_fetched_epoch",
    "high_watermark",
    "diverging_epoch",
    "snapshot_id",
    "position",
    "size",
    "voter_id",
)


def summary(message: Struct) -> str:
    """A message in a line: its name, and the fields that decide anything."""
    fields: list[str] = []
    _collect(message, fields)
    return f"{type(message).__name__} {' '.join(fields)}"


def _collect(struct: Any, fields: list[str]) -> None:
    for field in type(struct).__layout__.fields:
        value = getattr(struct, field.name)
        if field.name == "records" and value is not None:
            fields.append(f"records={len(value)}B")
        elif hasattr(type(value), "__layout__"):
            _collect(value, fields)
        elif isinstance(value, list):
            if field.name in ("topics", "partitions", "responses"):
                for item in value:
                    _collect(item, fields)
        elif field.name in _SHOWN and value not in (field.default, None):
            fields.append(f"{field.name}={value}")
