"""KRaft metadata on Spark: from log directories and snapshots to tables and answers.

    from kraftcore.plugins import spark as kraft

    session = kraft.session()
    kraft.run(session, ["/backup/*"], "/tables")
    kraft.query(session, "/tables", "SELECT * FROM gold_leadership").show()

Needs the extra ``spark``. See docs/spark.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftcore.errors import MissingDependencyError

if TYPE_CHECKING:
    from kraftcore.plugins.spark.startup import session as session
    from kraftcore.plugins.spark.source import KraftDataSource as KraftDataSource

_PUBLIC = {
    "KraftDataSource": "source",
    "session": "startup",
}


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("pyspark", "pyarrow", "pandas", "py4j"):
            raise MissingDependencyError(
                f"the data pipeline needs {error.name}: pip install 'kraftcore[spark]'"
            ) from None
        raise
