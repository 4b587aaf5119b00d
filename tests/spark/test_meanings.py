"""docs/spark-tables.md is made from the schemas; ``pytest tests/spark/test_meanings.py --rewrite`` writes it anew.

What the meanings say about values is true of the golden logs, and of logs in which everything happens that these lack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from inspect import getdoc
from pathlib import Path

import bad_day
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from golden import GOLDEN
from project import ROOT
from spark_parts import copy_as

from kraftcore.admin import ScramMechanism
from kraftcore.config.security import SecurityProtocol
from kraftcore.core.batch import build_batch
from kraftcore.core.batch.compression import Compression
from kraftcore.core.wire.struct import Field
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.cluster_rows import ClusterRows
from kraftcore.plugins.spark.commits import RUNS, RUNS_SCHEMA
from kraftcore.plugins.spark.gold_registry import GOLD
from kraftcore.plugins.spark.meanings import ALIKE, COLUMNS, meaning
from kraftcore.plugins.spark.tables import BRONZE, SILVER, Tables, arrow_schema
from kraftcore.plugins.spark.views import PLAIN_VIEWS, RecordType, field_name, view_schema
from kraftcore.protocol.control import ControlRecordType, leader_change
from kraftcore.protocol.records.abort_transaction_record import AbortTransactionRecord
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.registry import MetadataRecordType, record_class
from kraftcore.security.acl import Operation, PatternType, Permission, ResourceType

PAGE = ROOT / "docs" / "spark-tables.md"
BEGIN, END = "<!-- made from the schemas -->\n", "<!-- end -->\n"
HISTORIES = [name for name in GOLD if name.endswith("_history")]
GROUPS = {
    "bronze, silver, gold": [*BRONZE, *SILVER, *GOLD],
    "bronze": list(BRONZE),
    "silver": list(SILVER),
    "`gold_*_history`": HISTORIES,
}
A_ROW = {
    "bronze_files": "One row a segment, snapshot or bootstrap file, as it was when it was listed.",
    "bronze_batches": "One row a batch: its header.",
    "bronze_records": "One row a record, with its key and value undecoded.",
    "errors": "One row a record, or a stretch of bytes, that could not be read.",
    RUNS: "One row a step of a run. Engines that read Delta tables can ask it; `kraftcore spark query` lacks it.",
}
Rows = Mapping[str, pa.Table]


def nothing(name: str, *_: object) -> pa.Table:
    return arrow_schema(name).empty_table()


@cache
def schema_of(table: str) -> pa.Schema:
    if table == RUNS:
        return RUNS_SCHEMA
    return GOLD[table](Canonical("", nothing, bytes)).schema if table in GOLD else arrow_schema(table)


def told(kind: pa.DataType) -> str:
    """A type as SQL names it, with the widths of whole numbers."""
    if pa.types.is_list(kind):
        return f"array<{told(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{one.name}: {told(one.type)}' for one in kind)}>"
    if pa.types.is_timestamp(kind):
        return f"timestamp({kind.unit}, {kind.tz})"
    return {"bool": "boolean"}.get(str(kind), str(kind))


def shared(table: str) -> list[pa.Field]:
    """The columns that mean the same in many tables."""
    return [column for column in schema_of(table) if ALIKE.get(column.name) == meaning(column)]


def own(table: str) -> list[pa.Field]:
    """The other columns."""
    return [column for column in schema_of(table) if column not in shared(table)]


def line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def head(*names: str) -> str:
    return line(*names) + "|" + "---|" * len(names) + "\n"


def tables_with(column: str) -> str:
    """The groups of tables, and then the tables, in which a column means the same as in the others."""
    left = [one for one in GROUPS["bronze, silver, gold"] if any(found.name == column for found in shared(one))]
    said = []
    for group, tables in GROUPS.items():
        if set(tables) <= set(left):
            said.append(group)
            left = [one for one in left if one not in tables]
    return ", ".join([*said, *(f"`{one}`" for one in left)])


def alike() -> str:
    text = "## Columns that many tables have\n\n" + head("column", "type", "tables", "meaning")
    types = {column.name: told(column.type) for table in GROUPS["bronze, silver, gold"] for column in schema_of(table)}
    return text + "".join(line(f"`{one}`", f"`{types[one]}`", tables_with(one), means) for one, means in ALIKE.items())


def section(table: str) -> str:
    says = A_ROW[table] if table in A_ROW else " ".join((getdoc(GOLD[table]) or "").split()).replace("``", "`")
    rows = "".join(line(f"`{column.name}`", f"`{told(column.type)}`", meaning(column)) for column in own(table))
    return f"### {table}\n\n{says}\n\n" + (head("column", "type", "meaning") + rows + "\n" if rows else "")


def kafkas(field: Field) -> str:
    """A field as Kafka's schema has it: name, type and versions."""
    kind = field.struct_class.__name__ if field.struct_class else field.type_name
    first, last = field.versions
    span = f"{first}+" if last is None else f"{first}-{last}"
    return f"`{field.kafka_name}` `{'[]' * field.is_array}{kind}` {span}"


def record(table: str, kind: RecordType) -> str:
    first, last = kind.message_class.schema.versions
    number = ControlRecordType[kind.name].value if kind.is_control else MetadataRecordType[kind.name].value
    says = " ".join((getdoc(kind.message_class) or "").removeprefix("Control record: ").split())
    versions = f"version {first}" if first == last else f"versions {first} to {last}"
    source = f"`{kind.message_class.__name__}`, {'control ' * kind.is_control}record {number}, {versions}"
    text = line(f"**`{table}`**", "", "", source, says[0].upper() + says[1:])
    fields = {field_name(field.name): field for field in kind.message_class.__layout__.fields}
    for column in own(table):
        text += line("", f"`{column.name}`", f"`{told(column.type)}`", kafkas(fields[column.name]), meaning(column))
    return text


def made() -> str:
    return "\n".join([
        alike(),
        "## Bronze\n\n" + "".join(map(section, BRONZE)).rstrip("\n") + "\n",
        "## Silver\n\n" + head("table", "column", "type", "in Kafka", "meaning")
        + "".join(record(table, kind) for table, kind in SILVER.items()),
        "## Gold\n\n" + "".join(map(section, GOLD)).rstrip("\n") + "\n",
        "## Runs\n\n" + section(RUNS).rstrip("\n") + "\n",
    ])  # fmt: skip


def test_the_page_is_true(request: pytest.FixtureRequest):
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + "\n" + made() + "\n" + END + after
    if request.config.getoption("--rewrite"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "run pytest tests/spark/test_meanings.py --rewrite"


def odd_logs(folder: Path) -> None:
    """Nodes with every type of record, every kind of damage, and every way to become a leader."""
    log = bad_day.Log()
    bad_day.begin(log)
    kinds = (kind for kind in MetadataRecordType if not kind.name.endswith("_TRANSACTION_RECORD"))
    log.write("14:00:00.000", *(record_class(kind)() for kind in kinds))
    log.write("14:00:01.000", BeginTransactionRecord(), AbortTransactionRecord())
    log.epoch = 2
    log.control("14:00:02.000", leader_change(1, [1, 2, 3], [1, 2]))
    begin = len(log.data)
    log.write("14:00:03.000", BeginTransactionRecord())
    log.data[begin + 70] ^= 1  # a damaged batch, which leaves a hole
    log.epoch = 3
    log.control("14:00:04.000", leader_change(2, [1, 2, 3], [1, 2]))
    log.data += build_batch([b"\xff"], base_offset=log.end, leader_epoch=3, timestamp_ms=0)
    log.data += build_batch([b"", None], base_offset=log.end + 1, leader_epoch=3, timestamp_ms=0)[:-1]  # torn
    bad_day.write_node(folder / "odd", 1, bytes(log.data), cluster_id="odd")
    for node_id, epoch in ((1, 2), (2, 3), (3, 3)):  # what node 1 wrote as the leader was overridden
        log = bad_day.Log()
        bad_day.begin(log)
        log.epoch = epoch
        log.control(f"14:00:0{epoch}.000", leader_change(epoch - 1, [1, 2, 3], [1, 2]))
        bad_day.write_node(folder / "overridden", node_id, bytes(log.data), cluster_id="overridden")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """All tables, made without Spark."""
    home = tmp_path_factory.mktemp("meanings")
    bad_day.write(home / "in")
    odd_logs(home / "in")
    copy_as(GOLDEN / "dynamic" / "c4", home / "in" / "alone", "alone")  # its log begins with a snapshot
    kraft.run(None, [GOLDEN, home / "in"], home / "tables")
    tables = Tables(None, home / "tables")
    clusters = tables.clusters()
    found = {name: tables.arrow(name, clusters) for name in (*BRONZE, *SILVER)}
    source = ClusterRows(tables, clusters)
    inputs = [Canonical(one, source.of(one), tables.masking_key) for one in clusters]
    return found | {name: pa.concat_tables([make(one) for one in inputs]) for name, make in GOLD.items()}


def test_no_meaning_is_left_over():
    views = [(view, view_schema(view).names) for view in (*PLAIN_VIEWS, *(kind.view for kind in SILVER.values()))]
    gold = {column.name for table in GOLD for column in schema_of(table) if meaning(column) == COLUMNS.get(column.name)}
    views.append(("runs", RUNS_SCHEMA.names))
    used = {f"{view}.{name}" if f"{view}.{name}" in COLUMNS else name for view, names in views for name in names}
    assert COLUMNS.keys() == used | gold


def test_every_table_has_rows_here(rows):
    assert [name for name, found in rows.items() if not len(found)] == []


@pytest.mark.parametrize("layer", [[*BRONZE, *SILVER], [*GOLD]], ids=["bronze and silver", "gold"])
def test_a_column_is_null_only_where_its_meaning_says_so(layer, rows):
    ((cluster, start),) = [
        (row["cluster_id"], row["start_offset"]) for row in rows["gold_eras"].to_pylist() if not row["is_complete"]
    ]
    of_unknown = (pc.field("cluster_id") == cluster) & (pc.field("from_offset") >= start)
    known = {name: found.filter(~of_unknown) if name in HISTORIES else found for name, found in rows.items()}
    found = {
        f"{name}.{column.name}"
        for name in layer
        for column in schema_of(name)
        if known[name][column.name].null_count and "null" not in meaning(column)
    }
    assert found == set()


LISTED = [
    ("bronze_files", "source", set()),
    ("errors", "kind", {"gone"}),
    ("gold_leadership", "reason", set()),
    ("gold_leadership", "status", set()),
    ("gold_voter_sets", "source", set()),
    ("gold_partition_history", "change", set()),
    ("gold_broker_history", "event", set()),
]


@pytest.mark.parametrize(("table", "column", "elsewhere"), LISTED)
def test_the_values_of_a_column_are_those_that_its_meaning_lists(table, column, elsewhere, rows):
    listed = set(re.findall("`([^`]+)`", meaning(schema_of(table).field(column)))) - {"min_isr"}
    assert set(pc.unique(rows[table][column]).to_pylist()) == listed - elsewhere


def numbers(column: str) -> dict[int, str]:
    return {int(number): word for number, word in re.findall(r"(\d+): ([^,;]+)", COLUMNS[column])}


def words(kind: type[IntEnum], first: int) -> dict[int, str]:
    return {one.value: one.name.lower().replace("_", " ") for one in kind if one.value >= first}


def test_numbers_stand_for_what_the_meanings_say():
    assert numbers("operation") == words(Operation, Operation.ALL)
    assert numbers("access_control_entry.resource_type") == words(ResourceType, ResourceType.TOPIC)
    assert numbers("permission_type") == {Permission.DENY: "denied", Permission.ALLOW: "allowed"}
    assert numbers("pattern_type").keys() == {PatternType.LITERAL, PatternType.PREFIXED}
    assert numbers("mechanism") == {one.value: one.label for one in ScramMechanism}
    assert numbers("end_points") == {one.value: one.name for one in SecurityProtocol}
    assert re.findall("`([a-z0-9]+)`", COLUMNS["batches.compression"]) == [one.name.lower() for one in Compression]
