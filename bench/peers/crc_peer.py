"""CRC-32C: ours and the packages that others use."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module

from bench import inputs
from bench.harness import Missing, Operation, loop
from kraftcore.core.crc32c import crc32c

PACKAGES = {"crc32c": "crc32c", "google-crc32c": "google_crc32c"}


def ours(size: int) -> Operation:
    """The kernel that checks batches."""
    return _operation(crc32c, size)


def theirs(package: str, size: int) -> Operation:
    """A package's function, whatever it is called."""
    try:
        module = import_module(PACKAGES[package])
    except ImportError as error:
        raise Missing(f"pip install '.[bench]' brings {package}") from error
    return _operation(module.crc32c if package == "crc32c" else module.value, size)


def _operation(function: Callable[[bytes], int], size: int) -> Operation:
    data = random.Random(inputs.SEED).randbytes(size)
    return Operation(loop(lambda: function(data)), lambda: f"{function(data):08x}")
