"""Shows a run to people: text in fixed columns, and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftcore.core.wire.struct import Struct
    from kraftcore.simulation.host import Host

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
FAULT_COLOUR = "#c0392b"
CHANGE_COLOUR = "#3b4cc0"
CUT_COLOUR = "#f6dcd8"
CHANGES = frozenset({"transfer", "upgrade", "add", "remove", "stopping", "restored"})  # nobody's fault


@dataclass(slots=True)
class Span:
    """A stretch of a host's life."""

    start: int
    host: int
    role: str
    epoch: int


class Timeline:
    """Remembers a run.

    Args:
        messages: also what hosts send to one another.
        about: of what `told` is told, only this, and of all else only what goes wrong; None: everything.

    Attributes:
        lines: (microseconds, host number, kind, text), the latest `LINES_KEPT`.
        spans: changes of role.
        marks: (microseconds, host number or 0, kind).
        samples: per host (microseconds, high watermark).
    """

    def __init__(self, *, messages: bool = True, about: str | None = None) -> None:
        self.lines: list[tuple[int, int, str, str]] = []
        self.spans: list[Span] = []
        self.marks: list[tuple[int, int, str]] = []
        self.samples: dict[int, list[tuple[int, int]]] = {}
        self._messages = messages
        self._about = about

    def note(self, now: int, host: Host | None, kind: str, text: str) -> None:
        """Something happened."""
        number = 0 if host is None else host.number
        if self._about is None or host is None:
            self._line(now, number, kind, text)
        if kind not in ("note", "snapshot", "cleaned"):
            self.marks.append((now, number, kind))
        if host is not None and kind == "down":
            self.spans.append(Span(now, number, "down", -1))

    def told(self, now: int, number: int, about: str, text: str) -> None:
        """Something happened to one of many things that a run has, on the peer with this number; 0: on none."""
        if self._about in (None, about):
            self._line(now, number, about, text)

    def message(self, now: int, source: Host, target: int, message: Struct) -> None:
        """A message was sent."""
        if self._messages and self._about is None:
            self._line(now, source.number, f"-> {target}", summary(message))

    def role(self, now: int, host: Host) -> None:
        """A replica changed its role or epoch."""
        replica = host.replica
        self.spans.append(Span(now, host.number, replica.role.value, replica.epoch))
        if self._about is None or replica.role.value == "leader":
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
        lines = self.lines[-count:]
        width = max((len(kind) for _, _, kind, _ in lines), default=0)
        return "\n".join(
            f"{now / 1e6:12.6f}  {number or '-':>3}  {kind:<{max(width, 12)}} {text}"
            for now, number, kind, text in lines
        )

    def svg(self, seed: int, hosts: int, end: int) -> str:
        """The picture: per host a band of roles with epochs, marks, and the high watermark; cut links shaded."""
        left, width, row, head = 60, 1100, 70, 46
        scale = width / max(end, 1)
        bottom = head + hosts * row
        parts = [_rect(0, 0, left + width + 60, bottom + 66, "#fbfbfa")]
        parts.append(_text(10, 20, f"seed {seed}: roles, epochs and high watermark over {end / 1e6:.0f} s", 13))
        parts += self._background(left, scale, head, bottom, end)
        for number in range(1, hosts + 1):
            y = head + (number - 1) * row
            parts.append(_text(10, y + 17, f"host {number}", 12))
            parts += self._roles(number, left, scale, y, end)
            parts += self._watermark(number, left, scale, y + 62, 28)
        for now, number, kind in self.marks:
            if number:
                x, y = left + now * scale, head + (number - 1) * row + 28
                colour = CHANGE_COLOUR if kind in CHANGES else FAULT_COLOUR
                title = f"{kind} at {now / 1e6:.3f} s"
                parts.append(
                    f'<path d="M{x:.1f},{y} l4,7 h-8 z" fill="{colour}" opacity="0.85"><title>{title}</title></path>'
                )
        parts += _legend(left, bottom + 32)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 60} {bottom + 66}" '
            f'font-family="sans-serif">{"".join(parts)}</svg>\n'
        )

    def _background(self, left: int, scale: float, top: int, bottom: int, end: int) -> list[str]:
        parts = []
        begun: int | None = None
        for now, number, kind in [*self.marks, (end, 0, "healed")]:
            if number == 0 and kind == "partition" and begun is None:
                begun = now
            elif number == 0 and kind != "partition" and begun is not None:
                x, title = left + begun * scale, f"links cut from {begun / 1e6:.3f} s to {now / 1e6:.3f} s"
                parts.append(_rect(x, top - 6, (now - begun) * scale, bottom - top + 4, CUT_COLOUR, title))
                begun = None
        seconds = end / 1e6
        step = next((step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if seconds / step <= 16), 3600)
        for second in range(0, int(seconds) + 1, step):
            x = left + second * 1e6 * scale
            parts.append(_line(x, top - 6, bottom, "#d5d5d0"))
            parts.append(_text(x - 6, bottom + 12, f"{second} s", 10, "#666"))
        for now, _, kind in self.marks:
            if kind == "healed":  # what is left from here on must make progress
                parts.append(_line(left + now * scale, top - 12, bottom, "#222"))
                parts.append(_text(left + now * scale + 3, top - 9, "all faults end", 10))
        return parts

    def _roles(self, number: int, left: int, scale: float, y: int, end: int) -> list[str]:
        parts = []
        mine = [span for span in self.spans if span.host == number]
        for span, following in zip(mine, [*mine[1:], None], strict=True):
            x = left + span.start * scale
            stop = left + (following.start if following is not None else end) * scale
            epoch = "" if span.epoch < 0 else f", epoch {span.epoch}"
            title = f"{span.role}{epoch}, from {span.start / 1e6:.3f} s"
            parts.append(_rect(x, y, max(stop - x, 0.3), 26, ROLE_COLOURS[span.role], title))
            if span.role == "leader" and stop - x > 7 * len(str(span.epoch)):
                parts.append(_text(x + 2, y + 17, str(span.epoch), 10, "#ffffff"))
        return parts

    def _watermark(self, number: int, left: int, scale: float, base: int, height: int) -> list[str]:
        top = max((value for samples in self.samples.values() for _, value in samples), default=1) or 1
        pieces: list[list[str]] = [[]]
        y = float(base)
        downs = [span.start for span in self.spans if span.host == number and span.role == "down"]
        before = 0
        for now, value in self.samples.get(number, ()):
            if any(before < down <= now for down in downs):
                pieces.append([])
            x = left + now * scale
            if pieces[-1]:
                pieces[-1].append(f"{x:.1f},{y:.1f}")  # it stays, then rises
            y = base - value / top * height
            pieces[-1].append(f"{x:.1f},{y:.1f}")
            before = now
        parts = [
            f'<polyline points="{" ".join(piece)}" fill="none" stroke="#444" stroke-width="1"/>' for piece in pieces
        ]
        if self.samples.get(number):
            now, value = self.samples[number][-1]
            parts.append(_text(left + now * scale + 8, y + 4, str(value), 10, "#444"))  # clear of a mark below it
        return parts


def _legend(left: int, y: int) -> list[str]:
    parts = []
    x = float(left)
    for role, colour in ROLE_COLOURS.items():
        parts += [_rect(x, y, 12, 12, colour), _text(x + 16, y + 10, role, 11)]
        x += 96
    for colour, name in ((FAULT_COLOUR, "fault"), (CHANGE_COLOUR, "asked for")):
        parts += [f'<path d="M{x + 6:.1f},{y + 2} l4,7 h-8 z" fill="{colour}"/>', _text(x + 16, y + 10, name, 11)]
        x += 86
    parts += [_rect(x, y, 12, 12, CUT_COLOUR), _text(x + 16, y + 10, "links cut", 11)]
    x += 86
    parts.append(f'<path d="M{x:.1f},{y + 9} h6 v-5 h8" fill="none" stroke="#444" stroke-width="1"/>')
    parts.append(_text(x + 18, y + 10, "high watermark", 11))
    return parts


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    inner = f"<title>{title}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" stroke="#999" '
        f'stroke-width="0.2">{inner}</rect>'
    )


def _line(x: float, top: float, bottom: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" stroke-width="0.8"/>'


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
