"""A hundred clusters in one folder of tables: only what has something new is made anew, each as if it were alone."""

from __future__ import annotations

from collections import defaultdict

import pytest
from fleet import Fleet, without_places
from spark_parts import counted_rows

from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.tables import Tables, gold_mark

pytestmark = [pytest.mark.deep, pytest.mark.long]

CLUSTERS = 100
NOT_BY_CLUSTER = "bronze_files"  # sizes and paths of what was listed


def no_spark():
    pytest.fail("so little is done without Spark")


def by_cluster(folder):
    """Rows of all tables that count: by table, by cluster."""
    found = {}
    for name, rows in counted_rows(folder).items():
        mine = found[name] = defaultdict(list)
        for row in rows:
            mine[row["cluster_id"]].append(row)
    return found


def test_a_hundred_clusters_are_as_if_each_were_alone(tmp_path):
    fleet, tables = Fleet(tmp_path / "in", CLUSTERS), tmp_path / "tables"
    assert set(kraft.run(no_spark, [tmp_path / "in"], tables).clusters) == set(fleet.names)
    before = Tables(None, tables).commit

    grown = sorted(fleet.names[::9])
    fleet.grow(grown)
    assert kraft.run(no_spark, [tmp_path / "in"], tables).clusters == tuple(grown)
    after = Tables(None, tables).commit
    replaced = tuple(f"{gold_mark(name)}-" for name in grown)
    for name, files in before.files.items():
        kept = [file for file in files if not (name.startswith("gold_") and file.startswith(replaced))]
        assert set(kept) <= set(after.files[name]), name
        added = [file for file in after.files[name] if file not in files]
        assert len(added) <= (len(grown) if name.startswith("gold_") else 2), name

    assert kraft.run(no_spark, [tmp_path / "in"], tables).clusters == ()
    assert Tables(None, tables).commit == after

    found, alone = by_cluster(tables), {}
    for name in fleet.names:
        kind = fleet.kinds[name], name in fleet.grown
        if kind not in alone:
            place = tmp_path / f"alone-{len(alone)}"
            kraft.run(no_spark, [fleet.folder / f"{fleet.names.index(name):03}"], place)
            alone[kind] = {table: without_places(rows[name]) for table, rows in by_cluster(place).items()}
        mine = {table: without_places(rows[name]) for table, rows in found.items() if rows[name]}
        mine.pop("errors", None)  # of a torn end that has grown, the fleet's tables still tell
        for table, rows in alone[kind].items():
            if table not in ("errors", NOT_BY_CLUSTER):
                assert mine[table] == rows, (name, table)
