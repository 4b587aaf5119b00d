"""Ready-made situations: a node under test among scripted voters, logs written by this suite, a leader with
followers.
"""

import threading

from conformance import codec
from conformance.codec import BEGIN, FETCH, REGISTER_CONTROLLER, UPDATE_VOTER, VOTE, batch, control, metadata
from conformance.peers import (
    FakeLeader,
    Follower,
    begin,
    call,
    first,
    listeners,
    settled,
    vote,
    wait_leader,
)
from conformance.target import HOST, new_uuid

FEATURE = metadata("FeatureLevelRecord", {"Name": "metadata.version", "FeatureLevel": 30})
QUIET = {"controller.quorum.election.timeout.ms": 120000, "controller.quorum.fetch.timeout.ms": 120000}
FAST = {
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.election.backoff.max.ms": 500,
    "controller.quorum.fetch.timeout.ms": 120000,
}


def noops(base, epoch, n):
    """One batch of n metadata no-op records."""
    return batch(base, epoch, [metadata("NoOpRecord", {})] * n)


def opening(base, epoch, n):
    """Like noops, but the first record sets metadata.version, without which Kafka refuses to apply a committed log."""
    return batch(base, epoch, [FEATURE] + [metadata("NoOpRecord", {})] * (n - 1))


def leader_change(base, epoch, leader, voters):
    return batch(
        base,
        epoch,
        [
            control(
                "LeaderChange",
                {
                    "LeaderId": leader,
                    "Voters": [{"VoterId": v} for v in voters],
                    "GrantingVoters": [{"VoterId": leader}],
                },
            )
        ],
    )


def voters_record(base, epoch, entries):
    return batch(base, epoch, [control("KRaftVoters", {"Voters": entries})])


class Quorum:
    """A node under test and its fake voters, all in one voter set."""

    def __init__(self, ws, ids=(2, 3), node=1, dynamic=True, props=QUIET, extra=(), **prepare):
        self.ws = ws
        self.peers = {i: FakeLeader(i, ws.port()) for i in (*ids, *extra)}
        self.ids, port, self.directory = ids, ws.port(), new_uuid()
        servers = [f"{HOST}:{port}"] + [f"{HOST}:{self.peers[i].port}" for i in ids]
        props = {"controller.quorum.bootstrap.servers": ",".join(servers), **props}
        if not dynamic:
            props["controller.quorum.voters"] = ",".join(
                [f"{node}@{HOST}:{port}"] + [f"{i}@{HOST}:{self.peers[i].port}" for i in ids]
            )
            del props["controller.quorum.bootstrap.servers"]
        self.node = ws.node(node, port, **props)
        self.voters = [codec.voter(node, self.directory, port)] + [self.peers[i].entry for i in ids]
        if callable(prepare.get("snapshots")):
            prepare["snapshots"] = prepare["snapshots"](self.voters)
        self.node.prepare(self.voters if dynamic else None, self.directory, **prepare)
        self.followers = {}

    @property
    def cluster(self):
        return self.ws.cluster_id

    @property
    def port(self):
        return self.node.port

    @property
    def me(self):
        """The fields that address a request to this very replica."""
        return {"voter": self.node.node, "voter_dir": self.directory, "cluster": self.cluster}

    def disk_epoch(self):
        s = self.node.quorum_state()
        return s["leaderEpoch"] if s else 0

    def next_epoch(self, step=3):
        return self.disk_epoch() + step

    def key(self, i):
        return {"candidate": i, "candidate_dir": self.peers[i].directory}

    def vote(self, version=2, **kw):
        return first(call(self.port, VOTE, version, vote(**{**self.me, **kw})))

    def begin(self, epoch, leader, version=1, **kw):
        a = {**self.me, "endpoints": [self.peers[leader].endpoint] if leader in self.peers else [], **kw}
        return call(self.port, BEGIN, version, begin(epoch, leader, **a))

    def follow(self, leader, epoch=None, log=None, hwm=None):
        """Make the node follow a fake leader; the epoch. Returns when the node's fetch in that epoch arrived."""
        epoch = epoch or self.next_epoch()
        p = self.peers[leader]
        for other in self.peers.values():
            if other is not p:
                other.leader = -1
        p.lead(epoch, log, hwm)
        mark = p.mark()
        part = first(self.begin(epoch, leader))
        assert part["ErrorCode"] == 0, part
        p.wait(FETCH, lambda s: s.part["CurrentLeaderEpoch"] == epoch, after=mark)
        return epoch

    def caught_up(self, leader, timeout=25):
        """Wait until the node fetches from the end of the fake leader's log."""
        p = self.peers[leader]
        end, mark = p.end, p.mark()
        return p.wait(FETCH, lambda s: s.part["FetchOffset"] == end, after=mark, timeout=timeout)

    def elected(self, follow=True):
        """Start the node, let the fakes grant it, return its epoch; with follow, the fakes copy its log."""
        self.node.start()
        b = [self.peers[i].wait(BEGIN, timeout=40) for i in self.ids]
        epoch = b[0].part["LeaderEpoch"]
        self.epoch = epoch
        for i in self.ids:
            self.followers[i] = Follower(self.port, i, self.peers[i].directory)
        if follow:
            for f in self.followers.values():
                f.follow(epoch)
            wait_leader(self.node)
            settled(self.node)
        return epoch

    def pause(self, *ids):
        for i in ids or self.followers:
            self.followers[i].stop()

    def resume(self, *ids):
        for i in ids or self.followers:
            if self.followers[i].stopped:
                self.followers[i].follow(self.epoch)

    def update_voter(self, i, port=None, timeout=20):
        """Have the leader write a VotersRecord: voter i moves to another port."""
        p = self.peers[i]
        return call(
            self.port,
            UPDATE_VOTER,
            0,
            {
                "ClusterId": self.cluster,
                "CurrentLeaderEpoch": self.epoch,
                "VoterId": i,
                "VoterDirectoryId": p.directory,
                "Listeners": listeners(("CONTROLLER", HOST, port or p.port)),
                "KRaftVersionFeature": {"MinSupportedVersion": 0, "MaxSupportedVersion": 1},
            },
            timeout=timeout,
        )

    def register(self, i):
        """Register fake voter i with the active controller, as a Kafka controller does of itself (KIP-919)."""
        return call(
            self.port,
            REGISTER_CONTROLLER,
            0,
            {
                "ControllerId": i,
                "IncarnationId": new_uuid(),
                "ZkMigrationReady": False,
                "Listeners": [{"Name": "CONTROLLER", "Host": HOST, "Port": self.peers[i].port, "SecurityProtocol": 0}],
                "Features": [
                    {"Name": n, "MinSupportedVersion": lo, "MaxSupportedVersion": hi}
                    for n, lo, hi in (
                        ("kraft.version", 0, 1),
                        ("metadata.version", 7, 30),
                        ("group.version", 0, 1),
                        ("transaction.version", 0, 2),
                        ("share.version", 0, 1),
                        ("streams.version", 0, 1),
                        ("eligible.leader.replicas.version", 0, 1),
                    )
                ],
            },
        )

    def close(self):
        self.node.kill()
        for f in self.followers.values():
            f.stop()
        for p in self.peers.values():
            p.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Observer:
    """A node that is in no voter set, and a scripted leader (2) of the voters 2 and 3 whose log it can copy."""

    def __init__(self, ws, **props):
        self.leader, self.other = FakeLeader(2, ws.port()), FakeLeader(3, ws.port())
        self.voters = [self.leader.entry, self.other.entry]
        self.node = ws.node(
            1,
            **{
                "controller.quorum.bootstrap.servers": f"{HOST}:{self.leader.port}",
                "controller.quorum.election.timeout.ms": 500,
                "controller.quorum.fetch.timeout.ms": 1500,
                **props,
            },
        )
        self.node.prepare(None)
        self.leader.lead(
            5,
            [
                batch(
                    0,
                    5,
                    [
                        control(
                            "LeaderChange",
                            {
                                "LeaderId": 2,
                                "Voters": [{"VoterId": 2}, {"VoterId": 3}],
                                "GrantingVoters": [{"VoterId": 2}],
                            },
                        ),
                        control("KRaftVersion", {"KRaftVersion": 1}),
                        control("KRaftVoters", {"Voters": self.voters}),
                    ],
                ),
                opening(3, 5, 4),
            ],
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.node.kill()
        self.leader.close()
        self.other.close()


def history(node=1):
    """A log with gaps between its epochs: 0-9 in epoch 1, 10-14 in epoch 3, 15-19 in epoch 6; its next offset is 20."""
    return [
        leader_change(0, 1, 9, [9]),
        opening(1, 1, 9),
        leader_change(10, 3, 9, [9]),
        noops(11, 3, 4),
        leader_change(15, 6, 9, [9]),
        noops(16, 6, 4),
    ]


def sized_snapshot(voters, epoch=2, groups=40):
    """A checkpoint of some kilobytes, with voters."""
    return codec.snapshot(
        epoch,
        [[FEATURE]]
        + [
            [
                metadata(
                    "ConfigRecord",
                    {"ResourceType": 2, "ResourceName": f"t{g}", "Name": "retention.ms", "Value": str(g * 1000 + i)},
                )
                for i in range(5)
            ]
            for g in range(groups)
        ],
        voters=voters,
    )


SNAP = "00000000000000000030-0000000002.checkpoint"


def loaded_node(ws):
    """A single voter whose log starts at 30, above a checkpoint 30-2: epoch 2 up to 34, epoch 5 up to 39."""
    port, directory = ws.port(), new_uuid()
    voters = [codec.voter(1, directory, port)]
    node = ws.node(
        1,
        port,
        **{"controller.quorum.election.timeout.ms": 500, "controller.quorum.bootstrap.servers": f"{HOST}:{port}"},
    )
    node.prepare(
        None,
        directory,
        log=[noops(30, 2, 5), leader_change(35, 5, 1, [1]), noops(36, 5, 4)],
        start=30,
        snapshots={SNAP: sized_snapshot(voters)},
        state={"leaderEpoch": 6},
    )
    return node


def standalone(ws, node=1, **props):
    n = ws.node(node, **props)
    n.format("--standalone")
    n.start()
    wait_leader(n)
    settled(n)
    return n


def in_background(fn, *a, **kw):
    """Run fn in a thread; the returned object has .result(timeout)."""

    class Job:
        value = error = None

        def result(self, timeout=30):
            t.join(timeout)
            assert not t.is_alive(), "still running"
            if self.error:
                raise self.error
            return self.value

        @property
        def running(self):
            return t.is_alive()

    job = Job()

    def run():
        try:
            job.value = fn(*a, **kw)
        except BaseException as e:
            job.error = e

    t = threading.Thread(target=run, daemon=True)
    t.start()
    return job


__all__ = [n for n in dir() if not n.startswith("_")]
