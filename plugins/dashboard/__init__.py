"""A page that shows a quorum and its cluster live: read-only, one picture for all who look at it.

    async with kraftcore.open_node(config, machine, plugins=[Dashboard(listen="127.0.0.1:8090")]) as node:
        ...

``kraftcore server start`` loads it by ``kraftcore.plugins=dashboard``; ``kraftcore dashboard`` shows any quorum. See
docs/dashboard.md. Needs the extra ``dashboard``.

================  ====================================================================
``plugin``        the page of a node
``serving``       the page over HTTP, under hypercorn on trio
``application``   what is answered: the page, its files, the picture, searches
``sharing``       one picture, and what changes of it, for all viewers
``page.html``     the page; ``page.js`` draws it, ``page.css`` is how it looks
================  ====================================================================
"""

from kraftcore.namespace import listing
from kraftcore.plugins.dashboard.plugin import Dashboard

__all__ = ["Dashboard"]
__dir__ = listing(__all__)
