"""``kraftcore spark``: metadata logs to tables, questions in SQL, a report."""

from __future__ import annotations

from typing import Any

import click

from kraftcore.cli.spark.asking import query, report, state
from kraftcore.cli.spark.making import clean, run, spec
from kraftcore.cli.spark.serving import serve


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        from kraftcore.plugins.spark.extra import extra_is_told

        with extra_is_told():
            return super().invoke(ctx)


@click.group(
    cls=_Group,
    commands=[run, query, serve, state, report, clean, spec],
    epilog="""\b
Examples:
  kraftcore spark run --input /backup/controllers --tables /data/kraft
  kraftcore spark query --tables /data/kraft "SELECT epoch, leader_id, reason FROM gold_leadership ORDER BY epoch"
  kraftcore spark report --tables /data/kraft --to report.html
""",
)
def spark() -> None:
    """Turn metadata logs and snapshots into tables, ask them, and draw a report.

    Needs the extra 'spark': pip install 'kraftcore[spark]'. Java is brought along if there is none.
    """
