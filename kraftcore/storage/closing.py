"""A base class of objects that are closed at the end of a ``with``."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Base class of objects with a ``close`` that may be called more than once."""

    def close(self) -> None:
        """Release files and other resources. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
