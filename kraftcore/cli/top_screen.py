"""The lines that ``kraftcore top`` draws of a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kraftcore.cli.drawing import BOLD, DIM, PLAIN, Line, Style, sparkline
from kraftcore.cli.output import printable

WIDTH = 80
_BROKERS, _TROUBLED, _GROUPS, _EVENTS = 8, 10, 5, 3  # rows at most; of events: at least
_SAMPLES = 60
_LEVELS: Mapping[str, Style] = {"good": {"fg": "green"}, "warn": {"fg": "yellow"}, "bad": {"fg": "red", "bold": True}}
_ROLES: Mapping[str, Style] = {"leader": {"fg": "green"}, "voter": {"fg": "cyan"}}
Json = Mapping[str, Any]


def lines(frame: Json, width: int, height: int, now_ms: int) -> list[Line]:
    """A picture as lines.

    Args:
        frame: see ``Picture.frame``.
        width: columns; longer lines are cut.
        height: lines at most; events fill what is left.
        now_ms: milliseconds since 1970.
    """
    at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    found: list[Line] = [(f"kraftcore top: cluster {frame['clusterId'] or 'unknown'}, {at}", BOLD)]
    for each in frame["sentences"].values():
        found += [(text, _LEVELS[each["level"]]) for text in _wrapped(each["text"], width)]
        found += [(text, PLAIN) for text in _wrapped(each["help"], width, "  ")]
    parts = (
        _replicas(frame, now_ms),
        _commits(frame),
        _counts(frame, width),
        _brokers(frame),
        _troubled(frame, now_ms),
        _groups(frame),
    )
    for part in parts:
        if part:
            found += [("", PLAIN), *part]
    del found[max(height - _EVENTS - 2, 1) :]
    room = height - len(found) - 2
    events = list(frame["events"].values())[-room:] if room > 0 else []
    if events:
        found += [("", PLAIN), ("events", DIM)]
        found += [(_event(each), _LEVELS["bad"] if each["isBad"] else PLAIN) for each in events]
    return [(printable(text)[:width], style) for text, style in found]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ") if text else []


def _replicas(frame: Json, now_ms: int) -> list[Line]:
    answers = {each["id"]: each for each in frame["controllers"].values()}
    shown: list[Line] = [
        (f"{'node':>6}  {'role':<9} {'log end':>12} {'lag':>9}  {'last fetch':<11}  answers here", DIM)
    ]
    quorum = frame["quorum"]
    for each in sorted(frame["replicas"].values(), key=lambda one: (one["role"] == "observer", one["id"])):
        answer = answers.pop(each["id"], None)
        heard = ago(each["lastFetchMs"], now_ms)
        says = "not asked" if answer is None else f"{answer['says']} ({answer['address']})"
        text = f"{each['id']:>6}  {each['role']:<9} {each['logEndOffset']:>12} {each['lag']:>9}  {heard:<11}  {says}"
        shown.append((text, _LEVELS["bad"] if each["isSilent"] else _ROLES.get(each["role"], PLAIN)))
    for answer in answers.values():
        node = answer["id"] if answer["id"] >= 0 else "?"
        text = f"{node:>6}  {'-':<9} {'-':>12} {'-':>9}  {'-':<11}  {answer['says']} ({answer['address']})"
        shown.append((text, PLAIN))
    if frame["replicas"]:
        when = "" if quorum["leaderId"] >= 0 else f", as told {ago(quorum['toldMs'], now_ms)}"
        text = f"epoch {quorum['epoch']}, high watermark {quorum['highWatermark']}, log end {quorum['logEndOffset']}"
        shown.append((text + when, PLAIN))
    return shown if len(shown) > 1 else []


def ago(then_ms: int, now_ms: int) -> str:
    """How long ago a moment was: ``never``, ``now``, ``12 s ago``, ``5 min ago``."""
    seconds = (now_ms - then_ms) // 1000
    if not then_ms:
        return "never"
    return "now" if seconds < 2 else f"{seconds} s ago" if seconds < 600 else f"{seconds // 60} min ago"


def _commits(frame: Json) -> list[Line]:
    commits, log = frame["commits"], frame["log"]
    if not commits or not log:
        return []
    text = f"{commits['rate']:,.1f} records/s committed"
    if commits["p50"] >= 0:
        text += f", seen committed after p50 {commits['p50']:.1f} ms, p99 {commits['p99']:.1f} ms"
    rates = [each["rate"] for each in frame["samples"].values()][-_SAMPLES:]
    kept = f"log from {log['startOffset']} to {log['endOffset']}"
    if log["takenIn"] < log["highWatermark"]:
        kept += f", of which {log['takenIn']} are shown here"
    return [(text, PLAIN), (sparkline(rates), {"fg": "green"}), (kept, PLAIN)]


def _counts(frame: Json, width: int) -> list[Line]:
    counts = frame["counts"]
    if not counts["brokers"] and not counts["topics"]:
        return []
    text = (
        f"brokers {counts['brokers']} ({counts['fencedBrokers']} fenced), topics {counts['topics']:,}, "
        f"partitions {counts['partitions']:,}: {counts['offline']:,} offline, {counts['underMinIsr']:,} under min ISR, "
        f"{counts['underReplicated']:,} under-replicated, {counts['withElr']:,} with ELR, "
        f"{counts['notLedByPreferred']:,} not led by the preferred, {counts['reassigning']:,} moving"
    )
    is_bad = counts["offline"] or counts["underMinIsr"]
    return [(each, _LEVELS["bad"] if is_bad else PLAIN) for each in _wrapped(text, width)]


def _brokers(frame: Json) -> list[Line]:
    found = sorted(frame["brokers"].values(), key=lambda one: (one["state"] == "active", one["id"]))
    if not found:
        return []
    shown: list[Line] = [(f"{'broker':>6}  {'state':<22} {'leads':>9}  listeners", DIM)]
    for each in found[:_BROKERS]:
        text = f"{each['id']:>6}  {each['state']:<22} {each['leads']:>9}  {each['listeners']}"
        shown.append((text, PLAIN if each["state"] == "active" else _LEVELS["warn"]))
    return [*shown, *_left(len(found) - _BROKERS, "brokers")]


def _troubled(frame: Json, now_ms: int) -> list[Line]:
    found = list(frame["troubled"].values())
    if not found:
        return []
    shown: list[Line] = [
        (f"{'partition':<20} {'leader':>6}  {'ISR of replicas':<16} {'ELR':<6} {'trouble':<16} since", DIM)
    ]
    for each in found[:_TROUBLED]:
        isr = f"{_ids(each['isr'])} of {_ids(each['replicas'])}"
        leader = "none" if each["leader"] < 0 else each["leader"]
        text = f"{_short(each['name'], 20):<20} {leader:>6}  {isr:<16} {_ids(each['elr']):<6} {each['kinds'][0]:<16} "
        shown.append((text + ago(each["sinceMs"], now_ms), _LEVELS["bad" if each["leader"] < 0 else "warn"]))
        if each["helps"]:
            shown.append((f"  {each['helps']}", PLAIN))
    total = max(frame["counts"][kind] for kind in ("offline", "underMinIsr", "underReplicated"))
    return [*shown, *_left(total - _TROUBLED, "partitions, at least,")]


def _groups(frame: Json) -> list[Line]:
    found = sorted(frame["groups"].values(), key=lambda one: (-one["lag"], one["name"]))
    if not found:
        return []
    shown: list[Line] = [(f"{'group':<24} {'state':<20} {'lag':>12}  furthest behind in", DIM)]
    for each in found[:_GROUPS]:
        lag = "?" if each["lag"] < 0 else f"{each['lag']:,}"
        text = f"{_short(each['name'], 24):<24} {each['state']:<20} {lag:>12}  {each['problem'] or each['worst']}"
        shown.append((text, PLAIN))
    return [*shown, *_left(len(found) - _GROUPS, "groups")]


def _left(count: int, what: str) -> Iterable[Line]:
    return [(f"  and {count:,} {what} more", DIM)] if count > 0 else []


def _event(each: Json) -> str:
    at = datetime.fromtimestamp(each["atMs"] / 1000, UTC).strftime("%H:%M:%S") if each["atMs"] > 0 else "-"
    return f"{at:>8}  {each['offset']:>8}  {each['text']}"


def _ids(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


def _short(name: str, width: int) -> str:
    name = printable(name)  # which may make it longer
    return name if len(name) <= width else f"{name[: width - 12]}…{name[-11:]}"
