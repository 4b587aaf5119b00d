"""Runs the commands of scenario files against real replicas, with a hand on every message, flush and clock.

Commands (words; ``key=value`` options in any order):

    add-nodes COUNT [version=0|1] [observers=N] [reluctant=ID,ID] [stranger=ID] [logID=EPOCHS] [hidden=ID]
              [also=LISTENER] [bootstrap=0] [forgot=ID,ID] [observer_linger=MS] [lease=MS]
                                 a quorum starts; a log may hold a batch per epoch named; the entry of the hidden voter
                                 has no endpoint for the others' listener; the stranger belongs to another cluster;
                                 ``also`` names a second listener, which update-voter puts first; bootstrap=0: no
                                 servers named; forgot=ID,ID: these formatted themselves
    tick MS                      let time pass for everyone, timer by timer; nothing sent arrives
    pass MS                      let time pass, and everything arrive and be flushed at once
    timeout ID                   let exactly this node's next timer run out
    campaign ID                  ``timeout`` until it is a candidate or prospective
    append ID VALUE...           propose a batch
    deliver [FROM->TO] [n=N]     deliver what is queued (of that link; at most so many)
    drop [FROM->TO]              lose it instead
    refuse FROM->TO [why=UNSUPPORTED_VERSION]    the connection is refused: the sender is told so of all it asked
    flush ID | hold-flush ID | let-flush ID    let the flush that was asked for end; stop, go on doing so by itself
    crash ID [lost]              power cut; with ``lost`` nothing unflushed survives
    restart ID | replace-disk ID [forgot=1] | move ID PORT    forgot: it formatted itself, and may have forgotten what
                                 it promised; move: it listens elsewhere once it restarts
    supports ID LOW-HIGH|none|ERROR    what it answers to ApiVersions
    isolate ID | join ID         cut all links of a node; mend them
    stabilize                    deliver and flush until nothing moves, without time passing
    quietly COMMAND...           carry it out and leave its transcript away: it is told elsewhere
    add-voter|remove-voter|update-voter LEADER VOTER [dir=OTHER] [ack=0] [also=LISTENER]
    vote TO from=ID epoch=N last=OFFSET@EPOCH [pre=1] [voter=ID] [dir=ID|new|zero] [cluster=X]
    begin TO leader=ID epoch=N [voter=ID] [dir=...] [cluster=X] [endpoint=0] | end TO leader=ID epoch=N [v=0]
    fetch TO from=ID epoch=N at=OFFSET@EPOCH [wait=MS] [min=BYTES] [hw=OFFSET] [directory=N]
    fetch-snapshot TO epoch=N snapshot=END-EPOCH [position=N] [size=N] [cluster=X] [topic=X] | describe TO [topic=X]
    transfer LEADER TO | barrier ID | upgrade ID [LEVEL] [validate=1] | resign ID | snapshot ID | shutdown ID
    state [ID...] | log ID | voters ID | snapshots ID
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from scenario_node import FOLDER, Node, Ticket, directory, second

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_request, decode_response, encode_request, encode_response
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.raft import events
from kraftcore.raft.control_records import voter_changes, voter_entries
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet, static_voters
from kraftcore.simulation.timeline import summary
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore

NOWHERE = -1  # where no node listens
OUTSIDE = 0  # whoever sends the raw requests of a scenario


class Stage:
    """The nodes of one scenario, the messages between them, and what happened since the last command."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.queue: list[tuple] = []
        self.cut: set[int] = set()
        self.now = 0
        self.lines: list[str] = []
        self.correlation = 0

    def run(self, command: str) -> str:
        words = command.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        if "dir" in options:
            options["where"] = options.pop("dir")
        plain = [word for word in words[1:] if "=" not in word]
        self.lines = []
        getattr(self, "do_" + words[0].replace("-", "_"))(*plain, **options)
        return "\n".join(self.lines) or "ok"

    def say(self, text: str) -> None:
        self.lines.append(text)

    # --- carrying effects out

    def send(self, node: Node, send) -> None:
        hosts = {other.config.listeners[0].host: n for n, other in self.nodes.items()}
        target = hosts.get(send.destination.host, NOWHERE)
        schema = type(send.message).schema
        node.sent_requests[send.request_id] = (schema.api_key, schema.versions[1], target, self.now + send.timeout_ms)
        frame = encode_request(send.message, schema.versions[1], send.request_id)
        self.say(f"{node.number} -> {target} {summary(send.message)}")
        self.queue.append((node.number, target, node.life, send.request_id, frame, False))

    def reply(self, ticket: Ticket, message) -> None:
        number, source = ticket.node.number, ticket.source
        self.say(f"{number} -> {source or 'outside'} {summary(message)}{_words(message)}")
        frame = encode_response(message, ticket.version, ticket.correlation)
        if source != OUTSIDE:
            self.queue.append((number, source, ticket.life, ticket.correlation, frame, True))

    def arrive(self, item: tuple) -> None:
        source, target, life, correlation, frame, is_answer = item
        node = self.nodes.get(target)
        if node is None or not node.up or source in self.cut or target in self.cut:
            self.say(f"lost {source} -> {target}")
            return
        if is_answer:
            if life != node.life:
                return
            if correlation not in node.sent_requests:
                return
            api_key, version, *_ = node.sent_requests.pop(correlation)
            node.handle(events.Answered(correlation, decode_response(frame, api_key, version)[1]))
            return
        header, message = decode_request(frame)
        ticket = Ticket(node, source, life, correlation, header.request_api_version)
        if isinstance(message, ApiVersionsRequest):
            ticket.answer(_api_versions(node.supports))
        else:
            node.handle(events.Received(ticket, message, header.request_api_version, "CONTROLLER"))

    def ask(self, to: str, message, version: int | None = None) -> None:
        self.correlation += 1
        version = type(message).schema.versions[1] if version is None else version
        frame = encode_request(message, version, self.correlation)
        self.arrive((OUTSIDE, int(to), 0, self.correlation, frame, False))

    # --- set up

    def do_add_nodes(
        self,
        count,
        version="1",
        observers="0",
        auto_join="0",
        reluctant="",
        stranger="",
        hidden="0",
        also="",
        bootstrap="1",
        forgot="",
        observer_linger="0",
        lease="0",
        **logs,
    ):
        total = int(count) + int(observers)
        endpoints = {n: Endpoint("CONTROLLER", f"n{n}", 9093) for n in range(1, total + 1)}
        keys = {n: ReplicaKey(n, directory(n)) for n in endpoints}
        named = {n: e._replace(name="OTHER") if str(n) == hidden else e for n, e in endpoints.items()}
        voters = VoterSet(
            tuple(Voter(keys[n], (named[n], *second(n, also)), VersionRange(0, 1)) for n in range(1, int(count) + 1))
        )
        static = static_voters((n, endpoints[n]) for n in range(1, int(count) + 1))
        for n in endpoints:
            config = events.RaftConfig(
                cluster_id="other" if str(n) == stranger else "c",
                key=keys[n],
                listeners=(endpoints[n], *second(n, also)),
                static_voters=static if version == "0" else VoterSet(),
                bootstrap_servers=tuple(
                    (e.host, e.port) for m, e in endpoints.items() if m <= int(count) and bootstrap == "1"
                ),
                auto_join=auto_join == "1",
                reluctant=str(n) in reluctant.split(","),
                topic_id=METADATA_TOPIC_ID,
                observer_linger_ms=int(observer_linger),
                leader_lease_ms=int(lease),
            )
            node = self.nodes[n] = Node(self, n, config)
            if version == "1" and n <= int(count):
                with SnapshotWriter(
                    SnapshotStore(node.disk, FOLDER).create(SnapshotId(0, 0)),
                    now_ms=0,
                    kraft_version=1,
                    voters=voter_entries(voters),
                ) as writer:
                    writer.freeze(0)
            epochs = [int(epoch) for epoch in logs.get(f"log{n}", "").split(",") if epoch]
            with Log.open(node.disk, FOLDER, LogConfig(), now_ms=0) as log:
                for at, epoch in enumerate(epochs):
                    log.append_as_leader(build_batch([b"%d@%d" % (at, epoch)], timestamp_ms=0), epoch, 0)
                log.flush()
            node.state = ElectionState(epoch=max(epochs, default=0))
            node.may_have_forgotten = str(n) in forgot.split(",")
        for node in self.nodes.values():
            node.open(self.now)
            node.handle(events.Tick())

    # --- time, messages, disks

    def do_tick(self, ms):
        end = self.now + int(ms)
        while True:
            due = [(node.deadline, n) for n, node in self.nodes.items() if node.up and node.deadline is not None]
            at, number = min(due, default=(end + 1, 0))
            late = min(self.requests(), default=(end + 1, 0, 0))
            if min(at, late[0]) > end:
                break
            if late[0] <= at:
                self.now = max(self.now, late[0])
                del self.nodes[late[1]].sent_requests[late[2]]
                self.nodes[late[1]].handle(events.Failed(late[2], Failure.TIMED_OUT))
                continue
            self.now = max(self.now, at)
            self.nodes[number].handle(events.Tick())
            if self.nodes[number].deadline is not None and self.nodes[number].deadline <= self.now:
                self.now += 1
        self.now = end

    def requests(self):
        for n, node in self.nodes.items():
            if node.up:
                for request_id, (*_, deadline) in node.sent_requests.items():
                    yield deadline, n, request_id

    def do_pass(self, ms):
        """Time passes, and everything that is sent arrives at once."""
        end = self.now + int(ms)
        self.do_stabilize()
        while self.now < end:
            due = [node.deadline for node in self.nodes.values() if node.up and node.deadline is not None]
            due += [deadline for deadline, *_ in self.requests()]
            step = min(min(due, default=end), end) - self.now
            self.do_tick(max(step, 1))
            self.do_stabilize()

    def do_timeout(self, number):
        node = self.nodes[int(number)]
        if node.deadline is not None:
            self.now = max(self.now, node.deadline)
        node.handle(events.Tick())

    def do_campaign(self, number):
        node = self.nodes[int(number)]
        for _ in range(20):
            if node.replica.role.value in ("prospective", "candidate", "leader"):
                return
            self.do_timeout(number)

    def pick(self, link: str | None, n: str | None) -> list[tuple]:
        found = self.queue
        if link is not None:
            source, target = (int(end) for end in link.split("->"))
            found = [item for item in self.queue if item[:2] == (source, target)]
        found = found[: int(n)] if n is not None else list(found)
        for item in found:
            self.queue.remove(item)
        return found

    def do_deliver(self, link=None, n=None):
        for item in self.pick(link, n):
            self.arrive(item)

    def do_drop(self, link=None, n=None):
        self.say(f"{len(self.pick(link, n))} dropped")

    def do_refuse(self, link, why="REFUSED"):
        self.pick(link, None)
        source, target = (int(end) for end in link.split("->"))
        node = self.nodes[source]
        for request_id in [number for number, sent in node.sent_requests.items() if sent[2] == target]:
            del node.sent_requests[request_id]
            node.handle(events.Failed(request_id, Failure[why]))

    def do_flush(self, number):
        node = self.nodes[int(number)]
        node.flush_wanted = False
        node.executor.flushed(self.now, node.log.flush())
        node.executor.check_invariants()

    def do_hold_flush(self, number):
        self.nodes[int(number)].hold_flush = True

    def do_quietly(self, *words, **options):
        spelled = [f"{'dir' if name == 'where' else name}={value}" for name, value in options.items()]
        self.run(" ".join([*words, *spelled]))
        self.lines = []

    def do_let_flush(self, number):
        self.nodes[int(number)].hold_flush = False

    def do_stabilize(self):
        for _ in range(2000):
            waiting = [node for node in self.nodes.values() if node.up and node.flush_wanted and not node.hold_flush]
            if waiting:
                self.do_flush(waiting[0].number)
            elif self.queue:
                self.arrive(self.queue.pop(0))
            else:
                return
        self.say("does not come to rest")

    def do_crash(self, number, mode="kept"):
        node = self.nodes[int(number)]
        node.up = False
        node.disk = node.disk.crash(mode)

    def do_replace_disk(self, number, forgot="0"):
        node = self.nodes[int(number)]
        key = ReplicaKey(node.number, directory(100))
        config = dataclasses.replace(node.config, key=key)
        self.nodes[node.number] = new = Node(self, node.number, config)
        new.life = node.life
        new.may_have_forgotten = forgot == "1"

    def do_move(self, number, port):
        node = self.nodes[int(number)]
        endpoint = node.config.listeners[0]._replace(port=int(port))
        node.config = dataclasses.replace(node.config, listeners=(endpoint,))

    def do_supports(self, number, what):
        self.nodes[int(number)].supports = what

    def do_restart(self, number):
        node = self.nodes[int(number)]
        node.open(self.now)
        node.handle(events.Tick())

    def do_isolate(self, number):
        self.cut.add(int(number))

    def do_join(self, number):
        self.cut.discard(int(number))

    # --- local requests

    def do_append(self, number, *values):
        node = self.nodes[int(number)]
        batch = build_batch([value.encode() for value in values], timestamp_ms=0)
        node.handle(events.Propose(node.outcome_ticket("append"), batch))

    def do_transfer(self, number, target):
        node = self.nodes[int(number)]
        node.handle(events.Transfer(node.outcome_ticket("transfer"), int(target)))

    def do_barrier(self, number):
        node = self.nodes[int(number)]
        node.handle(events.Barrier(node.outcome_ticket("barrier")))

    def do_upgrade(self, number, level="1", validate="0"):
        node = self.nodes[int(number)]
        node.handle(events.Upgrade(node.outcome_ticket("upgrade"), int(level), validate == "1"))

    def do_resign(self, number):
        self.nodes[int(number)].handle(events.Resign())

    def do_shutdown(self, number):
        self.nodes[int(number)].handle(events.Shutdown())

    def do_snapshot(self, number):
        node = self.nodes[int(number)]
        contents = node.executor.gather_snapshot(self.now)
        contents.write(node.store)
        node.log.delete_below(contents.end_offset, self.now)
        node.executor.snapshot_written(self.now, contents)

    def key_of(self, voter: str, where: str | None) -> tuple[int, Uuid]:
        if where == "zero":
            return int(voter), ZERO_UUID
        return int(voter), directory(int(voter) if where is None else 100 if where == "new" else int(where))

    def do_add_voter(self, leader, voter, where=None, ack="1", cluster="c", listener="CONTROLLER", timeout="2000"):
        number, directory_id = self.key_of(voter, where)
        listeners = [AddRaftVoterRequest.Listener(name=listener, host=f"n{number}", port=9093)]
        message = AddRaftVoterRequest(
            cluster_id=cluster,
            timeout_ms=int(timeout),
            voter_id=number,
            voter_directory_id=directory_id,
            listeners=listeners,
            ack_when_committed=ack == "1",
        )
        self.ask(leader, message)

    def do_remove_voter(self, leader, voter, where=None, cluster="c"):
        number, directory_id = self.key_of(voter, where)
        self.ask(leader, RemoveRaftVoterRequest(cluster_id=cluster, voter_id=number, voter_directory_id=directory_id))

    def do_update_voter(self, leader, voter, epoch, where=None, cluster="c", port="9093", low="0", high="1", also=""):
        number, directory_id = self.key_of(voter, where)
        endpoints = (*second(number, also), Endpoint("CONTROLLER", f"n{number}", int(port)))
        listeners = [UpdateRaftVoterRequest.Listener(name=e.name, host=e.host, port=e.port) for e in endpoints]
        feature = UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=int(low), max_supported_version=int(high)
        )
        message = UpdateRaftVoterRequest(
            cluster_id=cluster,
            current_leader_epoch=int(epoch),
            voter_id=number,
            voter_directory_id=directory_id,
            listeners=listeners,
            kraft_version_feature=feature,
        )
        self.ask(leader, message)

    def do_vote(self, to, epoch, last, pre="0", voter=None, where=None, cluster="c", **sender):
        offset, last_epoch = last.split("@")
        number = int(sender["from"])
        voter_id, voter_directory = self.key_of(voter or to, where)
        asked = VoteRequest.TopicData.PartitionData(
            partition_index=0,
            replica_epoch=int(epoch),
            replica_id=number,
            replica_directory_id=directory(max(number, 0)),
            voter_directory_id=voter_directory,
            last_offset=int(offset),
            last_offset_epoch=int(last_epoch),
            pre_vote=pre == "1",
        )
        topic = VoteRequest.TopicData(topic_name="__cluster_metadata", partitions=[asked])
        self.ask(to, VoteRequest(cluster_id=cluster, voter_id=voter_id, topics=[topic]))

    def do_begin(self, to, leader, epoch, voter=None, where=None, cluster="c", endpoint="1"):
        voter_id, voter_directory = self.key_of(voter or to, where)
        kind = BeginQuorumEpochRequest
        told = kind.TopicData.PartitionData(
            partition_index=0, voter_directory_id=voter_directory, leader_id=int(leader), leader_epoch=int(epoch)
        )
        topic = kind.TopicData(topic_name="__cluster_metadata", partitions=[told])
        endpoints = [kind.LeaderEndpoint(name="CONTROLLER", host=f"n{leader}", port=9093)] if endpoint == "1" else []
        self.ask(to, kind(cluster_id=cluster, voter_id=voter_id, topics=[topic], leader_endpoints=endpoints))

    def do_end(self, to, leader, epoch, preferred="", cluster="c", v="1"):
        kind = EndQuorumEpochRequest
        numbers = [int(number) for number in preferred.split(",") if number]
        info = kind.TopicData.PartitionData.ReplicaInfo
        told = kind.TopicData.PartitionData(
            partition_index=0,
            leader_id=int(leader),
            leader_epoch=int(epoch),
        )
        if v == "0":
            told.preferred_successors = numbers
        else:
            told.preferred_candidates = [
                info(candidate_id=number, candidate_directory_id=directory(number)) for number in numbers
            ]
        topic = kind.TopicData(topic_name="__cluster_metadata", partitions=[told])
        self.ask(to, kind(cluster_id=cluster, topics=[topic]), int(v))

    def do_fetch(self, to, epoch, at, wait="0", cluster="c", hw="9223372036854775807", **options):
        offset, last_epoch = at.split("@")
        number = int(options["from"])
        wanted = FetchRequest.FetchTopic.FetchPartition(
            partition=0,
            current_leader_epoch=int(epoch),
            fetch_offset=int(offset),
            last_fetched_epoch=int(last_epoch),
            replica_directory_id=directory(int(options.get("directory", max(number, 0)))),
            high_watermark=int(hw),
        )
        self.ask(
            to,
            FetchRequest(
                cluster_id=cluster,
                replica_state=FetchRequest.ReplicaState(replica_id=number),
                max_wait_ms=int(wait),
                min_bytes=int(options.get("min", "1")),
                max_bytes=1 << 20,
                topics=[FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
            ),
        )

    def do_fetch_snapshot(self, to, epoch, snapshot, position="0", size="100", cluster="c", topic="__cluster_metadata"):
        end, snapshot_epoch = snapshot.split("-")
        kind = FetchSnapshotRequest.TopicSnapshot
        wanted = kind.PartitionSnapshot(
            partition=0,
            current_leader_epoch=int(epoch),
            snapshot_id=kind.PartitionSnapshot.SnapshotId(end_offset=int(end), epoch=int(snapshot_epoch)),
            position=int(position),
        )
        topics = [kind(name=topic, partitions=[wanted])]
        self.ask(to, FetchSnapshotRequest(cluster_id=cluster, replica_id=9, max_bytes=int(size), topics=topics))

    def do_describe(self, to, topic="__cluster_metadata"):
        kind = DescribeQuorumRequest.TopicData
        data = kind(topic_name=topic, partitions=[kind.PartitionData(partition_index=0)])
        self.ask(to, DescribeQuorumRequest(topics=[data]))

    # --- looking

    def do_state(self, *numbers):
        for n, node in self.nodes.items():
            if numbers and str(n) not in numbers:
                continue
            if not node.up:
                self.say(f"{n}: down")
                continue
            replica = node.replica
            leader = "-" if replica.leader_id is None else replica.leader_id
            high = "-" if replica.high_watermark is None else replica.high_watermark
            self.say(
                f"{n}: {replica.role.value} epoch={replica.epoch} leader={leader} log={node.log.log_start_offset}.."
                f"{node.log.log_end_offset} hw={high} voters={sorted(replica.voters.ids)}"
            )

    def do_voters(self, number):
        for offset, voters in self.nodes[int(number)].replica.state.voter_sets:
            self.say(f"from {offset}: {sorted(voters.ids)}")

    def do_snapshots(self, number):
        self.say(" ".join(f"{end}-{epoch}" for end, epoch in self.nodes[int(number)].store.ids))

    def do_log(self, number):
        node = self.nodes[int(number)]
        offset = node.log.log_start_offset
        while offset < node.log.log_end_offset:
            for batch in iter_batches(node.log.read(offset, 1 << 20)):
                if batch.is_control:
                    sets = [f" voters={sorted(v.ids)}" for _, _, v in voter_changes(batch) if v is not None]
                    what = "control" + "".join(sets)
                else:
                    what = " ".join((value or b"").decode() for value in batch.values())
                self.say(f"{batch.base_offset}@{batch.leader_epoch} {what}")
                offset = batch.next_offset


def _api_versions(supports: str) -> ApiVersionsResponse:
    if supports == "none":
        return ApiVersionsResponse()
    if supports in ErrorCode.__members__:
        return ApiVersionsResponse(error_code=ErrorCode[supports])
    low, high = (int(level) for level in supports.split("-"))
    feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=low, max_version=high)
    return ApiVersionsResponse(supported_features=[feature])


def _words(message) -> str:
    if isinstance(message, DescribeQuorumResponse):
        told = message.topics[0].partitions[0]
        lists = [
            [(item.replica_id, item.log_end_offset) for item in found]
            for found in (told.current_voters, told.observers)
        ]
        return f" voters={lists[0]} observers={lists[1]} nodes={[node.node_id for node in message.nodes]}"
    text = getattr(message, "error_message", None)
    code = getattr(message, "error_code", 0)
    name = f" {ErrorCode.of(code).name}" if code else ""
    return f"{name} {text!r}" if text else name


def run_file(path: Path, make_stage=Stage) -> str:
    """The file's commands with the transcripts they really give on a new stage."""
    out: list[str] = []
    stage = make_stage()
    for block in path.read_text().rstrip("\n").split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        commands = []
        for line in lines[len(comments) :]:
            if line == "----":
                break
            commands.append(line)
        piece = list(comments)
        if commands:
            piece += commands
            piece.append("----")
            piece += [stage.run(command) for command in commands]
        out.append("\n".join(piece))
    return "\n\n".join(out) + "\n"


def check_transcript(path: Path, is_rewritten: bool, make_stage=Stage) -> None:
    """Play a scenario's file again, and compare; ``is_rewritten``: write it anew instead."""
    text = run_file(path, make_stage)
    if is_rewritten:
        path.write_text(text)
    else:
        assert path.read_text() == text


def check_head(path: Path) -> None:
    """A scenario's file begins with its rule, and names the source."""
    head = path.read_text().split("\n\n")[0]
    assert head.startswith("# ")
    assert "Source: " in head
