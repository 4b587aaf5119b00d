"""What ``query``, ``state`` and ``report`` answer, in the command's own process or in a session's that stays."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftcore.errors import LocalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraftcore.plugins.spark.printing import Rows

Event: TypeAlias = tuple[str, str]
"""A part of an answer: ``out`` with a line for stdout, ``err`` with one for stderr, ``bytes`` with bytes for stdout in
base64, or ``stage`` with the name of the stage that begins."""
Request: TypeAlias = Mapping[str, Any]
"""What is asked, as JSON holds it: the name of the command as ``command``, and its arguments."""
OUTPUTS = ("table", "json", "csv", "parquet")


def answer(session: Callable[[], SparkSession], request: Request) -> Iterator[Event]:
    """Answer a request.

    Args:
        session: gives Spark's session; it is not called where Spark is not needed.
        request: the request.

    Raises:
        KraftError: what is asked is not there, or cannot be written.
        PySparkException, Py4JError: an error of Spark's.
    """
    try:
        found = _BY_COMMAND[request["command"]]
        yield from found(session, request)
    except KeyError as error:
        raise LocalError(f"the request lacks {error}, or names what this version does not know") from None


def _query(session: Callable[[], SparkSession], request: Request) -> Iterator[Event]:
    from kraftcore.plugins import spark as kraft
    from kraftcore.plugins.spark.printing import Rows

    spark = session()
    yield "stage", "asking Spark"
    rows = Rows.of_spark(kraft.query(spark, request["tables"], request["sql"], at=_moment(request["at"])))
    yield from _printed(rows, request["output"], request["width"])


def _state(session: Callable[[], SparkSession], request: Request) -> Iterator[Event]:
    from kraftcore.plugins.spark.engines import engine_for
    from kraftcore.plugins.spark.state import STATE_TABLES, States
    from kraftcore.plugins.spark.tables import Tables

    output, offset = request["output"], request["offset"]
    moment = _moment(request["time"])
    tables = Tables(session, request["tables"])
    tables.check()
    with engine_for(tables, STATE_TABLES) as engine:
        yield "stage", "asking the tables"
        states = States(tables, engine, request["cluster_id"])
        texts = states.texts(offset=offset, time=moment)
        if offset is None and moment is None:
            for name, (begin, known_end) in sorted(states.unknown_ends().items()):
                shown = "it never is" if known_end is None else "shown is how it was there"
                yield "err", f"{name}: the state at the end is not known: no snapshot after offset {begin}; {shown}"
        else:
            for line in states.beyond_log(offset=offset, time=moment):
                yield "err", line
        for kind in request["kinds"] or texts:
            rows = engine.rows(texts[kind])
            if output == "table":
                lines = [text for _, text in _printed(rows, output, request["width"])]
                yield from (("out", line) for line in ([f"{kind}:", *lines] if len(lines) > 1 else []))
            else:
                yield from _printed(rows, output, None, {"kind": kind})


def _report(session: Callable[[], SparkSession], request: Request) -> Iterator[Event]:
    from kraftcore.plugins import spark as kraft

    yield "stage", "asking the tables, and drawing"
    kraft.write_report(
        session,
        request["tables"],
        request["target"],
        pictures=request["pictures"],
        cluster_ids=request["cluster_ids"],
        at=_moment(request["at"]),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


_BY_COMMAND: dict[str, Callable[[Callable[[], SparkSession], Request], Iterator[Event]]] = {
    "query": _query,
    "state": _state,
    "report": _report,
}


def _printed(rows: Rows, output: str, width: int | None, more: Mapping[str, str] | None = None) -> Iterator[Event]:
    from kraftcore.plugins.spark.printing import csv_lines, json_lines, parquet_bytes, table_lines

    if output == "parquet":
        yield "bytes", b64encode(parquet_bytes(rows)).decode()
    elif output == "csv":
        yield from (("out", line) for line in csv_lines(rows))
    elif output == "json":
        yield from (("out", line) for line in json_lines(rows, more))
    else:
        yield from (("out", line) for line in table_lines(rows, width))
