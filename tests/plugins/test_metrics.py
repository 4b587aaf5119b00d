"""Prometheus metrics: Kafka's names, right values, a real endpoint, and nodes that never suffer from it."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from math import isnan

import pytest
import trio
from kafka_lab import free_port
from machines import Values
from project import ROOT
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from kraftcore import open_node
from kraftcore.config import NodeConfig
from kraftcore.config.errors import ConfigError
from kraftcore.errors import KraftError, LocalError, TransportError
from kraftcore.node.plugin import load_plugins
from kraftcore.plugins.metrics import Metrics, server
from kraftcore.plugins.metrics.latency import WINDOW_S, Latency
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action, Requester
from kraftcore.security.authorizer import Verdict
from kraftcore.testing import Cluster, KafkaCluster, in_thread

RAFT = "kafka_server_raftmetrics_"
KAFKA = [
    line.split("\t")
    for line in (ROOT / "tests" / "data" / "raft-metrics.tsv").read_text().splitlines()
    if not line.startswith("#")
]
# KIP-853 has it, Kafka 4.3.1 has not.
ADDED = {"number-of-offline-voters"}


class Page:
    """What a scrape gave."""

    def __init__(self, text):
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {}
        for family in self.families.values():
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append(sample)

    def __getitem__(self, name):
        (sample,) = self.samples[name]
        return sample.value

    def raft(self, attribute):
        return self[RAFT + attribute.replace("-", "_")]

    def text(self, attribute):
        name = RAFT + attribute.replace("-", "_")
        (sample,) = self.samples[name]
        assert sample.value == 1
        return sample.labels[name.removeprefix(RAFT)]


async def scrape(metrics):
    host, port = metrics.address

    def get():
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            return answer.read().decode()

    return Page(await trio.to_thread.run_sync(get))


class Observed(Cluster):
    """Three nodes with an endpoint each, in real time."""

    def __init__(self, size=3, **settings):
        self.made = []
        settings = {"fetch_timeout_ms": 600, "request_timeout_ms": 500, "fetch_max_wait_ms": 100, **settings}
        super().__init__(size, Values, plugins=self._make, **settings)

    def _make(self):
        self.made.append(Metrics(listen="127.0.0.1:0"))
        return self.made[-1:]

    async def page(self, node):
        *_, metrics = (one for one in self.made if one.node is not None and one.node.key == node.key)
        await metrics.ready.wait()
        return await scrape(metrics)


def in_real_time(main):
    async def limited():
        with trio.fail_after(60):
            await main()

    trio.run(limited)


class Served:
    """An endpoint whose answer is long for ``/long`` and comes when ``late`` is set for ``/late``, and connections."""

    def __init__(self):
        self.late = threading.Event()

        def answer(environ, start_response):
            if environ["PATH_INFO"] == "/late":
                self.late.wait()
            start_response("200 OK", [])
            return [bytes(1 << 26) if environ["PATH_INFO"] == "/long" else b"fine"]

        self.before = set(threading.enumerate())
        self.endpoint = server.Endpoint(answer, "127.0.0.1", 0)
        self.sockets = []

    def connect(self, said=b""):
        self.sockets.append(socket.create_connection(self.endpoint.address, timeout=20))
        self.sockets[-1].sendall(said)
        return self.sockets[-1]

    def ask(self):
        with suppress(ConnectionResetError):
            return self.connect(b"GET / HTTP/1.0\r\n\r\n").recv(100)
        return b"reset"

    def wait_threads(self, count):
        """Besides the one that accepts."""
        for _ in range(2000):
            if len(set(threading.enumerate()) - self.before) - 1 == count:
                return
            time.sleep(0.01)
        raise AssertionError(f"{threading.enumerate()}, {self.before} before")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.late.set()
        self.endpoint.close()
        for each in self.sockets:
            each.close()


def test_one_connection_more_has_the_oldest_broken_off():
    with Served() as served:
        oldest, second, *_ = [served.connect() for _ in range(server.CONNECTIONS_MAX)]
        served.wait_threads(server.CONNECTIONS_MAX)
        assert served.ask().startswith(b"HTTP/1.0 200")
        oldest.settimeout(server.REQUEST_TIMEOUT_S / 2)
        assert oldest.recv(1) == b""
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.recv(1)
        served.wait_threads(server.CONNECTIONS_MAX - 1)
    served.wait_threads(-1)


def test_there_are_no_more_threads_than_that_however_long_an_answer_takes():
    with Served() as served:
        for count in range(2 * server.CONNECTIONS_MAX):
            served.connect(b"GET /late HTTP/1.0\r\n\r\n")
            served.wait_threads(count + 1)
        for _ in range(3):
            assert served.ask().startswith((b"HTTP/1.0 503", b"reset"))
        served.wait_threads(2 * server.CONNECTIONS_MAX)
        served.late.set()
        served.wait_threads(0)
        assert served.ask().startswith(b"HTTP/1.0 200")


def test_who_asks_or_reads_too_slowly_is_broken_off(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.5)
    with Served() as served:
        slow = served.connect(b"GET ")
        served.connect(b"GET /long HTTP/1.0\r\n\r\n")
        with suppress(OSError):
            for _ in range(200):  # each byte in time
                slow.sendall(b"x")
                time.sleep(0.1)
            raise AssertionError("it still listens")
        served.wait_threads(0)
        assert served.ask().startswith(b"HTTP/1.0 200")


def test_names_and_kinds_are_kafkas():
    async def main():
        async with Observed() as cluster:
            leader = await cluster.wait_leader()
            pages = {node: await cluster.page(node) for node in cluster.nodes.values()}
            for node, page in pages.items():
                leads = node is leader
                names = {name for name, _, who in KAFKA if leads or who == "all"} | (ADDED if leads else set())
                found = {name.removeprefix(RAFT) for name in page.families if name.startswith(RAFT)}
                assert found == {name.replace("-", "_") for name in names}
                for name, kind, who in KAFKA:
                    if who == "all" or leads:
                        assert page.families[RAFT + name.replace("-", "_")].type == "gauge"
                        if kind == "text":
                            assert page.text(name)
                        elif kind != "double":
                            assert page.raft(name) == int(page.raft(name))
                assert all(family.documentation for family in page.families.values())

    in_real_time(main)


def test_values_follow_the_quorum():
    async def main():
        async with Observed() as cluster:
            leader = await cluster.wait_leader()
            for number in range(20):
                await leader.append(b"%d" % number)
            await leader.append_many([b"x"] * 30)
            await cluster.assert_all_equal()
            page, status = await cluster.page(leader), leader.status()
            assert page.text("current-state") == "leader"
            assert page.text("current-vote-directory-id") == str(leader.key.directory_id)
            assert page.raft("current-vote") == page.raft("current-leader") == leader.key.id
            assert page.raft("current-epoch") == page.raft("log-end-epoch") == status.epoch
            assert page.raft("high-watermark") == page.raft("log-end-offset") == status.log_end_offset
            assert page.raft("number-of-voters") == 3
            assert page.raft("number-of-observers") == page.raft("number-of-offline-voters") == 0
            assert page.raft("uncommitted-voter-change") == 0
            assert page["kraftcore_applied_offset"] == page["kraftcore_flushed_offset"] == status.log_end_offset
            assert page["kraftcore_log_size_bytes"] > 50 and page["kraftcore_bytes_in_flight"] == 0
            assert page["kraftcore_commit_latency_seconds_count"] == 50
            assert page.raft("commit-latency-max") >= page.raft("commit-latency-avg") > 0
            assert page["kraftcore_election_latency_seconds_count"] == 1 and page.raft("election-latency-avg") > 0
            assert page["kafka_server_raftchannelmetrics_connection_count"] >= 2
            assert page["kafka_controller_kafkacontroller_activecontrollercount"] == 1
            assert len(page.samples["kraftcore_replica_lag_records"]) == 2

            follower, other = cluster.followers
            page = await cluster.page(follower)
            assert page.text("current-state") == "follower"
            assert page.raft("current-leader") == leader.key.id
            assert page["kraftcore_commit_latency_seconds_count"] == 0 and isnan(page.raft("commit-latency-avg"))
            assert page["kafka_controller_kafkacontroller_activecontrollercount"] == 0

            observer = await cluster.add(voter=False)
            await cluster.kill(other)
            with trio.fail_after(20):
                while (page := await cluster.page(leader)).raft("number-of-offline-voters") == 0:
                    await trio.sleep(0.05)
            assert page.raft("number-of-offline-voters") == 1
            assert page.raft("number-of-voters") == 3 and page.raft("number-of-observers") == 1
            assert (await cluster.page(observer)).text("current-state") == "observer"
            await leader.snapshot_now()
            await cluster.start(other)
            with trio.fail_after(20):
                while (page := await cluster.page(leader)).raft("number-of-offline-voters"):
                    await trio.sleep(0.05)
            assert page["kraftcore_snapshots_written_total"] == 1
            assert page["kraftcore_snapshots"] == 2, "the one that names the first voters is still there"
            assert page["kraftcore_snapshot_size_bytes"] > 0

    in_real_time(main)


def test_a_survivor_reports_that_no_leader_answers_and_no_change_of_leaders():
    async def main():
        async with Observed() as cluster:
            leader = await cluster.wait_leader()
            survivor, other = cluster.followers
            with trio.fail_after(20):
                while (page := await cluster.page(survivor)).raft("current-leader") != leader.key.id:
                    await trio.sleep(0.05)
            assert page["kraftcore_seconds_since_leader_answered"] < 0.6
            assert (await cluster.page(leader))["kraftcore_seconds_since_leader_answered"] < 0.6
            await cluster.kill(leader)
            await cluster.kill(other)
            with trio.fail_after(20):
                while (page := await cluster.page(survivor)).raft("current-leader") != -1:
                    await trio.sleep(0.05)
                changes, roles = page["kraftcore_leader_changes_total"], page["kraftcore_role_changes_total"]
                while (page := await cluster.page(survivor))["kraftcore_role_changes_total"] < roles + 4:
                    assert page.raft("current-leader") == -1 and page["kraftcore_leader_changes_total"] == changes
                    await trio.sleep(0.05)
            assert page["kraftcore_seconds_since_leader_answered"] > 0.6
            await cluster.start(other)
            with trio.fail_after(20):
                while (page := await cluster.page(survivor)).raft("current-leader") == -1:
                    await trio.sleep(0.05)
            assert page["kraftcore_seconds_since_leader_answered"] < 5

    in_real_time(main)


async def visit(node, made, path):
    """Status, and lines, of a page of the node's endpoint."""
    (metrics,) = (one for one in made if one.node is not None and one.node.key == node.key)
    host, port = metrics.address

    def get():
        try:
            with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode().splitlines()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().splitlines()

    return await trio.to_thread.run_sync(get)


def test_probes_tell_whether_a_leader_answers_and_other_paths_are_not_found():
    async def main():
        async with Observed() as cluster:
            leader = await cluster.wait_leader()
            survivor, other = cluster.followers
            for node in cluster.nodes.values():
                with trio.fail_after(20):
                    while await visit(node, cluster.made, "/readyz") != (200, ["ok"]):
                        await trio.sleep(0.05)
                assert await visit(node, cluster.made, "/livez") == (200, ["ok"])
            for path in ("/", "/healthz", "/foo", "/metrics/"):
                assert await visit(leader, cluster.made, path) == (404, ["there are /metrics, /livez and /readyz"])
            for gone in (other, leader):
                await cluster.kill(gone)
            with trio.fail_after(20):
                while (found := await visit(survivor, cluster.made, "/readyz"))[0] == 200:
                    await trio.sleep(0.05)
            status, (reason,) = found
            assert status == 503 and reason.startswith("no leader has answered for ")
            assert reason.endswith("a majority, 2 of 3, is needed")
            assert await visit(survivor, cluster.made, "/livez") == (200, ["ok"])

    in_real_time(main)


def test_a_controller_reports_brokers_topics_and_partitions_as_kafkas(tmp_path):
    """The names that a JMX exporter gives kafka.controller:type=KafkaController."""
    address = f"127.0.0.1:{free_port()}"
    plugin = {"kraftcore.plugins": "metrics", "kraftcore.plugin.metrics.listen": address}

    def page():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            found = Page(answer.read().decode())
        own = "kafka_controller_kafkacontroller_"
        counts = {
            name.removeprefix(own): found[name] for name in found.samples if name.startswith(own) and "reg" not in name
        }
        states = {each.labels["broker"]: each.value for each in found.samples[f"{own}brokerregistrationstate"]}
        return found, counts, states

    with in_thread(KafkaCluster(2, node_properties={101: plugin})) as kafka:
        kafka.create_topic("mirrored", partitions=3, replication_factor=2)
        kafka.create_topic("single", partitions=4, replication_factor=1)
        found, counts, states = page()
        assert states == {"1": 30, "2": 30}
        assert (counts["activebrokercount"], counts["fencedbrokercount"]) == (2, 0)
        assert (counts["globaltopiccount"], counts["globalpartitioncount"]) == (2, 7)
        assert counts["offlinepartitionscount"] == counts["preferredreplicaimbalancecount"] == 0
        assert counts["controlledshutdownbrokercount"] == 0 and counts["newactivecontrollerscount"] == 1
        assert 0 <= counts["lastappliedrecordlagms"] < 60_000
        assert abs(counts["lastappliedrecordtimestamp"] / 1000 - time.time()) < 60
        assert 0 < counts["lastappliedrecordoffset"] == counts["lastcommittedrecordoffset"]
        assert found["kafka_server_metadataloader_currentcontrollerid"] == 101
        assert found["kafka_server_metadataloader_currentmetadataversion"] == 30  # 4.3-IV0

        kafka.kill(2)
        deadline = time.monotonic() + 30
        while (counts := page()[1])["fencedbrokercount"] == 0 or counts["offlinepartitionscount"] == 0:
            assert time.monotonic() < deadline
        assert page()[2] == {"1": 30, "2": 10}
        assert counts["activebrokercount"] == 1
        assert counts["preferredreplicaimbalancecount"] >= counts["offlinepartitionscount"] > 0


def test_a_pending_voter_change_shows():
    async def main():
        # No leader gives up for want of followers while somebody looks, however slow the machine is.
        async with Observed(fetch_timeout_ms=60_000) as cluster:
            leader = await cluster.wait_leader()
            removed = cluster.followers[0]
            await leader.read_barrier()
            cluster.partition(leader)
            before = leader.status().log_end_offset

            async def remove():
                with suppress(KraftError):  # nobody answers in time
                    await leader.remove_voter(removed.key.id, removed.key.directory_id)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(remove)
                while leader.status().log_end_offset == before:
                    await trio.sleep(0.001)
                page = await cluster.page(leader)
                assert page.raft("uncommitted-voter-change") == 1 and page.raft("number-of-voters") == 2
                cluster.heal()
            await leader.read_barrier()  # all before it is committed
            page = await cluster.page(leader)
            assert page.raft("uncommitted-voter-change") == 0

    in_real_time(main)


def test_rates_and_idleness_need_no_thread():
    async def main():
        made = []

        def plugins():
            made.append(Metrics(listen=None))
            return made[-1:]

        async with Cluster(3, Values, plugins=plugins) as cluster:
            leader = await cluster.wait_leader()
            start = leader.status().log_end_offset
            for _ in range(10):
                await leader.append_many([b"x"] * 10)
                await trio.sleep(1)
            assert leader.status().log_end_offset - start == 100
            for metrics in made:
                page = Page(generate_latest(metrics.registry).decode())
                appended, fetched = page.raft("append-records-rate"), page.raft("fetch-records-rate")
                leads = page.text("current-state") == "leader"
                assert (appended > fetched) == leads and (fetched > appended) == (not leads)
                assert 0 <= page.raft("poll-idle-ratio-avg") <= 1
        assert all(not generate_latest(metrics.registry) for metrics in made), "nothing after the end"

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_port_in_use_hurts_nobody(caplog):
    async def main():
        async with Observed(1) as cluster:
            await cluster.wait_leader()
            (first,) = cluster.made
            await first.ready.wait()
            taken = Metrics(listen="{}:{}".format(*first.address))
            async with Cluster(1, Values, plugins=lambda: [taken]) as other:
                node = await other.wait_leader()
                for _ in range(2):
                    with trio.fail_after(20), pytest.raises(TransportError, match="cannot listen"):
                        await taken.ready.wait()
                assert "cannot listen" in caplog.text
                assert not taken.ready.is_set() and taken.address is None
                await node.append(b"x")
        with pytest.raises(OSError, match="refused"):
            await scrape(first)

    with caplog.at_level(logging.ERROR, "kraftcore.node"):
        in_real_time(main)


def test_a_registry_that_has_another_nodes_metrics_is_an_error():
    class Full:
        def register(self, collector):
            raise ValueError("Duplicated timeseries")

    async def main():
        metrics = Metrics(listen=None, registry=Full())
        async with Cluster(1, Values, plugins=lambda: [metrics]) as cluster:
            node = await cluster.wait_leader()
            with trio.fail_after(20), pytest.raises(ValueError, match="Duplicated"):
                await metrics.ready.wait()
            await node.append(b"x")

    in_real_time(main)


def test_other_threads_collect_whatever_runs_in_them():
    async def main():
        metrics = Metrics(listen=None)
        async with Cluster(1, Values, plugins=lambda: [metrics]) as cluster:
            node = await cluster.wait_leader()
            await metrics.ready.wait()

            async def collect():
                return generate_latest(metrics.registry).decode()

            for run in (trio.run, lambda function: asyncio.run(function())):
                page = Page(await trio.to_thread.run_sync(run, collect))
                assert page.raft("current-leader") in (-1, 1)
            await node.append(b"x")
            page = Page(await trio.to_thread.run_sync(lambda: generate_latest(metrics.registry).decode()))
            assert page.raft("high-watermark") == node.status().log_end_offset, "no loop in the way: as it is now"
            with trio.fail_after(20):  # what loops get follows
                while (
                    Page(await trio.to_thread.run_sync(trio.run, collect)).raft("high-watermark") != node.high_watermark
                ):
                    await trio.sleep(0.1)
        assert await trio.to_thread.run_sync(trio.run, collect) == "", "nothing after the end"

    in_real_time(main)


def test_nodes_on_two_loops_may_collect_each_others():
    """Each would wait for the other's loop, which waits for this one."""
    made, nodes, problems = {}, {}, []
    both = threading.Barrier(2)

    async def main(number):
        made[number] = Metrics(listen=None)
        async with Cluster(1, Values, plugins=lambda: [made[number]]) as cluster:
            nodes[number] = await cluster.wait_leader()
            await made[number].ready.wait()
            await trio.to_thread.run_sync(both.wait, 30)
            for _ in range(20):
                assert Page(generate_latest(made[1 - number].registry).decode()).raft("number-of-voters") == 1
                await trio.lowlevel.checkpoint()
            await trio.to_thread.run_sync(both.wait, 30)

    def thread(number):
        try:
            trio.run(main, number)
        except BaseException as error:
            problems.append(error)
            both.abort()

    threads = [threading.Thread(target=thread, args=(number,), daemon=True) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads)
    assert problems == []


def test_clients_that_send_nothing_or_nonsense_hurt_nobody():
    async def main():
        async with Observed(1) as cluster:
            node = await cluster.wait_leader()
            await cluster.page(node)
            idle = [socket.create_connection(cluster.made[0].address) for _ in range(20)]
            for number, sock in enumerate(idle):
                sock.sendall(b"\x16\x03\x01" * number)
            assert (await cluster.page(node)).raft("number-of-voters") == 1
            for sock in idle:
                sock.close()

    in_real_time(main)


def test_latencies_are_counted_like_kafkas():
    latency = Latency((0.001, 0.01))
    assert isnan(latency.read(0).average_ms) and isnan(latency.read(0).maximum_ms)
    latency.add(0.001, 0)
    latency.add(0.004, 1, count=3)
    latency.add(1.0, WINDOW_S)
    reading = latency.read(WINDOW_S)
    assert reading.buckets == (("0.001", 1), ("0.01", 4), ("+Inf", 5))
    assert reading.sum_s == pytest.approx(1.013)
    assert reading.average_ms == pytest.approx(1013 / 5) and reading.maximum_ms == 1000
    later = latency.read(2 * WINDOW_S + 1)
    assert later.average_ms == later.maximum_ms == 1000, "the first window is over"
    assert isnan(latency.read(3 * WINDOW_S + 1).maximum_ms)
    assert latency.read(3 * WINDOW_S + 1).buckets == reading.buckets


def test_what_the_authorizer_said_is_counted(tmp_path):
    class EverySecond:
        asked = 0

        def authorize(self, *question):
            self.asked += 1
            return Verdict.ALLOWED if self.asked % 2 else Verdict.DENIED

    async def main():
        for authorizer, wanted in ((EverySecond(), {"allowed": 2.0, "denied": 1.0}), (None, None)):
            metrics = Metrics(listen=None)
            config = NodeConfig(
                node_id=1,
                directory=tmp_path / str(wanted is None),
                listeners=["127.0.0.1:0"],
                create="standalone",
                authorizer=authorizer,
            )
            async with open_node(config, Values(), plugins=[metrics]) as node:
                await node.wait_leader()
                await metrics.ready.wait()
                for _ in range(3 if authorizer else 0):
                    metrics.node.authorization.decide(ROBOT, Action(Operation.READ, ResourceType.TOPIC, "t"))
                page = Page(generate_latest(metrics.registry).decode())
                found = page.samples.get("kraftcore_authorizations_total")
                assert (found and {each.labels["verdict"]: each.value for each in found}) == wanted

    trio.run(main)


ROBOT = Requester("Robot:r2", "10.0.0.1", "Fetch")


def test_it_is_loaded_by_name_with_its_settings():
    config = NodeConfig(
        node_id=1,
        directory="/nowhere",
        listeners=["127.0.0.1:0"],
        plugins=["metrics"],
        plugin_settings={"metrics.listen": "127.0.0.1:0"},
    )
    (plugin,) = load_plugins(config.plugins, config.plugin_settings)
    assert type(plugin) is Metrics and plugin.listen == ("127.0.0.1", 0)
    assert load_plugins(["metrics"], {"metrics.listen": "none"})[0].listen is None
    with pytest.raises(LocalError, match="no setting port: it has listen and max_lag"):
        load_plugins(["metrics"], {"metrics.port": "1"})
    for wrong in ("-1", "few"):
        with pytest.raises(LocalError, match=f"max_lag is '{wrong}': it must be 0 or more"):
            load_plugins(["metrics"], {"metrics.max_lag": wrong})
    with pytest.raises(LocalError, match="cannot listen on 'nowhere'"):
        load_plugins(["metrics"], {"metrics.listen": "nowhere"})
    with pytest.raises(ConfigError, match=r"metrics.listen.*of no plugin that is loaded.*names none"):
        NodeConfig(node_id=1, directory="/x", listeners=["127.0.0.1:0"], plugin_settings={"metrics.listen": "x:1"})


def test_settings_of_plugins_come_from_files_and_variables(tmp_path):
    file = tmp_path / "c.properties"
    file.write_text(
        "node.id=1\nlisteners=CONTROLLER://127.0.0.1:9093\nlog.dirs=/nowhere\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        "kraftcore.plugins=metrics\nkraftcore.plugin.metrics.listen = 127.0.0.1:9999\n"
    )
    assert NodeConfig.from_properties(file).plugin_settings == {"metrics.listen": "127.0.0.1:9999"}
    variables = {
        "KRAFTCORE_NODE_ID": "1",
        "KRAFTCORE_DIRECTORY": "/nowhere",
        "KRAFTCORE_LISTENERS": "127.0.0.1:9093",
        "KRAFTCORE_BOOTSTRAP_SERVERS": "127.0.0.1:9093",
        "KRAFTCORE_PLUGINS": "metrics",
        "KRAFTCORE_PLUGIN_METRICS_LISTEN": "none",
    }
    assert NodeConfig.from_environment(environment=variables).plugin_settings == {"metrics.listen": "none"}
