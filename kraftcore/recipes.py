"""Replicated objects for programs of trio; ``kraftcore.aio.recipes`` and ``kraftcore.blocking.recipes`` have them, too.

``kraftcore.plugins.recipes`` under a name like those of the two other modules. See docs/recipes.md.
"""

from kraftcore.namespace import listing
from kraftcore.plugins import recipes
from kraftcore.plugins.recipes import *  # noqa: F403

__all__: list[str] = []
__all__ += recipes.__all__
__dir__ = listing(__all__)
