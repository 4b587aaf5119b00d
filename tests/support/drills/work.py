"""The drills: each does something to a cluster whose clients are at work; `Cluster.check` judges what must hold.

Each takes the cluster and how many seconds the long ones last.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from broken import Broken
from kafka_lab import KafkaNode, wait_for

from drills.cluster import BROKERS, Cluster

Drill = Callable[[Cluster, float], None]
EVERY_S = 20.0  # between two kills of the active controller
RECORDS = 2000
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"


def expect(done: object, what: str) -> None:
    if not done:
        raise Broken(what)


def features(cluster: Cluster, _: float) -> None:
    """The cluster goes from 4.0 to 4.3, release by release."""
    for release in ("4.1", "4.2", "4.3"):
        cluster.tool("features", "upgrade", "--release-version", release)
        cluster.load.wait_progress()
    described = cluster.tool("features", "describe")
    expect("FinalizedVersionLevel: 4.3-IV0" in described, f"metadata.version is not 4.3: {described}")


def consoles(cluster: Cluster, _: float) -> None:
    """kafka-console-producer and -consumer, kafka-producer-perf-test and kafka-consumer-perf-test."""
    cluster.make_topic("console", 3)
    lines = [f"line {number}" for number in range(100)]
    at = ("--bootstrap-server", cluster.servers, "--topic", "console")
    sent = cluster.run(PRODUCER, *at, stdin="\n".join(lines) + "\n")
    expect(sent.returncode == 0, f"the console producer: {sent}")
    read = cluster.run(CONSUMER, *at, "--from-beginning", "--max-messages", len(lines), "--timeout-ms", 60_000)
    expect(set(lines) <= set(read.stdout.splitlines()), f"the console consumer: {read}")
    properties = ("bootstrap.servers=" + cluster.servers, "acks=all")
    sizes = ("--num-records", RECORDS, "--record-size", 100, "--throughput", -1)
    sent = cluster.run(PRODUCER_PERF, "--topic", "console", *sizes, "--producer-props", *properties)
    expect(f"{RECORDS} records sent" in sent.stdout, f"the perf producer: {sent}")
    read = cluster.run(CONSUMER_PERF, *at, "--messages", RECORDS, "--timeout", 60_000)
    figures = [line for line in read.stdout.splitlines() if line.startswith("20")]
    expect(figures and int(figures[-1].split(", ")[4]) >= RECORDS, f"the perf consumer: {read}")
    cluster.tool("topics", "--delete", "--topic", "console")


def groups(cluster: Cluster, _: float) -> None:
    """A group is listed, described, rewound and deleted while another one reads."""
    listed = cluster.tool("groups", "--list").split()
    expect("load" in listed, f"the group at work is not among {listed}")
    described = cluster.tool("groups", "--describe", "--group", "load")
    expect("load-a" in described, f"the group at work does not read: {described}")
    at = ("--bootstrap-server", cluster.servers, "--topic", "load-a", "--group", "passing")
    read = cluster.run(CONSUMER, *at, "--from-beginning", "--max-messages", 20, "--timeout-ms", 60_000)
    expect(len(read.stdout.splitlines()) >= 20, f"a second group: {read}")
    rewind = ("--reset-offsets", "--to-earliest", "--topic", "load-a", "--execute")
    cluster.tool("groups", "--group", "passing", *rewind)
    cluster.tool("groups", "--delete", "--group", "passing")
    listed = cluster.tool("groups", "--list").split()
    expect("passing" not in listed and "load" in listed, f"the deleted group is among {listed}")


def transactions(cluster: Cluster, _: float) -> None:
    """Transactions go on while the brokers that coordinate them are restarted."""
    listed = cluster.tool("transactions", "list")
    line = next((line.split() for line in listed.splitlines() if line.startswith("load")), None)
    expect(line, f"the transaction at work is not among {listed}")
    assert line is not None
    described = cluster.tool("transactions", "describe", "--transactional-id", "load")
    coordinator = cluster.brokers[int(described.splitlines()[1].split()[0])]
    before = cluster.load.told().committed
    coordinator.kill()
    wait_for("transactions without their coordinator", lambda: cluster.load.told().committed > before)
    cluster.load.wait_progress()
    coordinator.start()
    cluster.wait_broker(int(str(coordinator.properties["node.id"])))


def topics(cluster: Cluster, _: float) -> None:
    """Topics are made, grown and deleted while clients use them."""
    cluster.make_topic("load-growing", 2)
    cluster.load.add("load-growing")
    for count in (3, 5, 8):
        cluster.tool("topics", "--alter", "--topic", "load-growing", "--partitions", count)

        def reached(count: int = count) -> bool:
            told = cluster.load.told()
            return any(at.topic == "load-growing" and at.partition == count - 1 for at in told.kept)

        wait_for(f"records in partition {count - 1}", reached)
    cluster.load.forget("load-growing")
    cluster.tool("topics", "--delete", "--topic", "load-growing")
    for number in range(5):
        cluster.make_topic(f"passing-{number}", 3)

    def gone() -> bool:
        # The tool deletes what its broker knows of, which may be behind the controller.
        cluster.try_tool("topics", "--delete", "--topic", "passing-.*")
        listed = cluster.tool("topics", "--list").split()
        return not any(name.startswith(("passing-", "load-growing")) for name in listed)

    wait_for("topics to go", gone)
    _delete_while_written(cluster)


def _delete_while_written(cluster: Cluster) -> None:
    """A producer whose topic goes is told, and a topic of the same name is another one."""
    for round_ in range(2):
        cluster.make_topic("doomed", 3)
        first = cluster.tool("topics", "--describe", "--topic", "doomed")
        properties = ("bootstrap.servers=" + cluster.servers, "acks=all", "delivery.timeout.ms=5000")
        patience = ("request.timeout.ms=3000", "linger.ms=0", "max.block.ms=5000")
        sizes = ("--num-records", 500, "--record-size", 100, "--throughput", 100)
        command = (PRODUCER_PERF, "--topic", "doomed", *sizes, "--producer-props", *properties, *patience)
        with cluster.client(*command) as out:
            wait_for("records to flow", lambda out=out: "records sent" in out.read_text())
            cluster.tool("topics", "--delete", "--topic", "doomed")
        cluster.make_topic("doomed", 3)
        second = cluster.tool("topics", "--describe", "--topic", "doomed")
        expect(
            first.split("\t")[1] != second.split("\t")[1], f"round {round_}: the topic has the id of the deleted one"
        )
        cluster.tool("topics", "--delete", "--topic", "doomed")


def configs(cluster: Cluster, _: float) -> None:
    """Configurations of every kind are set, changed, appended to, taken away, and refused."""
    one = str(BROKERS[0])
    settings: list[tuple[tuple[object, ...], str, str]] = [
        (
            ("--entity-type", "topics", "--entity-name", "load-a"),
            "retention.ms=86400000,segment.ms=600000",
            "segment.ms",
        ),
        (("--entity-type", "topics", "--entity-name", "load-b"), "cleanup.policy=[compact,delete]", "cleanup.policy"),
        (
            ("--entity-type", "brokers", "--entity-name", one),
            "log.cleaner.threads=1,num.io.threads=8",
            "num.io.threads",
        ),
        (("--entity-type", "brokers", "--entity-default"), "log.retention.ms=7200000", "log.retention.ms"),
        (
            ("--entity-type", "groups", "--entity-name", "load"),
            "consumer.session.timeout.ms=50000",
            "consumer.session.timeout.ms",
        ),
        (
            ("--entity-type", "client-metrics", "--entity-name", "all"),
            "interval.ms=60000,metrics=[org.apache.]",
            "metrics",
        ),
    ]
    for entity, text, _key in settings:
        cluster.tool("configs", *entity, "--alter", "--add-config", text)
    refused = (
        ("topics", "load-a", "retention.ms=soon"),
        ("topics", "nowhere", "retention.ms=1"),
        ("brokers", one, "node.id=9"),
    )
    for kind, name, text in refused:
        entity = ("--entity-type", kind, "--entity-name", name)
        done = cluster.try_tool("configs", *entity, "--alter", "--add-config", text)
        expect(done.status, f"{text} of {kind} {name} was taken")
    cluster.check()
    for entity, _text, key in settings:
        cluster.tool("configs", *entity, "--alter", "--delete-config", key)


def access(cluster: Cluster, _: float) -> None:
    """Users with SCRAM credentials log in, and do what access control lists let them."""
    cluster.make_topic("secured", 3)
    users = ("--entity-type", "users", "--entity-name")
    for name in ("alice", "bob"):
        cluster.tool("configs", *users, name, "--alter", "--add-config", f"SCRAM-SHA-512=[password={name}-secret]")
    cluster.tool("configs", *users, "bob", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=other]")
    for operation in ("Write", "Describe", "Read"):
        cluster.tool("acls", "--add", "--allow-principal", "User:alice", "--operation", operation, "--topic", "secured")
    prefixed = ("--resource-pattern-type", "prefixed", "--group", "alice-")
    cluster.tool("acls", "--add", "--allow-principal", "User:alice", "--operation", "Read", *prefixed)
    denied = ("--deny-principal", "User:bob", "--deny-host", "127.0.0.1", "--operation", "All", "--topic", "secured")
    cluster.tool("acls", "--add", *denied)

    def known() -> bool:
        return "alice-secret" not in cluster.tool("configs", "--describe", "--entity-type", "users") and not _send(
            cluster, "alice", "alice-secret", ["one", "two"]
        )

    wait_for("alice to write", known)
    expect("TopicAuthorization" in _send(cluster, "bob", "bob-secret", ["three"]), "bob wrote what is not his")
    expect("Authentication" in _send(cluster, "alice", "wrong", ["four"]), "alice logged in with another password")
    at = ("--bootstrap-server", cluster.servers, "--topic", "secured")
    read = cluster.run(CONSUMER, *at, "--from-beginning", "--max-messages", 2, "--timeout-ms", 60_000)
    found = set(read.stdout.splitlines())
    expect({"one", "two"} <= found and not {"three", "four"} & found, f"what was written: {found}")
    cluster.check()
    cluster.tool("acls", "--remove", "--force", *denied)
    cluster.tool("configs", *users, "bob", "--alter", "--delete-config", "SCRAM-SHA-256")
    cluster.tool("topics", "--delete", "--topic", "secured")


def _send(cluster: Cluster, user: str, password: str, lines: list[str]) -> str:
    """Write as a user; what the producer complains of."""
    config = Path(cluster.lab.folder / f"{user}.properties")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
        "max.block.ms=20000\nenable.idempotence=false\n"
    )
    port = cluster.sasl_ports[BROKERS[0]]
    at = ("--bootstrap-server", f"127.0.0.1:{port}", "--topic", "secured", "--command-config", config)
    done = cluster.run(PRODUCER, *at, stdin="\n".join(lines) + "\n")
    said = [line for line in (done.stdout + done.stderr).splitlines() if "Exception" in line or " ERROR " in line]
    return "\n".join(said)


def quotas(cluster: Cluster, _: float) -> None:
    """Quotas of users, clients, addresses and defaults are set, hold clients back, and go."""
    given: list[tuple[tuple[object, ...], str]] = [
        (("--entity-type", "users", "--entity-name", "carol"), "consumer_byte_rate=1048576"),
        (("--entity-type", "clients", "--entity-name", "slow"), "producer_byte_rate=1000"),
        (("--entity-type", "clients", "--entity-default"), "request_percentage=800"),
        (
            ("--entity-type", "users", "--entity-name", "carol", "--entity-type", "clients", "--entity-default"),
            "controller_mutation_rate=10",
        ),
        (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate=50"),
    ]
    for entity, text in given:
        cluster.tool("configs", *entity, "--alter", "--add-config", text)
    cluster.make_topic("throttled", 1)
    properties = ("bootstrap.servers=" + cluster.servers, "client.id=slow", "acks=all")
    # So much that even sent over a whole window of ten seconds, on a slow machine, it is beyond the quota.
    sizes = ("--num-records", 100, "--record-size", 200, "--throughput", -1)
    sent = cluster.run(
        PRODUCER_PERF, "--topic", "throttled", *sizes, "--print-metrics", "--producer-props", *properties
    )
    throttled = [line for line in sent.stdout.splitlines() if "produce-throttle-time-max" in line]
    expect(throttled and float(throttled[0].rpartition(":")[2]) > 0, f"the quota held nobody back: {throttled}")
    cluster.tool("topics", "--delete", "--topic", "throttled")
    cluster.check()
    for entity, text in given:
        cluster.tool("configs", *entity, "--alter", "--delete-config", text.partition("=")[0])


def elections(cluster: Cluster, _: float) -> None:
    """Preferred leaders are elected after a restart; an unclean one when nobody of the ISR is left."""
    first, second, third = (cluster.brokers[number] for number in BROKERS)
    cluster.make_topic("orderly", 1, "--replica-assignment", ":".join(map(str, BROKERS)))
    first.kill()
    wait_for("another leader", lambda: _leader(cluster, "orderly") not in (None, BROKERS[0]))
    first.start()
    cluster.wait_broker(BROKERS[0])
    cluster.tool("elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
    wait_for("the preferred leader", lambda: _leader(cluster, "orderly") == BROKERS[0])
    cluster.tool("topics", "--delete", "--topic", "orderly")

    cluster.make_topic(
        "unclean", 1, "--replica-assignment", f"{BROKERS[1]}:{BROKERS[2]}", "--config", "min.insync.replicas=1"
    )
    third.kill()
    wait_for("the ISR to be one", lambda: _isr(cluster, "unclean") == {BROKERS[1]})
    second.kill()
    wait_for("no leader", lambda: _leader(cluster, "unclean") is None)
    third.start().wait_listening()
    wait_for("it to be of use", lambda: _unclean(cluster), timeout_s=120)
    expect(_leader(cluster, "unclean") == BROKERS[2], "the unclean leader does not lead")
    second.start()
    cluster.wait_broker(BROKERS[1])
    cluster.tool("topics", "--delete", "--topic", "unclean")


def _unclean(cluster: Cluster) -> bool:
    if _leader(cluster, "unclean") == BROKERS[2]:
        return True
    one = ("--topic", "unclean", "--partition", 0)
    return cluster.try_tool("elect-leaders", "--election-type", "unclean", *one).status == 0 and (
        _leader(cluster, "unclean") == BROKERS[2]
    )


def _described(cluster: Cluster, topic: str) -> dict[str, str]:
    lines = cluster.tool("topics", "--describe", "--topic", topic).splitlines()
    return dict(part.strip().split(":", 1) for part in lines[1].split("\t") if ":" in part)


def _leader(cluster: Cluster, topic: str) -> int | None:
    leader = _described(cluster, topic)["Leader"].strip()
    return None if leader == "none" else int(leader)


def _isr(cluster: Cluster, topic: str) -> set[int]:
    return {int(each) for each in _described(cluster, topic)["Isr"].split(",") if each.strip()}


def reassignment(cluster: Cluster, _: float) -> None:
    """A topic that clients write to moves through all brokers, one replica, two, three; one move is called off."""
    cluster.make_topic(
        "load-moving", 1, "--replica-assignment", f"{BROKERS[0]}:{BROKERS[1]}", "--config", "min.insync.replicas=1"
    )
    cluster.load.add("load-moving")
    cluster.load.wait_progress()
    for wanted in ([12, 13], [13, 11], [11, 12, 13], [13, 12, 11], [11, 13]):
        file = _plan(cluster, wanted)
        cluster.tool("reassign", "--execute", "--reassignment-json-file", file)

        def moved(file: Path = file) -> bool:
            return "is completed" in cluster.tool("reassign", "--verify", "--reassignment-json-file", file)

        wait_for(f"replicas on {wanted}", moved, timeout_s=120)
        cluster.load.wait_progress(10)
    file = _plan(cluster, [11, 12])
    cluster.tool("reassign", "--execute", "--throttle", 1, "--reassignment-json-file", file)
    expect("load-moving-0" in cluster.tool("reassign", "--list"), "a reassignment of a byte a second is done already")
    cluster.tool("reassign", "--cancel", "--reassignment-json-file", file)
    expect("No partition reassignments found" in cluster.tool("reassign", "--list"), "a reassignment goes on")
    cluster.check()
    cluster.load.forget("load-moving")
    cluster.tool("topics", "--delete", "--topic", "load-moving")


def _plan(cluster: Cluster, replicas: list[int]) -> Path:
    file = cluster.lab.folder / f"plan-{'-'.join(map(str, replicas))}.json"
    one = {"topic": "load-moving", "partition": 0, "replicas": replicas}
    file.write_text(json.dumps({"version": 1, "partitions": [one]}))
    return file


def brokers(cluster: Cluster, seconds: float) -> None:
    """Each broker is shut down in good order, and killed, one after the other; in the short form two of them."""
    numbers = BROKERS if seconds >= 60 else BROKERS[:1]
    for number in numbers:
        for end in (KafkaNode.stop, KafkaNode.kill):
            broker = cluster.brokers[number]
            end(broker)
            cluster.load.wait_progress()
            broker.start()
            cluster.wait_broker(number)


def controllers(cluster: Cluster, seconds: float) -> None:
    """SIGKILL of the active controller, again and again."""
    end = time.monotonic() + seconds
    kills = 0
    while time.monotonic() < end or kills < 2:
        begin = time.monotonic()
        killed = cluster.active()
        killed.kill()
        cluster.make_topic(f"while-away-{kills}", 2)
        killed.start().wait_listening()
        cluster.load.wait_progress()
        kills += 1
        wait_for("the next kill", lambda begin=begin: time.monotonic() - begin >= min(EVERY_S, seconds / 2))
    cluster.tool("topics", "--delete", "--topic", "while-away-.*")


def disk(cluster: Cluster, _: float) -> None:
    """A broker's second disk dies while the broker goes on, and is replaced by an empty one."""
    number = BROKERS[1]
    broker = cluster.brokers[number]
    folder = cluster.disk_of(broker)
    held = {each.name.rpartition("-")[0] for each in folder.glob("*-[0-9]*") if each.is_dir()}
    expect(held & cluster.load.topics, f"{folder} holds nothing that clients write to: {held}")
    meta = (folder / "meta.properties").read_text()
    shutil.rmtree(folder)
    folder.write_text("no directory")

    def noticed() -> bool:
        done = cluster.try_tool("topics", "--describe", "--under-replicated-partitions")
        return done.status == 0 and bool(done.out.strip())

    wait_for("the broker to notice", noticed, timeout_s=120)
    cluster.load.wait_progress()
    assert broker.process is not None
    expect(broker.process.poll() is None, "the broker ended with its disk")
    broker.stop()
    folder.unlink()
    folder.mkdir()
    (folder / "meta.properties").write_text(meta)
    broker.start()
    cluster.wait_broker(number)


DRILLS: dict[str, Drill] = {
    each.__name__: each
    for each in (
        features,
        consoles,
        groups,
        transactions,
        topics,
        configs,
        access,
        quotas,
        elections,
        reassignment,
        brokers,
        disk,
        controllers,
    )
}
"""In the order in which they run; the first one needs a cluster that begins with 4.0."""
