"""Logs of tables in the format of Delta Lake, which the library deltalake reads, writes, checkpoints and cleans up.

Each step of a run is one commit in a table's log, and carries the step's number as the application transaction
``kraftcore``: a step that was applied to a table is not applied to the table again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.spark.folders import is_local, object_uri

APPLICATION = "kraftcore"
"""The id of the application transactions."""
LOG = "_delta_log"
_TRIES = 8
_CHECKPOINT_EVERY = 10
"""A reader of a table reads the commits since the last checkpoint one by one."""
_MARKS = re.compile(r"\x1b\[[0-9;]*m|\u21b3|<[^>]*>")
_STORE = {"max_retries": "2", "retry_timeout": "15s", "timeout": "20s"}
"""Options of deltalake's client of object stores, whose defaults try for minutes."""


@dataclass(frozen=True)
class File:
    """A file of a table.

    Attributes:
        size: bytes.
        rows: number of rows.
    """

    size: int
    rows: int


class TableLog:
    """The log of one table. What was read is kept: a later look reads only what is new.

    Args:
        place: path or URI of the table's folder.

    Raises:
        StorageError: from every method: the disk or store failed.
        CorruptDataError: from every method: the log is not one that deltalake can read.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._uri = place if is_local(place) else object_uri(place)
        self._options = None if is_local(place) else store_options()
        self._table: DeltaTable | None = None
        self._applied = (-1, -1)  # a version and the last step in it

    def files(self) -> list[str] | None:
        """The names of the files that count, relative to the table's folder; None: there is no such table."""
        with self._told():
            found = self._look()
            return None if found is None else _files(found)

    def add(self, number: int, columns: str, files: Mapping[str, File]) -> bool:
        """Add files in one commit, unless the log has changed since ``files()``.

        Args:
            number: number of the step.
            columns: the table's columns as Spark's JSON, for a new table.
            files: the new files.

        Returns:
            Whether this call made the commit. A commit whose answer was lost may count though this is False.
        """
        with self._told():
            return self.commit(number, Schema.from_json(columns), files, [])

    def apply(self, number: int, columns: str, files: Mapping[str, File]) -> None:
        """Bring the table to what a step says, unless this step or a later one was applied to the table.

        Args:
            number: number of the step.
            columns: the table's columns as Spark's JSON.
            files: all files that count after the step.
        """
        schema = Schema.from_json(columns)
        with self._told():
            for _ in range(_TRIES):
                table = self._look()
                if self._step() >= number:
                    return
                there = set() if table is None else set(_files(table))
                new = {name: file for name, file in files.items() if name not in there}
                if self.commit(number, schema, new, sorted(there - files.keys())):
                    return
        raise StorageError(errno.EAGAIN, "other writers of this table were faster each time: run it again", self._place)

    def drop(self, number: int, names: list[str]) -> bool:
        """Remove files in one commit, unless the log has changed since ``files()``; returns whether it was made."""
        with self._told():
            table = self._table or self._look()
            return table is not None and self.commit(number, table.schema(), {}, names)

    def vacuum(self, hours: int) -> None:
        """Delete files that no version of the table younger than ``hours`` has, and files that no version ever had."""
        with self._told():
            table = self._look()
            if table is not None:
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _look(self) -> DeltaTable | None:
        # The newest version.
        if self._table is not None:
            self._table.update_incremental()
        elif not is_local(self._place) or Path(self._place, LOG).is_dir():
            with suppress(TableNotFoundError):
                self._table = DeltaTable(self._uri, storage_options=self._options)
        return self._table

    def _step(self) -> int:
        # The last step that was applied to what was read.
        if self._table is None:
            return -1
        version, step = self._applied
        if version != self._table.version():
            found = self._table.transaction_version(APPLICATION)
            step = -1 if found is None else found
            self._applied = (self._table.version(), step)
        return step

    def commit(self, number: int, schema: Schema, new: Mapping[str, File], gone: list[str]) -> bool:
        """Make the version after the one that was read; False: another writer has made it, or there is a later one.

        Args:
            number: number of the step.
            schema: the columns, of which the table gets those that it lacks.
            new: files to add.
            gone: names of files to remove.
        """
        now = int(time.time() * 1000)
        added = [
            AddAction(name, file.size, {}, now, True, json.dumps({"numRecords": file.rows}))
            for name, file in new.items()
        ]
        how = CommitProperties(
            custom_metadata={"kraftcore.step": str(number)},
            max_commit_retries=0,
            app_transactions=[Transaction(APPLICATION, number)],
        )
        table = self._table
        try:
            if table is None:
                create_table_with_add_actions(
                    self._uri, schema, added, name=self._uri.rpartition("/")[2], storage_options=self._options,
                    configuration={"delta.checkpointInterval": str(_CHECKPOINT_EVERY)}, commit_properties=how,
                )  # fmt: skip
            else:
                known = {field.name for field in table.schema().fields}
                fields = [field for field in schema.fields if field.name not in known]
                if fields:
                    table.alter.add_columns(fields)
                    table.update_incremental()
                actions: list[AddAction | RemoveAction] = [*added, *(RemoveAction(name, True, now) for name in gone)]
                table.create_write_transaction(actions, "append", table.schema(), commit_properties=how)
        except CommitFailedError:
            return False
        except DeltaError as error:
            if table is None and "already exists" in str(error):
                return False
            raise
        version = 0 if table is None else table.version() + 1
        self._applied = (version, number)
        if (version + 1) % _CHECKPOINT_EVERY == 0:
            self._table = None  # opened anew from the checkpoint, not from all commits before
        self._sync(version)
        return True

    def _sync(self, version: int) -> None:
        # deltalake does not sync what it writes.
        if not is_local(self._place):
            return
        folder, files = Path(self._place, LOG), OsFiles()
        for name in os.listdir(folder):
            if name == "_last_checkpoint" or (name[:20].isdecimal() and int(name[:20]) >= version):
                with files.open(str(folder / name), read_only=True) as file:
                    file.sync()
        for place in (folder, folder.parent):
            files.sync_folder(str(place))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except DeltaError as error:
            text = f"not a log that deltalake can read or write: {_line(error)}"
            raise CorruptDataError(text, path=self._place) from None
        except OSError as error:
            raise StorageError(error.errno or 0, error.strerror or _line(error), self._place) from None


def _line(error: Exception) -> str:
    # deltalake's errors are trees of lines with colours, and the store's XML.
    lines = (" ".join(_MARKS.sub(" ", line).split()) for line in str(error).splitlines())
    return ": ".join(line for line in lines if line)


def _files(table: DeltaTable) -> list[str]:
    found = table.get_add_actions()
    return [str(one) for one in found["path"].to_pylist()]


def store_options() -> dict[str, str]:
    """Options of deltalake for an object store, beside those that deltalake reads from the environment."""
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return {**_STORE, **({"AWS_ALLOW_HTTP": "true"} if plain else {})}
