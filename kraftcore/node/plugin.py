"""The base class of plugins, and how plugins are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from kraftcore.errors import LocalError
from kraftcore.executor.decisions import Decision
from kraftcore.namespace import listing
from kraftcore.node.authorization import Authorization
from kraftcore.node.events import NodeEvent
from kraftcore.node.outbox import Outbox
from kraftcore.node.plugin_node import PluginNode, plugin_node
from kraftcore.node.registry import (
    Access,
    Asker,
    ListenerType,
    Priority,
    Registry,
    RequestContext,
    RequestHandler,
    Respond,
)
from kraftcore.protocol.schema import Request
from kraftcore.security.audit import Action, Requester
from kraftcore.state_machine import StateMachine

if TYPE_CHECKING:
    from kraftcore.security.sasl.credentials import Credentials

__all__ = [
    "Access",
    "Action",
    "Asker",
    "Authorization",
    "Decision",
    "ListenerType",
    "Outbox",
    "Plugin",
    "PluginNode",
    "Priority",
    "RequestContext",
    "RequestHandler",
    "Requester",
    "Respond",
    "plugin_node",
]
__dir__ = listing(__all__)

GROUP = "kraftcore.plugins"


class Plugin:
    """Base class of plugins.

    A plugin that does not participate (``participates`` is False) can never hurt its node: if it raises, it is dropped
    with a log line; if one of its handlers raises, only the asker's connection is broken. A participating plugin is
    part of what the node promises; if it raises, the node stops.

    Attributes:
        name: for people and logs.
        interests: the event classes that ``on_event`` gets; events that nobody asked for cost nothing.
        participates: whether the node must stop when this plugin fails.
    """

    name: ClassVar[str] = "plugin"
    interests: ClassVar[frozenset[type]] = frozenset()
    participates: ClassVar[bool] = False

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Self:
        """Make the plugin from its settings; called when the configuration names the plugin.

        Args:
            settings: texts by name, from ``kraftcore.plugin.NAME.SETTING``.

        Raises:
            LocalError: there is no such setting, or it cannot have the given value.
        """
        if settings:
            raise LocalError(f"plugin {cls.name} has no setting {', '.join(sorted(settings))}")
        return cls()

    def attach(self, machine: StateMachine) -> None:
        """Get the node's state machine; called first, before anything is applied to it."""

    async def run(self, node: PluginNode) -> None:
        """Run the plugin's own task; starts with the node, is cancelled when the node stops, and may return early."""

    async def stopping(self) -> None:
        """End in order: the node was told to stop, and still works. Not called if the node failed or was aborted."""

    def on_event(self, event: NodeEvent) -> None:
        """Take an event. Called from the node's own work: be quick, do not wait."""

    def unready(self) -> Iterable[str]:
        """Why the node should get no work, as far as this plugin knows, a sentence each; see ``Node.health``."""
        return ()

    @property
    def handlers(self) -> Iterable[RequestHandler]:
        """The handlers of requests that this plugin answers, beside the node's own handlers or in their place."""
        return ()

    @property
    def withdrawn(self) -> Iterable[type[Request]]:
        """Requests that the node does not answer while it has this plugin."""
        return ()

    @property
    def authorization(self) -> Authorization | None:
        """The authorization of all requests, those of the consensus included; at most one plugin may have one."""
        return None

    @property
    def credentials(self) -> Credentials | None:
        """The credentials of SCRAM users; None: this plugin has none. The first plugin that has some is asked."""
        return None

    @property
    def early_listeners(self) -> frozenset[str] | None:
        """Listeners that are served from the beginning; requests on all others wait for ``loaded``. None: all are."""
        return None

    @property
    def late_listeners(self) -> frozenset[str]:
        """Listeners on which requests wait for ``loaded``."""
        return frozenset()

    async def loaded(self) -> None:
        """Wait until requests may be served on the listeners that are not early."""


def register(plugin: Plugin, registry: Registry) -> None:
    """Register a plugin's handlers and its authorization.

    Raises:
        LocalError: another plugin answers one of its requests; there is another authorizer.
    """
    if plugin.authorization is not None:
        if registry.authorization is not None:
            raise LocalError(f"plugin {plugin.name} brings an authorizer, and there is one already: leave one out")
        registry.authorization = plugin.authorization
    for kind in plugin.withdrawn:
        registry.withdraw(kind)
    for handler in plugin.handlers:
        registry.register(handler._replace(owner=f"plugin {plugin.name}", is_vital=plugin.participates))


def load_plugins(names: Iterable[str], settings: Mapping[str, str] | None = None) -> list[Plugin]:
    """Make the plugins that installed packages offer under these names.

    Args:
        names: of entry points in the group `GROUP`, each a class derived from `Plugin`.
        settings: ``NAME.SETTING`` to text, see ``Plugin.configured``.

    Raises:
        LocalError: there is no plugin of a name (the message lists the known ones), or a setting is wrong.
    """
    names = list(names)
    if not names:
        return []
    from importlib.metadata import entry_points  # only where plugins are named: imports much

    found = {point.name: point for point in entry_points(group=GROUP)}
    plugins = []
    for name in names:
        if name not in found:
            known = ", ".join(sorted(found)) or "none is installed"
            raise LocalError(f"there is no plugin {name!r}: known are {known}")
        own = {key.partition(".")[2]: text for key, text in (settings or {}).items() if key.partition(".")[0] == name}
        plugins.append(found[name].load().configured(own))
    return plugins
