"""Recipes for asyncio and threads are what trio's recipes make of them."""

from __future__ import annotations

from importlib import import_module

import pytest
from recipe_facades import FILES, ITERATED, NODES, Facade, meaning

from kraftcore import recipes


@pytest.mark.parametrize("world", FILES)
def test_asyncio_and_threads_have_what_trio_has(world, request):
    if request.config.getoption("rewrite"):
        FILES[world].write_text(Facade(world).formatted())
    is_same = meaning(FILES[world].read_text()) == meaning(Facade(world).text())
    assert is_same, "trio's recipes changed: run this test with --rewrite"
    module = import_module(f"kraftcore.{NODES[world]}.recipes")
    assert {*module.__all__, *ITERATED} == set(recipes.__all__)


def test_the_short_name_is_a_module_with_the_same_objects():
    short, long = import_module("kraftcore.recipes"), import_module("kraftcore.plugins.recipes")
    assert short.__all__ == long.__all__
    assert all(getattr(short, name) is getattr(long, name) for name in long.__all__)
