"""The checker that the other tests trust."""

from __future__ import annotations

from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linearizability import UNKNOWN, Operation, check, counter_step, linearization, queue_step, register_step


def op(name, arguments, result, called, answered):
    return Operation(name, arguments, result, called, answered)


def test_a_stale_read_is_caught():
    history = [
        op("set", ("k", 1), None, 0, 1),
        op("set", ("k", 2), None, 2, 3),
        op("get", ("k",), 1, 4, 5),
    ]
    with pytest.raises(AssertionError, match="not linearizable"):
        check(history, register_step, None)


def test_a_read_beside_a_write_may_see_either():
    for seen in (1, 2):
        history = [op("set", ("k", 1), None, 0, 1), op("set", ("k", 2), None, 2, 5), op("get", ("k",), seen, 3, 4)]
        check(history, register_step, None)


def test_reads_may_not_go_back():
    history = [
        op("set", ("k", 1), None, 0, 9),
        op("get", ("k",), 1, 1, 2),
        op("get", ("k",), None, 3, 4),
    ]
    assert linearization(history, register_step, None) is None


def test_an_operation_without_an_answer_may_have_happened_or_not():
    pending = op("add", (5,), UNKNOWN, 0, inf)
    for seen in (0, 5):
        check([pending, op("get", (), seen, 1, 2)], counter_step, 0)
    with pytest.raises(AssertionError):
        check([pending, op("get", (), 5, 1, 2), op("get", (), 0, 3, 4)], counter_step, 0)


def test_an_item_taken_twice_is_caught():
    history = [op("put", (1,), None, 0, 1), op("get", (), 1, 2, 5), op("get", (), 1, 3, 4)]
    assert linearization(history, queue_step, ()) is None


def test_keys_are_checked_apart():
    good = [op("set", ("a", 1), None, 0, 1), op("get", ("a",), 1, 2, 3)]
    bad = [op("set", ("b", 1), None, 4, 5), op("get", ("b",), None, 6, 7)]
    check(good, register_step, None, partition=lambda one: one.arguments[0])
    with pytest.raises(AssertionError, match="part 'b'"):
        check(good + bad, register_step, None, partition=lambda one: one.arguments[0])


def _naive(history, step, initial):
    """Try every order of every choice of the unanswered."""
    for chosen in range(1 << len(history)):
        some = [one for at, one in enumerate(history) if chosen >> at & 1]
        if any(one.result is not UNKNOWN and one not in some for one in history):
            continue
        for order in permutations(some):
            if any(b.answered < a.called for at, a in enumerate(order) for b in order[at + 1 :]):
                continue
            state = initial
            for one in order:
                state, result = step(state, one.name, one.arguments)
                if one.result is not UNKNOWN and result != one.result:
                    break
            else:
                return True
    return False


@st.composite
def histories(draw):
    count = draw(st.integers(1, 5))
    moments = draw(st.permutations(range(2 * count)))
    found = []
    for at in range(count):
        called, answered = sorted(moments[2 * at : 2 * at + 2])
        name = draw(st.sampled_from(["get", "set", "cas"]))
        arguments = {"get": ("k",), "set": ("k", draw(st.integers(0, 1))), "cas": ("k", 0, 1)}[name]
        result = draw({"get": st.sampled_from([None, 0, 1]), "set": st.none(), "cas": st.booleans()}[name])
        if draw(st.integers(0, 3)) == 0:
            result, answered = UNKNOWN, inf
        found.append(op(name, arguments, result, called, answered))
    return found


@given(histories())
def test_it_agrees_with_trying_everything(history):
    order = linearization(history, register_step, None)
    assert (order is not None) == _naive(history, register_step, None)
