"""Scripts that put bad values into every field of every request, one at a time.

A seed's script gives the requests and what there is when they come. In front of the first good one of each request, in
each version that the script has, go its copies, each with one field changed: null where the layout has none, the ends
of the type, unknown numbers, empty, over-long and odd texts, lists without, twice, and null.
"""

from conformance import codec

from twin.generate import generate

ENDS = {bits: (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
NUMBERS = {f"int{bits}": [*ends, -2, -1, 0, 99] for bits, ends in ENDS.items()} | {"uint16": [0, 65535]}
FLOATS = [0.0, -1.0, 1e308]
TEXTS = ["", ".", "a b", "\u00e9\u4e16", "x" * 250, "x" * 33000]
LEFT_ALONE = {"ApiVersions", "AddRaftVoter", "RemoveRaftVoter", "DescribeQuorum"}  # those of the consensus


# With these the controller chooses brokers and leaders, each side its own.
PLACED = {
    "Topics.ReplicationFactor": ([], None, -1),
    "Topics.Assignments": ([], None, -1),
    "Topics.NumPartitions": (99,),
    "Topics.Count": (99,),
}


# Where Kafka's answer to a bad value is a mistake of its own, and ours another one: request and field.
BETTER = {
    ("AlterUserScramCredentials", "Upsertions.SaltedPassword"): "UNKNOWN_SERVER_ERROR without words",
    ("DescribeConfigs", "IncludeDocumentation"): "texts of its own; ours are others",
}


# Over some bad values here Kafka's controller gives up its leadership, and with it what it knows of brokers' sessions:
# what comes later would differ. tests/controller has ours. Of a registration, another id would take the directories.
LEFT_OUT = {
    ("BrokerRegistration", "BrokerId"),
    ("BrokerRegistration", "Listeners.Name"),  # an empty one ends Kafka's process
    ("DescribeUserScramCredentials", "Users"),  # null is never answered
    *((f"{kind}Registration", f"Listeners.{name}") for kind in ("Broker", "Controller") for name in ("Host", "Port")),
    *((f"{kind}Registration", "Listeners.SecurityProtocol") for kind in ("Broker", "Controller")),
    ("IncrementalAlterConfigs", "Resources.Configs.ConfigOperation"),
    ("IncrementalAlterConfigs", "Resources.Configs.Value"),
    ("AlterPartition", "Topics.Partitions.LeaderRecoveryState"),
}


def is_better(script, difference):
    """Whether a difference is one of these."""
    step = script["steps"][difference.step] if 0 <= difference.step < len(script["steps"]) else {}
    return difference.kind in ("answer", "message") and (step.get("api"), step.get("field")) in BETTER


def script(seed, steps=150, *, every_version=True):
    """The script of a seed with all of that in it, but restarts. Every changed request has its ``field`` beside it.

    every_version: of each request in each of its versions; else only of the newest that the script has.
    """
    made = generate(seed, steps)
    newest = {}
    for step in made["steps"]:
        if is_good(step):
            newest[step["api"]] = max(step["version"], newest.get(step["api"], 0))
    out, seen = [], set()
    for step in made["steps"]:
        kind = step.get("api"), step.get("version")
        if is_good(step) and kind not in seen and (every_version or newest[kind[0]] == kind[1]):
            seen.add(kind)
            out += changed(step)
        if step.get("op") != "restart":
            out.append(step)
    return {**made, "steps": out}


def is_good(step):
    return "api" in step and step["api"] not in LEFT_ALONE and not step["note"].startswith("bad")


def changed(step):
    """The step with a bad value in one field, for each field and value."""
    name = codec.BY_KEY[codec.API[step["api"]], "request"]
    layout = codec.codec(name, step["version"])
    made = 0
    for path, value, body in structs(layout, layout.msg["fields"], step["body"], ()):
        field = ".".join(p for p in path if isinstance(p, str))
        if (step["api"], field) in LEFT_OUT or value in PLACED.get(field, ()):
            continue
        if step["api"] == "CreateTopics" and field != "Topics.Name" and isinstance(body["Topics"], list):
            made += 1  # under a name of its own: the one before it may be there
            body = {**body, "Topics": [{**each, "Name": f"{each['Name']}-{made}"} for each in body["Topics"]]}
        note = f"field {'.'.join(map(str, path))}: {shown(value)}"
        yield {**step, "body": body, "note": note, "field": field}


def structs(layout, fields, body, path):
    """(path, value, the whole struct with it) for every field of a struct and of those within."""
    for f in fields:
        if codec.within(f["versions"], layout.version):
            for at, value, new in one(layout, f, body.get(f["name"], layout.default(f)), (*path, f["name"])):
                yield at, value, {**body, f["name"]: new}


def one(layout, f, held, path):
    kind = f["type"]
    nullable = codec.within(f.get("nullable"), layout.version)
    if kind.startswith("[]"):
        yield from ((path, value, value) for value in ([], null(nullable)) if value != held)
        if isinstance(held, list) and held:
            yield path, "its first element twice", [held[0], *held]
            for at, value, new in one(layout, {**f, "type": kind[2:], "nullable": None}, held[0], (*path, 0)):
                yield at, value, [new, *held[1:]]
    elif kind in layout.structs:
        if isinstance(held, dict):
            yield from structs(layout, layout.structs[kind], held, path)
        if nullable and held is not None:
            yield path, None, None
    else:
        yield from ((path, value, value) for value in values(layout, kind, held, nullable) if value != held)


def values(layout, kind, held, nullable):
    if kind in NUMBERS:
        low, high = ENDS.get(int(kind.lstrip("uint")), (0, 0))
        return [each for each in dict.fromkeys(NUMBERS[kind]) if kind == "uint16" or low <= each <= high]
    if kind == "bool":
        return [not held] if isinstance(held, bool) else [True, False]
    if kind == "float64":
        return FLOATS
    if kind == "uuid":
        return [codec.ZERO_UUID, codec.METADATA_TOPIC_ID, {"$": "uuid", "of": "nobody"}]
    if kind == "string":
        texts = TEXTS if layout.flexible else TEXTS[:-1]  # longer than an int16 can say
        return [*texts, null(nullable)]
    return [{"$": "bytes", "hex": ""}, {"$": "bytes", "hex": "00" * 300}, null(nullable)]


def null(nullable):
    return None if nullable else {"$": "null"}


def shown(value):
    text = "null, which it may not be" if value == {"$": "null"} else repr(value)
    return text if len(text) < 60 else f"{text[:20]}... of {len(text)}"
