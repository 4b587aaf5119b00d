"""Text for people: one difference, the list of signs, the coverage table."""

import json
from collections import Counter

from conformance.codec import err


def error(code):
    return f"{code} {err(code)}"


def short(x, width=2000):
    text = x if isinstance(x, str) else json.dumps(x, default=str)
    return text if len(text) <= width else text[:width] + " ..."


def trimmed(r):
    """A record without the fields that say nothing."""
    return {k: v for k, v in r.items() if v not in (None, [], {}) and k != "kind"}


def difference(d, script, names=("left", "right")):
    """One difference with everything that belongs to its step."""
    step = script["steps"][d.step] if 0 <= d.step < len(script["steps"]) else {"op": d.op}
    lines = [
        f"step {d.step}: {d.op} ({step.get('note', '')})" + ("   [soft]" if d.soft else ""),
        f"  what       {d.kind} at {'/'.join(map(str, d.path)) or 'top'}",
        f"  {names[0]:<10} {short(d.left)}",
        f"  {names[1]:<10} {short(d.right)}",
    ]
    if "body" in step:
        lines.append(f"  request    {step['api']} v{step['version']} {short(step['body'])}")
    if d.outcomes:
        for name, o in zip(names, d.outcomes, strict=False):
            lines.append(f"  {name} answered: {short(o.answer)}")
            lines += [f"    message {p or 'top'}: {m!r}" for p, m in o.messages.items() if m]
            for n, batch in enumerate(o.records):
                lines += [f"    batch {n}: {r['kind']} {short(trimmed(r), 600)}" for r in batch]
            if not o.records:
                lines.append("    no records")
    return "\n".join(lines)


def signs(found):
    """Each kind of difference once: how often, and where first."""
    count, first = Counter(d.sign for d in found), {}
    for d in found:
        first.setdefault(d.sign, d)
    return [(d, count[s]) for s, d in first.items()]


def coverage(codes, record_types, width=100):
    lines, by_api = ["requests and error codes (steps that met them)"], {}
    for (api, code), n in codes.items():
        by_api.setdefault(api, []).append((code, n))
    for api in sorted(by_api):
        cells = [f"{error(c)} x{n}" for c, n in sorted(by_api[api])]
        line = f"  {api:<30}"
        for c in cells:
            if len(line) + len(c) > width + 30:
                lines.append(line)
                line = " " * 32
            line += c + "   "
        lines.append(line.rstrip())
    lines += ["", "record types (records compared)"]
    lines += [f"  {k} v{v} x{n}" for (k, v), n in sorted(record_types.items())]
    pairs = f"{len(codes)} pairs of request and error code, {len(by_api)} requests"
    lines += ["", f"{pairs}, {len(record_types)} record types and versions"]
    return "\n".join(lines)


def listing(script):
    """The steps of a script, a line each."""
    lines = [f"{step.get('api') or step['op']} {short(step.get('body', ''), 400)}" for step in script["steps"]]
    return "\n".join(f"  {number}: {line}" for number, line in enumerate(lines))
