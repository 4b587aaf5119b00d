"""Hands a node's events to plugins and subscribers, by the event's class."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from kraftcore.node.events import NodeEvent

_logger = logging.getLogger("kraftcore.node")


class Extension(Protocol):
    """The members of a plugin that are used here; see `kraftcore.node.plugin.Plugin`."""

    @property
    def name(self) -> str:
        """The plugin's name, for people and logs."""
        ...

    @property
    def interests(self) -> frozenset[type]:
        """The event classes that the plugin gets."""
        ...

    @property
    def participates(self) -> bool:
        """Whether the node must stop when the plugin fails."""
        ...

    def on_event(self, event: NodeEvent) -> None:
        """Take an event."""
        ...

    def unready(self) -> Iterable[str]:
        """Why the node should get no work, as far as the plugin knows."""
        ...


class EventHub:
    """Hands each event of a node to the plugins and subscribers that asked for the event's class.

    Args:
        plugins: each gets events of the classes in its ``interests``.
        fail: called with an exception that a participating plugin, or a subscriber, raised.
    """

    def __init__(self, plugins: Iterable[Extension], fail: Callable[[BaseException], None]) -> None:
        self._by_type: dict[type, list[tuple[Extension | None, Callable[[NodeEvent], None]]]] = {}
        self._fail = fail
        for plugin in plugins:
            for wanted in plugin.interests:
                self._by_type.setdefault(wanted, []).append((plugin, plugin.on_event))

    def wants(self, kind: type) -> bool:
        """Whether an event of this class need be made at all."""
        return kind in self._by_type

    def subscribe(self, kinds: Iterable[type], callback: Callable[[NodeEvent], None]) -> Callable[[], None]:
        """Call ``callback`` for every event of these classes; returns a function that ends the subscription."""
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

    def drop(self, plugin: Extension) -> None:
        """Never call this plugin again."""
        for kind in list(self._by_type):
            left = [entry for entry in self._by_type[kind] if entry[0] is not plugin]
            if left:
                self._by_type[kind] = left
            else:
                del self._by_type[kind]
