"""KRaft metadata on Spark: from log directories and snapshots to tables and answers.

    from kraftcore.plugins import spark as kraft

    session = kraft.session()
    kraft.run(session, ["/backup/*"], "/tables")
    kraft.query(session, "/tables", "SELECT * FROM gold_leadership").show()
    kraft.write_report(session, "/tables", "report.html")

Needs the extra ``spark``. See docs/spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftcore.namespace import listing, loader, names_of
from kraftcore.plugins.spark.extra import extra_is_told
from kraftcore.plugins.spark.worker import settle

_HOMES = {
    "kraftcore.plugins.spark.declarative": ("write_specs",),
    "kraftcore.plugins.spark.direct": ("read_typed",),
    "kraftcore.plugins.spark.pipeline": ("clean", "follow", "query", "run", "table"),
    "kraftcore.plugins.spark.report": ("write_report",),
    "kraftcore.plugins.spark.source": ("KraftDataSource",),
    "kraftcore.plugins.spark.startup": ("session",),
    "kraftcore.plugins.spark.state": ("state_as_of",),
}
settle()
if TYPE_CHECKING:
    from kraftcore.plugins.spark.declarative import write_specs as write_specs
    from kraftcore.plugins.spark.direct import read_typed as read_typed
    from kraftcore.plugins.spark.pipeline import clean as clean
    from kraftcore.plugins.spark.pipeline import follow as follow
    from kraftcore.plugins.spark.pipeline import query as query
    from kraftcore.plugins.spark.pipeline import run as run
    from kraftcore.plugins.spark.pipeline import table as table
    from kraftcore.plugins.spark.report import write_report as write_report
    from kraftcore.plugins.spark.source import KraftDataSource as KraftDataSource
    from kraftcore.plugins.spark.startup import session as session
    from kraftcore.plugins.spark.state import state_as_of as state_as_of
else:
    __all__ = names_of(_HOMES)
    __dir__ = listing(__all__)
    _load = loader(__name__, _HOMES)

    def __getattr__(name: str) -> Any:
        with extra_is_told():
            return _load(name)
