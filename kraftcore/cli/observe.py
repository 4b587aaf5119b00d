"""``kraftcore observe``: prints a quorum's records when they are committed, and mirrors its log in a directory."""

from __future__ import annotations

import click

from kraftcore.cli.admin_tool import make_connection
from kraftcore.protocol.topics import METADATA_TOPIC

OUTPUTS = ["text", "json", "none"]


@click.command(
    epilog="""\b
Examples:
  Topics as they come and go, from now on:
    kraftcore observe --bootstrap-controller 127.0.0.1:9093 --from-end --type TopicRecord,RemoveTopicRecord
  All metadata there is, as JSON lines:
    kraftcore observe --bootstrap-controller 127.0.0.1:9093 --output json --once | jq -c .payload
  A mirror, kept up to date for as long as the command runs:
    kraftcore observe --bootstrap-controller c1:9093,c2:9093 --directory /var/lib/mirror --output none

\b
The mirror is laid out as a node's directory: dump-log and spark read it. Started again with the same --directory, the
command fetches only what is new. If the quorum has deleted what would come next, it sends a snapshot instead, which
replaces the mirrored log. Snapshots that the quorum writes meanwhile are copied, too; with --retention-bytes they let
go what is older.

\b
JSON output has one object a line, as dump-log has them; "kind" says what it is:
  record     offset, timestamp, keySize, valueSize, sequence, headerKeys; then payload with type, version and data of
             a metadata record (or error, and payloadBase64: it is of a type or version that is not known), key and
             payload as text or base64 of other topics' records, and of an application's own (told by the first ones,
             and said on stderr); controlType and data for control records
  snapshot   endOffset, epoch: what follows, up to a SNAPSHOT_FOOTER, replaces everything below endOffset; offsets in
             there are the snapshot's own

On stderr it says which leader it follows, up to which offset all is here, and while no leader answers, which nodes do.

The quorum does not notice: the command votes for nobody and is in no list of observers. SIGINT (Ctrl-C), SIGTERM and
SIGHUP (its terminal was closed; not under nohup) end it with exit status 0; everything that was printed is in the
mirror. A second SIGINT or SIGTERM ends it at once.
"""
)
@click.option(
    "--bootstrap-controller",
    metavar="LIST",
    required=True,
    help="Controllers to ask, as host:port,host:port. One that answers is enough: it names the others.",
)
@click.option(
    "--command-config",
    metavar="FILE",
    help="Properties file that says how to connect: "
    "security.protocol, ssl.* (files in PEM), sasl.*. "
    "Without it: unencrypted, and without a login.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    help="Directory of the mirror; made if it is missing, and continued if it "
    "holds a mirror.  [default: a temporary one, removed at the end]",
)
@click.option(
    "--retention-bytes",
    type=int,
    default=-1,
    metavar="N",
    help="Bytes that the mirror may take: what is older is deleted, as far as a "
    "snapshot has it. Negative: no limit.  [default: -1]",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Print the records that the quorum has, then those that are committed. This is the default.",
)
@click.option("--from-end", is_flag=True, help="Print only the records that are committed from now on.")
@click.option("--from-offset", type=click.IntRange(0), metavar="N", help="Print the records from this offset on.")
@click.option(
    "--type",
    "types",
    metavar="LIST",
    help="Print only metadata records of these types, as TopicRecord,PartitionRecord.",
)
@click.option("--once", is_flag=True, help="End once all is printed that was committed when the command began.")
@click.option("--topic", default=METADATA_TOPIC, show_default=True, help="Name of the topic that the quorum's log is.")
@click.option(
    "--topic-id",
    metavar="UUID",
    help="Id of that topic. Of another topic than the cluster's "
    "metadata, values are printed as text.  [default: that of the "
    "metadata]",
)
@click.option(
    "--output",
    type=click.Choice(OUTPUTS),
    default="text",
    show_default=True,
    help="text: as dump-log prints it; json: one object a line; none: print nothing, only keep the mirror.",
)
def observe(
    bootstrap_controller: str,
    command_config: str | None,
    directory: str | None,
    retention_bytes: int,
    from_beginning: bool,
    from_end: bool,
    from_offset: int | None,
    types: str | None,
    once: bool,
    topic: str,
    topic_id: str | None,
    output: str,
) -> None:
    """Follow a quorum of Kafka's controllers or kraftcore's, and print its records as they are committed."""
    if from_beginning + from_end + (from_offset is not None) > 1:
        raise click.UsageError("--from-beginning, --from-end and --from-offset exclude each other")
    from kraftcore.cli.observe_run import Request, run_observer, type_names
    from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid

    request = Request(
        connection=make_connection(None, bootstrap_controller, command_config),
        directory=directory,
        retention_bytes=retention_bytes,
        from_offset=None if from_end else from_offset or 0,
        types=type_names(types),
        once=once,
        topic=topic,
        topic_id=METADATA_TOPIC_ID if topic_id is None else Uuid.from_string(topic_id),
        output=output,
    )
    run_observer(request)
