"""An ``open_node`` of another world names the right one."""

from __future__ import annotations

import asyncio

import pytest
import trio
from nodes import Lab, Values

import kraftcore
from kraftcore import aio, blocking
from kraftcore.errors import LocalError

OPEN = {"trio": kraftcore.open_node, "asyncio": aio.open_node, "threads": blocking.open_node}
NAMES = {"trio": "kraftcore.open_node", "asyncio": "kraftcore.aio.open_node", "threads": "kraftcore.blocking.open_node"}


def refused(world, here, error):
    text = str(error)
    assert text.startswith(f"{NAMES[world]} cannot be used like this here, where {here} runs: ")
    assert f"with {NAMES[here]}(...)`" in text


async def with_await(world, here):
    with pytest.raises(LocalError) as caught:
        async with OPEN[world](Lab().config(1), Values()):
            pytest.fail("it opened")
    refused(world, here, caught.value)


def without_await(world, here):
    with pytest.raises(LocalError) as caught, OPEN[world](Lab().config(1), Values()):
        pytest.fail("it opened")
    refused(world, here, caught.value)


@pytest.mark.parametrize("world", ["asyncio", "threads"])
def test_in_trio(world):
    trio.run(with_await, world, "trio")


@pytest.mark.parametrize("world", ["trio", "threads"])
def test_in_asyncio(world):
    asyncio.run(with_await(world, "asyncio"))


@pytest.mark.parametrize("world", ["trio", "asyncio"])
def test_where_there_is_no_event_loop(world):
    without_await(world, "threads")


def test_a_plain_with_where_async_with_is_meant():
    async def in_trio():
        without_await("trio", "trio")

    async def in_asyncio():
        without_await("asyncio", "asyncio")

    trio.run(in_trio)
    asyncio.run(in_asyncio())
