"""What a plugin is, and how plugins are found."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from kraftcore.errors import LocalError
from kraftcore.node.events import NodeEvent
from kraftcore.protocol.schema import Request, Response
from kraftcore.transports.base import Origin

if TYPE_CHECKING:
    from kraftcore.node.node import Node

GROUP = "kraftcore.plugins"
_logger = logging.getLogger("kraftcore.node")

Handler: TypeAlias = Callable[[Any, int, Origin], Awaitable[Response]]
"""Answers a request: its body, its version, who sent it."""


class Plugin:
    """Base class of plugins.

    An observer (``participates`` is False) can never hurt its node: one that raises is dropped with a log line; if it
    was a handler, only the asker's connection is. A participant is part of what the node promises; if it raises, the
    node stops.

    Attributes:
        name: for people and logs.
        interests: the event classes that ``on_event`` gets; what nobody is interested in costs nothing.
        participates: whether the node must stop when this plugin fails.
    """

    name: ClassVar[str] = "plugin"
    interests: ClassVar[frozenset[type]] = frozenset()
    participates: ClassVar[bool] = False

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Self:
        """Make the plugin from what the configuration says of it; called when the configuration names it.

        Args:
            settings: texts by name, from ``kraftcore.plugin.NAME.SETTING``.

        Raises:
            LocalError: there is no such setting, or it cannot have this value.
        """
        if settings:
            raise LocalError(f"plugin {cls.name} has no setting {', '.join(sorted(settings))}")
        return cls()

    async def run(self, node: Node) -> None:
        """The plugin's own task; starts with the node, is cancelled when it stops, and may return early."""

    def on_event(self, event: NodeEvent) -> None:
        """Something happened. Called from the node's own work: be quick, do not wait."""

    @property
    def handlers(self) -> Mapping[type[Request], Handler]:
        """Requests that this plugin answers, beyond those of the node itself."""
        return {}


def load_plugins(names: Iterable[str], settings: Mapping[str, str] | None = None) -> list[Plugin]:
    """Make the plugins that installed packages offer under these names.

    Args:
        names: of entry points in the group `GROUP`, each a class derived from `Plugin`.
        settings: ``NAME.SETTING`` to text, see ``Plugin.configured``.

    Raises:
        LocalError: there is none of a name (the message lists what there is), or a setting is wrong.
    """
    found = {point.name: point for point in entry_points(group=GROUP)}
    plugins = []
    for name in names:
        if name not in found:
            known = ", ".join(sorted(found)) or "none is installed"
            raise LocalError(f"there is no plugin {name!r}: known are {known}")
        own = {key.partition(".")[2]: text for key, text in (settings or {}).items() if key.partition(".")[0] == name}
        plugins.append(found[name].load().configured(own))
    return plugins


class Listeners:
    """Hands events to whoever wants them, by the event's class."""

    def __init__(self, plugins: Iterable[Plugin], fail: Callable[[BaseException], None]) -> None:
        self._by_type: dict[type, list[tuple[Plugin | None, Callable[[NodeEvent], None]]]] = {}
        self._fail = fail
        for plugin in plugins:
            for wanted in plugin.interests:
                self._by_type.setdefault(wanted, []).append((plugin, plugin.on_event))

    def wants(self, kind: type) -> bool:
        """Whether an event of this class need be made at all."""
        return kind in self._by_type

    def subscribe(self, kinds: Iterable[type], callback: Callable[[NodeEvent], None]) -> Callable[[], None]:
        """Call ``callback`` for every event of these classes; returns how to end that."""
        entry = (None, callback)
        chosen = tuple(kinds)
        for kind in chosen:
            self._by_type.setdefault(kind, []).append(entry)

        def end() -> None:
            for kind in chosen:
                left = [other for other in self._by_type.get(kind, ()) if other is not entry]
                if left:
                    self._by_type[kind] = left
                else:
                    self._by_type.pop(kind, None)

        return end

    def tell(self, event: NodeEvent) -> None:
        """Hand an event out."""
        for plugin, callback in tuple(self._by_type.get(type(event), ())):
            try:
                callback(event)
            except Exception as error:
                if plugin is None or plugin.participates:
                    self._fail(error)
                else:
                    _logger.exception("plugin %s raised on %s and is dropped", plugin.name, type(event).__name__)
                    self.drop(plugin)

    def drop(self, plugin: Plugin) -> None:
        """Never call this plugin again."""
        for kind in list(self._by_type):
            left = [entry for entry in self._by_type[kind] if entry[0] is not plugin]
            if left:
                self._by_type[kind] = left
            else:
                del self._by_type[kind]
