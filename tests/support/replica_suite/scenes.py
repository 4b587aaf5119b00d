"""A broker with id 1 among the fake brokers 2 and 3, and this suite as its controller, clients and followers."""

import signal

from conformance.target import until

from replica_suite import codec
from replica_suite.peers import Controller, FakeBroker, FakeLog, Peer, State, Topic
from replica_suite.target import CONTROLLER_ID


class Scene:
    def __init__(self, ws, dirs=1, **props):
        self.ws, self.broker, self.number = ws, ws.broker(1, dirs, **props), 0
        self.two, self.three = FakeBroker(2, ws.port()), FakeBroker(3, ws.port())
        self.head = FakeBroker(CONTROLLER_ID, ws.port())  # the controller's own listener: AlterPartition goes there
        self.fakes = (self.two, self.three, self.head)
        self.ctl = Controller(self.broker, self.fakes)
        self.client, self.peer = Peer(self.broker.client_port), Peer(self.broker.port)
        self.start()

    def start(self):
        self.broker.start()
        self.introduce()

    def introduce(self):
        """Tell the broker who is alive; it knows nobody after a start."""
        assert self.ctl.update_metadata() == {"ErrorCode": 0}

    def restart(self, sig=signal.SIGKILL):
        """Stop and start; the broker has forgotten every assignment then."""
        self.broker.stop(sig)
        self.start()

    def revive(self):
        if not self.broker.alive:
            self.start()

    def topic(self):
        """A fresh topic, nothing of it known to the broker."""
        self.number += 1
        return Topic(f"r{self.number}")

    def lead(self, topic=None, epoch=0, replicas=(1,), isr=None, partition=0, announce=True, **more):
        """Make the broker the leader of a partition."""
        t = topic or self.topic()
        self.assign(State(t, partition, 1, epoch, isr, replicas, **more), announce)
        return t

    def follow(self, topic=None, epoch=0, leader=None, batches=(), hwm=None, partition=0, **more):
        """Make the broker a follower of a fake; -> (topic, the fake's log). batches: lists of values, one epoch or
        (epoch, values)."""
        t, leader = topic or self.topic(), leader or self.two
        log = FakeLog(epoch)
        for b in batches:
            e, values = b if isinstance(b, tuple) else (epoch, b)
            log.append(*values, epoch=e)
        if hwm is not None:
            log.hwm = hwm
        leader.lead(t, partition, epoch, log)
        self.assign(State(t, partition, leader.node, epoch, replicas=[leader.node, 1], **more))
        return t, log

    def assign(self, state, announce=True):
        if announce:
            return self.ctl.assign(state)
        r = self.ctl.leader_and_isr(state)
        assert (r["ErrorCode"], [p["ErrorCode"] for t in r["Topics"] for p in t["PartitionErrors"]]) == (0, [0]), r
        return None

    def caught_up(self, topic, log, partition=0, leader=None):
        """Wait until the broker has fetched up to the end of the fake's log."""
        return (leader or self.two).wait_fetch(topic, partition, FetchOffset=log.end)

    def has(self, topic, log, partition=0):
        """Wait until the broker's log is byte for byte the fake's."""
        until(
            f"{topic} is copied",
            lambda: (
                self.broker.dir(topic.name, partition) and self.broker.log_bytes(topic.name, partition) == log.bytes
            ),
            10,
        )

    def errors(self, **answers):
        return {k: codec.err(v) for k, v in answers.items()}

    def clean(self):
        if self.broker.alive and self.ctl.used:
            self.ctl.stop_replica(*[(t, p, -2, True) for t, p in self.ctl.used])
            self.ctl.update_metadata(*[State(t, p, leader=-2) for t, p in self.ctl.used])
        for t, p in self.ctl.used:
            for f in self.fakes:
                f.drop(t, p)
        self.ctl.used = []

    def close(self):
        self.broker.kill()
        for f in self.fakes:
            f.close()
