"""Whoever knows one node knows the others: no method is missing for asyncio or threads, or has other arguments."""

from __future__ import annotations

import inspect

import pytest

import kraftcore
from kraftcore import Node, aio, blocking

# Counted by the node's own task; read there, by ``call``.
IN_TRIO_ONLY = {"logins"}
NAMES = sorted(name for name in vars(Node) if not name.startswith("_") and name not in IN_TRIO_ONLY)


@pytest.mark.parametrize("library", [aio.Node, blocking.Node])
@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_there_with_the_same_arguments(library, name):
    original, found = getattr(Node, name), getattr(library, name)
    if not callable(original):
        assert isinstance(found, property)
        return
    arguments = [inspect.signature(method).parameters for method in (original, found)]
    assert arguments[0].keys() == arguments[1].keys()
    assert [each.default for each in arguments[0].values()] == [each.default for each in arguments[1].values()]
    is_awaited = inspect.iscoroutinefunction(found)
    assert is_awaited == (library is aio.Node and inspect.iscoroutinefunction(original))


@pytest.mark.parametrize("name", ["open_node", "attach", "open_or_attach"])
@pytest.mark.parametrize("library", [aio, blocking])
def test_what_opens_a_node_takes_the_same_arguments(library, name):
    given, wanted = (inspect.signature(getattr(each, name)) for each in (library, kraftcore))
    assert given.parameters.keys() == wanted.parameters.keys()
