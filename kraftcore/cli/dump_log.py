"""``kraftcore dump-log``: Kafka's kafka-dump-log, for the files of any partition.

Text output is byte for byte that of Kafka 4.3.1 (org.apache.kafka.tools.DumpLogSegments), on stdout and on stderr;
where that tool ends in a stack trace, this one prints a line. Differences, all deliberate: files of any size; no
decoders for other topics and no decoder classes (--offsets-decoder, --transaction-log-decoder,
--share-group-state-decoder, --remote-log-metadata-decoder, --key-decoder-class, --value-decoder-class); no record
formats older than magic 2; ``--output json``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from click.shell_completion import CompletionItem

from kraftcore.cli.index_files import IndexDumper, OutputFile, offset_of
from kraftcore.cli.output import is_terminal
from kraftcore.core.disk.files import File
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.dump import BatchPrinter
from kraftcore.errors import CorruptDataError, LocalError
from kraftcore.protocol.control import ControlRecordType
from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord
from kraftcore.protocol.data.leader_change_message import LeaderChangeMessage
from kraftcore.protocol.data.snapshot_footer_record import SnapshotFooterRecord
from kraftcore.protocol.data.snapshot_header_record import SnapshotHeaderRecord
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.protocol.registry import MetadataRecordType, record_class
from kraftcore.storage.bootstrap import BOOTSTRAP_CHECKPOINT

NO_LIMIT = (1 << 31) - 1  # the default of --max-bytes
READ_BYTES = 1 << 20
PROGRESS_BYTES = 64 << 20  # smaller files are done before a progress bar is of use

# Label as Kafka prints it, body.
CONTROL_RECORDS = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChange:", LeaderChangeMessage),
    ControlRecordType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    ControlRecordType.KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    ControlRecordType.KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}


class FileList(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Paths, separated by commas."""

    name = "FILE,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split the list; double slashes and a slash at a path's end are removed, as in Java."""
        if isinstance(value, list):
            return value
        paths = str(value).split(",")
        while paths and not paths[-1]:
            paths.pop()
        return [re.sub("/+", "/", path).rstrip("/") if path != "/" else path for path in paths]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the path after the last comma."""
        done, comma, last = incomplete.rpartition(",")
        if not comma:
            return [CompletionItem(incomplete, type="file")]
        folder, prefix = os.path.split(last)
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            return []
        found = [os.path.join(folder, name) for name in names if name.startswith(prefix)]
        return [CompletionItem(f"{done},{path}{'/' if os.path.isdir(path) else ''}") for path in found]


def _one_list(ctx: click.Context, param: click.Parameter, lists: tuple[list[str], ...]) -> list[str]:
    # If an option is given twice, click would take only the last.
    if len(lists) > 1:
        raise click.UsageError("Found multiple arguments for option files, but you asked for only one", ctx)
    return lists[0]


@click.command(
    epilog="""\b
Examples:
  The records of a metadata log segment, decoded:
    kraftcore dump-log --cluster-metadata-decoder --files __cluster_metadata-0/00000000000000000000.log
  A snapshot and the file that format left:
    kraftcore dump-log --cluster-metadata-decoder --files bootstrap.checkpoint,*-0000000002.checkpoint
  Only the batches, to see where a damaged log ends:
    kraftcore dump-log --files 00000000000000000000.log
  Which topics were created:
    kraftcore dump-log --cluster-metadata-decoder --output json --files 00000000000000000000.log |
      jq -r 'select(.payload.type == "TOPIC_RECORD") | .payload.data.name'

\b
JSON output has one object a line; "kind" says what it is:
  file              path, type (log, checkpoint, index, timeindex, producerSnapshot, transactionIndex),
                    and baseOffset, or endOffset and epoch
  batch             the fields of the text output; deleteHorizonMs is null when not set
  record            offset, timestamp, keySize, valueSize, sequence, headerKeys; then key and payload as
                    text (keyBase64, payloadBase64 if they are not UTF-8), payload as an object with
                    --cluster-metadata-decoder (with "error" if it cannot be decoded), or controlType and data
  trailingBytes     bytes that are no whole batch at the end of the file
  gap               record offsets that do not follow on: after (-1 at the start) and next
  indexEntry, timeIndexEntry, producer, abortedTransaction
                    what the other files hold, one by one
  indexCheck, indexMismatch, timeIndexMismatch, timeIndexOrder, offsetNotFound, producerFault
                    findings, which the text output has on stderr

Not offered: the decoders for other topics than the metadata log, and decoder classes.
"""
)
@click.option(
    "--files",
    "paths",
    type=FileList(),
    required=True,
    multiple=True,  # so that a second one is seen
    callback=_one_list,
    help="The files to print, as a,b: .log, .checkpoint, .index, .timeindex, .snapshot (producer state), .txnindex.",
)
@click.option(
    "--cluster-metadata-decoder",
    is_flag=True,
    help="Decode the values of records as those of the metadata log, and print records, not only batches.",
)
@click.option(
    "--print-data-log",
    is_flag=True,
    help="Print the keys and values of records, as text. With a decoder they are printed anyway.",
)
@click.option(
    "--deep-iteration", is_flag=True, help="Print records, not only batches. Options that print values do so anyway."
)
@click.option(
    "--skip-record-metadata", is_flag=True, help="Print of each record its key and value alone, and no control records."
)
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="Of .index and .timeindex files: check only whether a node that starts would build them anew.",
)
@click.option(
    "--verify-index-only",
    is_flag=True,
    help="Of .index and .timeindex files: compare each with its log, and print only what differs.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(0, NO_LIMIT),
    default=NO_LIMIT,
    help="Bytes of each .log file to read at most, from its beginning.  [default: all]",
)
@click.option(
    "--max-message-size",
    type=click.IntRange(0, NO_LIMIT),
    default=5 * 1024 * 1024,
    show_default=True,
    help="Bytes of the largest batch that a check of an index expects to find.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output form.")
@click.pass_context
def dump_log(
    ctx: click.Context,
    paths: list[str],
    cluster_metadata_decoder: bool,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    index_sanity_check: bool,
    verify_index_only: bool,
    max_bytes: int,
    max_message_size: int,
    output: str,
) -> None:
    """Print segments, snapshots and index files, as kafka-dump-log does.

    Only reads, so the files may be those of a running node. Checks the checksum of every batch, and prints what is
    behind a wrong one all the same. A file that cannot be read to its end is an error: exit status 1, after the text
    before that place.
    """
    out = OutputFile(as_json=output == "json")
    dumper = LogDumper(
        out,
        decode=cluster_metadata_decoder,
        contents=print_data_log or cluster_metadata_decoder,
        deep=deep_iteration or print_data_log or cluster_metadata_decoder,
        skip_metadata=skip_record_metadata,
        max_bytes=max_bytes,
    )
    indexes = IndexDumper(
        out, sanity_only=index_sanity_check, verify_only=verify_index_only, max_batch_bytes=max_message_size
    )
    for path in paths:
        out.text(f"Dumping {path}\n")
        suffix = os.path.splitext("x" + os.path.basename(path))[1]
        if suffix in (".log", ".checkpoint"):
            dumper.dump(path)
        elif not indexes.dump(path, suffix):
            out.flush()
            click.echo(f"Ignoring unknown file {path}", err=True)
    indexes.report()
    dumper.report()
    out.flush()


class LogDumper:
    """Prints ``.log`` and ``.checkpoint`` files."""

    def __init__(
        self, out: OutputFile, *, decode: bool, contents: bool, deep: bool, skip_metadata: bool, max_bytes: int
    ) -> None:
        self.out = out
        self.decode = decode
        self.contents = contents
        self.deep = deep
        self.skip_metadata = skip_metadata
        self.max_bytes = max_bytes
        self.jumps: dict[str, dict[int, int]] = {}

    def dump(self, path: str) -> None:
        """Print one file.

        Raises:
            CorruptDataError: damage that cannot be printed.
            LocalError: the file's name has no offset.
            StorageError: the file cannot be read.
        """
        self._print_head(path)
        with OsFiles().open(path, read_only=True) as file:
            printer = BatchPrinter(
                self.out.write,
                deep=self.deep,
                contents=self.contents,
                skip_metadata=self.skip_metadata,
                as_json=self.out.as_json,
                metadata_records=find_record if self.decode else None,
                control_records={
                    number: (number.name, label, body) for number, (label, body) in CONTROL_RECORDS.items()
                },
            )
            size = file.size()
            end = min(size, self.max_bytes) if self.max_bytes < NO_LIMIT else size
            try:
                left = _print_batches(printer, file, end)
            except CorruptDataError as error:
                raise CorruptDataError(error.reason, position=error.position, path=path) from None
            finally:
                if printer.jumps:
                    self.jumps.setdefault(os.path.abspath(path), {}).update(printer.jumps)
        if left and self.max_bytes == NO_LIMIT:
            self.out.line(
                f"Found {left} invalid bytes at the end of {os.path.basename(path)}", kind="trailingBytes", bytes=left
            )

    def _print_head(self, path: str) -> None:
        name = os.path.basename(path)
        if name == BOOTSTRAP_CHECKPOINT:
            self.out.line("KRaft bootstrap snapshot", kind="file", path=path, type="checkpoint", endOffset=0, epoch=0)
        elif name.endswith(".checkpoint"):
            found = re.match(r"(\d{20}).(\d{10})", name, re.ASCII)
            if found is None:
                raise LocalError(f"{path}: a snapshot is named <end offset, 20 digits>-<epoch, 10 digits>.checkpoint")
            end_offset, epoch = int(found[1]), int(found[2])
            self.out.line(
                f"Snapshot end offset: {end_offset}, epoch: {epoch}",
                kind="file",
                path=path,
                type="checkpoint",
                endOffset=end_offset,
                epoch=epoch,
            )
        else:
            base_offset = offset_of(path)
            self.out.line(
                f"Log starting offset: {base_offset}", kind="file", path=path, type="log", baseOffset=base_offset
            )

    def report(self) -> None:
        """Print gaps in offsets: on stderr, as Kafka does; in JSON on stdout."""
        for path, jumps in self.jumps.items():
            self.out.problem(f"Non-consecutive offsets in {path}")
            for before, after in sorted(jumps.items()):
                self.out.problem(f"  {before} is followed by {after}", kind="gap", path=path, after=before, next=after)


def find_record(number: int) -> tuple[str, type]:
    """A metadata record type's name and class, for `BatchPrinter`.

    Raises:
        UnsupportedVersionError: there is no such type.
    """
    found = record_class(number)
    return MetadataRecordType(number).name, found


def _print_batches(printer: BatchPrinter, file: File, end: int) -> int:
    """Feed the file piece by piece; returns the bytes behind the last whole batch."""
    position = 0
    need = 1
    with _progress(end, os.path.basename(file.path)) as advance:
        while need and position < end:
            wanted = min(max(need, READ_BYTES), end - position)
            data = file.read_at(position, wanted)
            if len(data) < wanted:  # the file became shorter while it was read
                end = position + len(data)
            used, need = printer.feed(data, position, end)
            position += used
            advance(used)
    return end - position


@contextmanager
def _progress(size: int, name: str) -> Iterator[Callable[[int], object]]:
    if size < PROGRESS_BYTES or not is_terminal(sys.stderr) or is_terminal(sys.stdout):
        yield lambda _: None
        return
    with click.progressbar(length=size, label=name, file=sys.stderr) as bar:
        yield bar.update
