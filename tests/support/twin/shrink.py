"""The smallest script that still shows a difference: delta debugging by dropping steps."""


def groups(steps):
    """Steps that stay together: one marked glue belongs to the step before it."""
    out = []
    for s in steps:
        if s.get("glue") and out:
            out[-1].append(s)
        else:
            out.append([s])
    return out


def ddmin(parts, shows, say=lambda text: None):
    """A part list of which no single part can be dropped; shows(parts) tells whether the difference is there."""
    n = 2
    while len(parts) >= 2:
        size = max(1, len(parts) // n)
        for start in range(0, len(parts), size):
            rest = parts[:start] + parts[start + size :]
            if rest and shows(rest):
                parts, n = rest, max(n - 1, 2)
                say(f"{len(parts)} parts left")
                break
        else:
            if size == 1:
                return parts
            n = min(len(parts), n * 2)
    return parts


def shrink(script, sign, run, say=lambda text: None, tries=400):
    """-> (the smallest script found, its differences).

    run(script, stop) gives the differences up to stop(difference).
    """
    best, count, seen = [None, None], [0], {}

    def shows(parts):
        key = tuple(map(id, [s for p in parts for s in p]))
        if key in seen:
            return seen[key]
        if count[0] >= tries:
            return False
        count[0] += 1
        small = {**script, "steps": [s for p in parts for s in p]}
        found = run(small, lambda d: d.sign == sign)
        seen[key] = any(d.sign == sign for d in found)
        if seen[key] and (best[0] is None or len(small["steps"]) < len(best[0]["steps"])):
            best[:] = [small, found]
        return seen[key]

    parts = groups(script["steps"])
    if not shows(parts):
        say("the difference does not show again: it may depend on time")
        return None, None
    last = max((d.step for d in best[1] if d.sign == sign), default=len(script["steps"]))
    if last < len(script["steps"]):  # nothing after the step that shows it matters
        head = groups(script["steps"][: last + 1])
        if shows(head):
            parts = head
    without = [p for p in parts if "op" not in p[0]]  # restarts are what makes a try slow
    if len(without) < len(parts) and without and shows(without):
        parts = without
        say(f"{len(parts)} parts left, no restarts")
    ddmin(parts, shows, say)
    return best[0], best[1]
