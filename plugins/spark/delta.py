"""Logs of tables in the format of Delta Lake, which the library deltalake reads, writes, checkpoints and cleans up.

Each step of a run is one commit in a table's log, and carries the step's number as the application transaction
``kraftcore``: a step that was applied to a table is not applied to the table again.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
_STORE = {"max_retries": "2", "retry_timeout": "20s"}
"""Options of deltalake's client of object stores, whose defaults try for minutes; variables like AWS_* come first."""


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
    """The log of one table.

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

    def files(self) -> list[str] | None:
        """The names of the files that count, relative to the table's folder; None: there is no such table."""
        found = self._open()
        return None if found is None else _files(found)

    def add(self, number: int, columns: str, files: Mapping[str, File], after: list[str] | None) -> bool:
        """Add files in one commit, unless the log has changed.

        Args:
            number: number of the step.
            columns: the table's columns as Spark's JSON, for a new table.
            files: the new files.
            after: what ``files()`` returned.

        Returns:
            Whether the commit was made.
        """
        with self._told():
            table = self._open()
            if (None if table is None else _files(table)) != after:
                return False
            return self.commit(table, number, Schema.from_json(columns), files, [])

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
                table = self._open()
                done = None if table is None else table.transaction_version(APPLICATION)
                if done is not None and done >= number:
                    return
                there = set() if table is None else set(_files(table))
                new = {name: file for name, file in files.items() if name not in there}
                if self.commit(table, number, schema, new, sorted(there - files.keys())):
                    return
        raise StorageError(errno.EAGAIN, "other writers of this table were faster each time: run it again", self._place)

    def drop(self, number: int, names: list[str]) -> bool:
        """Remove files in one commit; False: another writer was faster."""
        with self._told():
            table = self._open()
            return table is not None and self.commit(table, number, table.schema(), {}, names)

    def vacuum(self, hours: int) -> None:
        """Delete files that no version of the table younger than ``hours`` has, and files that no version ever had."""
        with self._told():
            table = self._open()
            if table is not None:
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _open(self) -> DeltaTable | None:
        if is_local(self._place) and not Path(self._place, LOG).is_dir():
            return None
        with self._told():
            try:
                return DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError:
                return None

    def commit(
        self, table: DeltaTable | None, number: int, schema: Schema, new: Mapping[str, File], gone: list[str]
    ) -> bool:
        """Make one commit; False: another writer has made one since the table was opened.

        Args:
            table: the table as it was opened; None: a new one is made.
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
        try:
            if table is None:
                create_table_with_add_actions(
                    self._uri, schema, added, name=self._uri.rpartition("/")[2], storage_options=self._options,
                    commit_properties=how,
                )  # fmt: skip
            else:
                known = {field.name for field in table.schema().fields}
                fields = [field for field in schema.fields if field.name not in known]
                if fields:
                    table.alter.add_columns(fields)
                    table = DeltaTable(self._uri, storage_options=self._options)
                actions: list[AddAction | RemoveAction] = [*added, *(RemoveAction(name, True, now) for name in gone)]
                table.create_write_transaction(actions, "append", table.schema(), commit_properties=how)
        except CommitFailedError:
            return False
        except DeltaError as error:
            if table is None and "already exists" in str(error):
                return False
            raise
        self._sync(0 if table is None else table.version() + 1)
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
            raise CorruptDataError(f"not a log that deltalake can read or write: {error}", path=self._place) from None
        except OSError as error:
            raise StorageError(error.errno or 0, error.strerror or str(error), self._place) from None


def _files(table: DeltaTable) -> list[str]:
    found = table.get_add_actions()
    return [str(one) for one in found["path"].to_pylist()]


def store_options() -> dict[str, str]:
    """Options of deltalake for an object store, beside those that deltalake reads from the environment."""
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return {**_STORE, **({"AWS_ALLOW_HTTP": "true"} if plain else {})}
