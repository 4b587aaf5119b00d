"""Which records of a metadata transaction count."""

from __future__ import annotations

from kraftcore.plugins.spark.lineage import ABORT, BEGIN, END, LogEnd, Snapshot, Stretch, aborted_spans, find_eras


def test_only_what_was_aborted_is_dropped():
    assert aborted_spans([], 0) == []
    marks = [(5, BEGIN), (9, END), (20, BEGIN), (25, ABORT), (30, BEGIN), (31, ABORT), (40, BEGIN)]
    assert aborted_spans(reversed(marks), 0) == [(20, 25), (30, 31)]


def test_a_log_that_begins_inside_a_transaction_drops_no_more_than_it():
    assert aborted_spans([(120, ABORT), (130, BEGIN), (140, ABORT)], 100) == [(100, 120), (130, 140)]
    assert aborted_spans([(120, END), (140, ABORT)], 100) == []  # nothing is open at 140
    assert aborted_spans([(7, ABORT)], 0) == []  # nothing is open where a log begins


def test_an_era_starts_where_its_logs_do():
    log = LogEnd("c", 1, 1, 300, ((1, 0),))
    stretches = [Stretch("c", 1, 1, 0, 50), Stretch("c", 1, 1, 100, 300)]
    first, second = find_eras("c", [log], stretches, [Snapshot("c", 7, 180, 1)])
    assert (first.start, second.start, second.state_from) == (0, 100, 180)
