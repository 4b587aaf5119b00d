"""Files that an operator names: properties, plans, secrets."""

from __future__ import annotations

from kraftcore.errors import StorageError


def read_given_file(path: str) -> bytes:
    """The whole content of a file or of a pipe (``/dev/stdin``, the shell's ``<(...)``), which has no size.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise StorageError(error.errno, error.strerror, path) from None
