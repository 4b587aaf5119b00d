"""For the tests of applications that embed kraftcore: a whole quorum in one process, to be killed and cut apart.

``Cluster`` is for any test that runs on trio; ``pytest_plugin`` brings it as the fixture ``kraft_cluster``. See
docs/testing-your-application.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftcore.testing.cluster import Cluster as Cluster

__all__ = ["Cluster"]


# pytest imports this package whenever it starts: nothing is loaded before somebody wants it.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kraftcore.testing' has no attribute {name!r}")
    return getattr(import_module("kraftcore.testing.cluster"), name)
