"""A cluster's metadata as a tree of folders and values, much as in kafka-metadata-shell.

Folders are made when they are looked into, so a tree costs nothing, however large the cluster is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from kraftcore.cli.metadata_states import State
from kraftcore.cli.metadata_words import (
    MECHANISMS,
    RESOURCES,
    acl_fields,
    config_fields,
    credential_fields,
    entity_name,
    partition_fields,
    plain_fields,
)
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.metadata import ConfigResource, Image, Topic

Node = Mapping[str, "Node"] | object
"""A folder, or a value fit for JSON."""


class Folder(Mapping[str, Node]):
    """A folder whose content is looked up when it is asked for.

    Args:
        names: gives the names in it.
        look_up: gives the node of a name; raises KeyError if there is none.
    """

    def __init__(self, names: Callable[[], Iterable[str]], look_up: Callable[[str], Node]) -> None:
        self._names = names
        self._look_up = look_up

    def __getitem__(self, name: str) -> Node:
        return self._look_up(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(map(_escaped, self._names()), key=_natural))

    def __len__(self) -> int:
        return sum(1 for _ in self._names())


def tree_of(state: State) -> Folder:
    """The tree of a state: ``image``, and ``provenance``, which says of which moment it is."""
    image = state.image
    parts: dict[str, Callable[[], Node]] = {
        "acls": lambda: {"byId": _of({str(key): acl for key, acl in image.acls.items()}, acl_fields)},
        "clientQuotas": lambda: _of({entity_name(key): each for key, each in image.quotas.items()}, dict),
        "cluster": lambda: {
            "brokers": _of({str(key): each for key, each in image.brokers.items()}, plain_fields),
            "controllers": _of({str(key): each for key, each in image.controllers.items()}, plain_fields),
        },
        "configs": partial(_configs, image),
        "delegationToken": lambda: _of(image.tokens, plain_fields),
        "features": partial(_features, image),
        "producerIds": lambda: {"nextProducerId": image.producer_ids.next_id},
        "provenance": lambda: {
            "clusterId": state.cluster_id,
            "endOffset": state.end_offset,
            "leaderEpoch": state.epoch,
            "timestampMs": state.timestamp_ms,
        },
        "scram": partial(_scram, image),
        "topics": partial(_topics, image),
    }
    return Folder(lambda: ["image"], lambda name: _made({"image": Folder(lambda: parts, partial(_part, parts))}, name))


def _part(parts: Mapping[str, Callable[[], Node]], name: str) -> Node:
    return parts[name]()


def _made(nodes: Mapping[str, Node], name: str) -> Node:
    return nodes[name]


def _of(values: Mapping[str, object], as_fields: Callable[..., Node]) -> Folder:
    by_name = {_escaped(name): value for name, value in values.items()}
    return Folder(lambda: by_name, lambda name: as_fields(by_name[name]))


def _configs(image: Image) -> Node:
    resources = {_resource_name(resource): resource for resource in image.configs}
    return Folder(lambda: resources, lambda name: config_fields(resources[name], image.configs[resources[name]]))


def _resource_name(resource: ConfigResource) -> str:
    kind = RESOURCES.get(resource.type, str(resource.type)).upper().replace(" ", "_")
    return _escaped(f"{kind}:{resource.name}" if resource.name else kind)


def _features(image: Image) -> Node:
    version = image.features.metadata_version
    told: dict[str, Node] = {} if version is None else {"metadataVersion": version.text}
    return told | {f"finalized_{name}": level for name, level in image.features.items()}


def _scram(image: Image) -> Node:
    found: dict[str, dict[str, Node]] = {}
    for user, credential in image.scram.items():
        mechanism = MECHANISMS.get(user.mechanism, str(user.mechanism))
        found.setdefault(mechanism, {})[_escaped(user.name)] = credential_fields(credential)
    return found


def _topics(image: Image) -> Node:
    def by_id(name: str) -> Node:
        try:
            return _topic(image, image.topics[Uuid.from_string(name)])
        except LocalError:
            raise KeyError(name) from None

    def by_name(name: str) -> Node:
        topic = image.topics.by_name(name)
        if topic is None:
            raise KeyError(name)
        return _topic(image, topic)

    folders = {
        "byId": Folder(lambda: map(str, image.topics), by_id),
        "byName": Folder(lambda: (topic.name for topic in image.topics.values()), by_name),
    }
    # Short: topics/orders is topics/byName/orders.
    return Folder(lambda: folders, lambda name: folders[name] if name in folders else by_name(name))


def _topic(image: Image, topic: Topic) -> Node:
    def look_up(name: str) -> Node:
        if name in fixed:
            return fixed[name]
        found = image.partitions.get(topic.id, int(name)) if name.isdecimal() and name.isascii() else None
        if found is None:
            raise KeyError(name)
        return partition_fields(found)

    fixed = {"id": str(topic.id), "name": topic.name}
    return Folder(lambda: [*fixed, *(str(number) for number, _ in image.partitions.of_topic(topic.id))], look_up)


def _escaped(name: str) -> str:
    return name.replace("/", "%2F")


def _natural(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if name.isdecimal() and name.isascii() else (1, 0, name)


def parts_of(path: str, start: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names on the way from the root to where a path leads; ``..`` and ``.`` are understood."""
    names = [] if path.startswith("/") else list(start)
    for name in path.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return tuple(names)


def node_at(root: Node, names: Iterable[str]) -> Node:
    """The node that a path leads to.

    Raises:
        LocalError: there is none.
    """
    node, done = root, ""
    for name in names:
        done += f"/{name}"
        try:
            node = node[name] if isinstance(node, Mapping) else _missing(name)
        except KeyError:
            raise LocalError(f"{done} is not there") from None
    return node


def _missing(name: str) -> Node:
    raise KeyError(name)


def paths_below(node: Node, path: str = "") -> Iterator[str]:
    """The paths of all nodes below a node, depth first."""
    if isinstance(node, Mapping):
        for name in node:
            yield (below := f"{path}/{name}")
            yield from paths_below(node[name], below)
