"""What ``query`` and ``state`` print of values that Python or JSON has no own form for."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kraftcore.errors import LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.printing import Rows, csv_lines, json_lines, parquet_bytes, table_lines

pytestmark = pytest.mark.deep


@pytest.mark.parametrize(
    ("sql", "plain", "cell"),
    [
        ("timestamp'+12026-11-21 14:00:00.25'", "+12026-11-21T14:00:00.250000+00:00", "+12026-11-21 14:00:00.250"),
        ("timestamp_ntz'+12026-11-21 14:00:00'", "+12026-11-21T14:00:00+00:00", "+12026-11-21 14:00:00.000"),
        ("timestamp'-0044-03-15 00:00:00'", "-0044-03-15T00:00:00+00:00", "-0044-03-15 00:00:00.000"),
        ("timestamp'2026-11-21 14:00:00'", "2026-11-21T14:00:00+00:00", "2026-11-21 14:00:00.000"),
        ("timestamp'0000-02-29 00:00:00'", "0000-02-29T00:00:00+00:00", "0000-02-29 00:00:00.000"),
        ("timestamp_micros(9223372036854775807)", "+294247-01-10T04:00:54.775807+00:00", "+294247-01-10 04:00:54.775"),
        ("date'+12026-11-21'", "+12026-11-21", "+12026-11-21"),
        ("date'1969-12-31'", "1969-12-31", "1969-12-31"),
        (
            "array(timestamp'+12026-11-21 14:00:00', null)",
            ["+12026-11-21T14:00:00+00:00", None],
            '["+12026-11-21T14:00:00+00:00", null]',
        ),
        ("struct(date'+12026-11-21' AS day)", {"day": "+12026-11-21"}, '{"day": "+12026-11-21"}'),
        ("if(rand() > 2, struct(date'2026-11-21' AS day), null)", None, "null"),
        ("interval '1-2' year to month", "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1-2' YEAR TO MONTH"),
        ("make_interval(1, 2)", "1 years 2 months", "1 years 2 months"),
        ("interval '1 02:03:04.5' day to second", "1 day, 2:03:04.500000", "1 day, 2:03:04.500000"),
        ("map(X'01', 2)", {"01": 2}, '{"01": 2}'),
        ("map(array(1), struct(X'ff' AS b))", {"[1]": {"b": "ff"}}, '{"[1]": {"b": "ff"}}'),
        ("map('x', date'+12026-11-21')", {"x": "+12026-11-21"}, '{"x": "+12026-11-21"}'),
        ("X'00ff'", "00ff", "00ff"),
        ("123456789012345678901234567890.12345678BD", "123456789012345678901234567890.12345678", None),
        ("1.50BD", 1.5, "1.50"),
        ("decimal(7)", 7, "7"),
        ("double('NaN')", "NaN", "NaN"),
        ("array(double('Infinity'), double('-Infinity'), 0.5D)", ["Infinity", "-Infinity", 0.5], None),
        ("null", None, "null"),
        ("chr(27) || '[2J'", "\x1b[2J", "\\x1b[2J"),
        ("true", True, "true"),
    ],
)
def test_whatever_is_asked_is_printed(sql, plain, cell, session):
    rows = Rows.of_spark(session.sql(f"SELECT {sql} AS `a.b`"))
    (line,) = json_lines(rows)
    assert json.loads(line, parse_constant=pytest.fail) == {"a.b": plain}
    heading, printed = table_lines(rows)
    assert heading == "a.b"
    wanted = plain if isinstance(plain, str) else json.dumps(plain)
    assert printed == (wanted if cell is None else cell)


def test_two_columns_of_one_name_are_two_in_a_table_and_refused_as_json(session):
    rows = Rows.of_spark(session.sql("SELECT 1 AS a, date'2026-11-21' AS a"))
    assert list(table_lines(rows)) == ["a  a", "1  2026-11-21"]
    assert list(csv_lines(rows)) == ["a,a", "1,2026-11-21"]
    for refuse in (lambda: list(json_lines(rows)), lambda: parquet_bytes(rows)):
        with pytest.raises(LocalError, match="two columns are called a"):
            refuse()


def test_csv_is_what_others_read(session):
    sql = "SELECT 'a,\"b\"\\r\\n' AS text, null AS none, array(1, 2) AS many, timestamp'2026-11-21 14:00:00' AS at"
    lines = list(csv_lines(Rows.of_spark(session.sql(f"{sql}, X'ff' AS b"))))
    read = list(csv.reader(io.StringIO("".join(f"{line}\r\n" for line in lines), newline="")))
    assert read == [
        ["text", "none", "many", "at", "b"],
        ['a,"b"\r\n', "", "[1, 2]", "2026-11-21T14:00:00+00:00", "ff"],
    ]


def test_parquet_keeps_the_types(session):
    sql = "SELECT 1L AS one, timestamp'+12026-11-21 14:00:00' AS at, array('x') AS many"
    found = pq.read_table(io.BytesIO(parquet_bytes(Rows.of_spark(session.sql(sql)))))
    assert [str(field.type) for field in found.schema] == [
        "int64",
        "timestamp[us, tz=UTC]",
        "list<element: string not null>",
    ]
    assert found["at"].cast("int64").to_pylist() == [317_364_789_600_000_000]


LONG = "t" * 249


def rows_of(names, *values):
    return Rows(StructType([StructField(name, StringType()) for name in names]), values, pytest.fail)


def test_a_long_value_is_cut_where_the_terminal_ends():
    rows = rows_of(["topic", "n", "reason"], (LONG, "1", "created"), ("short", "2", "why" * 4))
    assert list(table_lines(rows, 40)) == [
        f"topic{' ' * 20}n  reason",
        f"{'t' * 22}…  1  created",
        f"short{' ' * 20}2  whywhywhywhy",
    ]
    assert max(map(len, table_lines(rows))) == 249 + 2 + 1 + 2 + 12


def test_columns_that_do_not_fit_at_all_are_a_block_a_row():
    names = [f"column_{number}" for number in range(9)]
    lines = list(table_lines(rows_of(names, ["value"] * 9, [LONG] * 9), 80))
    assert lines[:3] == ["row 1:", "  column_0  value", "  column_1  value"]
    assert lines[10:12] == ["row 2:", f"  column_0  {LONG}"]
    narrow = rows_of(["a", "b", "c"], ("1", "2", "3"))
    assert list(table_lines(narrow, 7)) == ["a  b  c", "1  2  3"]
    assert list(table_lines(narrow, 6)) == ["row 1:", "  a  1", "  b  2", "  c  3"]


def test_the_order_of_rows_is_kept(session):
    rows = session.sql("SELECT id, timestamp_seconds(-id) AS at FROM range(0, 100, 1, 7) ORDER BY at")
    rows = Rows.of_spark(rows)
    assert [json.loads(line)["id"] for line in json_lines(rows)] == list(range(99, -1, -1))


def test_a_moment_offset_or_cluster_that_is_none_is_told(session, golden_tables, call):
    for text in ("0001-01-01T00:00+10:00", "9999-12-31T23:59-10:00"):
        done = call("state", "--tables", golden_tables, "--time", text, "leader")
        assert isinstance(done.exception, LocalError)
        assert "in UTC it is not of the years 1 to 9999" in str(done.exception)
    for offset in (-1, 1 << 63):
        with pytest.raises(LocalError, match="offsets are from 0 to 9223372036854775807"):
            kraft.state_as_of(session, golden_tables, offset=offset)
    with pytest.raises(LocalError, match="there is no cluster 'nobody'"):
        kraft.state_as_of(session, golden_tables, cluster_id="nobody")
    for edge, count in ((datetime(1, 1, 1, tzinfo=UTC), 0), (datetime(9999, 12, 31, 23, tzinfo=UTC), 1)):
        found = kraft.state_as_of(session, golden_tables, cluster_id="dynamic-c1", time=edge)
        assert found["leader"].count() == count
