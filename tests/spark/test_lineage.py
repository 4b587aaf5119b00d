"""Which records of a metadata transaction count."""

from __future__ import annotations

import pyarrow as pa

from kraftcore.plugins.spark.lineage import (
    ABORT,
    BEGIN,
    END,
    LogEnd,
    Snapshot,
    Stretch,
    aborted_spans,
    find_eras,
    read_lineage,
)


def test_only_what_was_aborted_is_dropped():
    assert aborted_spans([], 0) == []
    marks = [(5, BEGIN), (9, END), (20, BEGIN), (25, ABORT), (30, BEGIN), (31, ABORT), (40, BEGIN)]
    assert aborted_spans(reversed(marks), 0) == [(20, 25), (30, 31)]


def test_a_log_that_begins_inside_a_transaction_drops_no_more_than_it():
    assert aborted_spans([(120, ABORT), (130, BEGIN), (140, ABORT)], 100) == [(100, 120), (130, 140)]
    assert aborted_spans([(120, END), (140, ABORT)], 100) == []  # nothing is open at 140
    assert aborted_spans([(7, ABORT)], 0) == []  # nothing is open where a log begins


def test_an_era_starts_where_its_logs_do():
    log = LogEnd(1, 1, 300, ((1, 0),))
    stretches = [Stretch(1, 0, 50), Stretch(1, 100, 300)]
    first, second = find_eras([log], stretches, [Snapshot(7, 180, 1)])
    assert (first.start, second.start, second.state_from) == (0, 100, 180)


def test_a_cut_goes_by_what_earlier_cuts_left():
    about = {"source": "log", "is_valid": True, "file_id": 1, "log_id": 1, "node_id": 1}
    batches = [
        about | dict(zip(("generation", "position", "size", "base_offset", "last_offset", "epoch"), row, strict=True))
        for row in (
            (0, 0, 100, 0, 9, 1),
            (0, 100, 100, 10, 19, 1),  # the first cut took it
            (1, 100, 50, 10, 11, 2),
            (1, 150, 100, 12, 13, 2),
            (2, 250, 50, 14, 14, 3),
        )
    ]
    batches[3]["is_valid"] = False  # so that the last valid one before the second cut ends below the one that was taken
    files = [
        {"source": "log", "file_id": 1, "base_offset": 0, "epoch": -1, "generation": generation, "rewound_to": position}
        for generation, position in ((0, 0), (1, 100), (2, 250))
    ]
    lineage = read_lineage(pa.Table.from_pylist(batches), pa.Table.from_pylist(files))
    assert lineage.dead == [(1, 1, 10), (1, 2, 12)]
