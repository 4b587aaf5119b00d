"""The code in docs/ runs, as a reader would run it."""

from __future__ import annotations

import asyncio
import re

import pytest
import trio
from project import ROOT, sources
from transport_rig import free_port

import kraftcore.testing
from kraftcore import NodeConfig, NodeStoppedError
from kraftcore.admin import NewTopic, TopicPartition, connect
from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.registry import ApiKey


def examples(name: str, names: dict[str, object]) -> dict[str, object]:
    """Run a page's Python blocks in order; what they define."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


def run_tests(names: dict[str, object], *fixtures: object) -> int:
    tests = [value for name, value in names.items() if name.startswith("test_")]
    for test in tests:
        test(*fixtures)
    return len(tests)


def test_every_term_of_the_glossary_names_its_module_in_order():
    page = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (.+) \| `(\S+)` \|$", page, re.MULTILINE)
    assert len(rows) >= 30 and len(rows) == page.count("\n| ") - 1  # the head
    terms = [term.lower() for term, _, _ in rows]
    assert terms == sorted(terms)
    missing = [(term, module) for term, _, module in rows if not (ROOT / module).exists()]
    assert not missing, f"the glossary names modules that are not there: {missing}"


def test_security():
    examples("security.md", {})


def test_embedding(kraft_run):
    names = examples("embedding.md", {})
    machine, copy = names["Balances"](), names["Balances"]()
    (batch,) = iter_batches(bytes(build_batch([b"a 1", b"b 2", b"a 3"], timestamp_ms=1)))
    assert machine.apply(batch) == [1, 2, 4]
    values: list[bytes] = []

    class Sink:
        append = values.extend

    machine.snapshot(Sink)
    copy.restore(iter(values))
    assert copy.balances == machine.balances == {"a": 4, "b": 2}

    async def main():
        async with kraftcore.testing.Cluster(3, names["Balances"]) as cluster:
            leader = await cluster.wait_leader()
            for _ in range(2):
                assert (await names["transfer"](leader, "me", 0, b"a 7")).result == 7

    kraft_run(main)


def test_embedding_watches_from_asyncio_and_waits_in_threads(tmp_path):
    names = examples("embedding.md", {})
    seen = []
    for number, run in enumerate(
        (
            lambda config: asyncio.run(names["follow_colours"](config, seen)),
            lambda config: names["read_total"](config, seen),
        )
    ):
        directory = str(tmp_path / str(number))
        run(NodeConfig(node_id=1, directory=directory, listeners=["127.0.0.1:0"], create="standalone"))
    assert seen == [("colour", "blue"), 2]


def test_embedding_shares_a_node(tmp_path):
    names = examples("embedding.md", {})
    given = {"node_id": 1, "directory": tmp_path / "n1", "listeners": ["127.0.0.1:0"], "create": "standalone"}
    found = []

    async def deposit():
        found.append(await names["deposit"](NodeConfig(**given)))

    async def main():
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(deposit)

    trio.run(main)
    with kraftcore.blocking.open_node(NodeConfig(**given, attachable=True), names["Balances"]()):
        found.append(names["deposit_in_a_pool"](tmp_path / "n1"))
        ended = [NodeStoppedError("it ended")]

        def work(node):
            if ended:
                raise ended.pop()
            return node.append(b"a 1").result

        found.append(names["attach_again_and_again"](tmp_path / "n1", work))
    assert sorted(found) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("metrics.md", ["kafka_server_raftmetrics_current_state"]),
        ("recipes.md", ["red 1 {'colour': 'red'}\n{'resize': 'cat.jpg'} 1\n", "green\nTrue green\n"]),
    ],
)
def test_a_node_with_something(tmp_path, monkeypatch, capsys, page, said):
    monkeypatch.chdir(tmp_path)
    examples(page, {})
    printed = capsys.readouterr().out
    assert all(text in printed for text in said), printed


def test_controller(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    examples("controller.md", {})
    assert "server 101 may lead partitions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "function", "said", "has_groups"),
    [(0, "run_both", "broker 1 serves PLAINTEXT://127.0.0.1:", True), (1, "run", "CLIENT://127.0.0.1:", False)],
)
def test_broker(tmp_path, capsys, number, function, said, has_groups):
    """The page's properties, at places of this test's own, and the program that it starts with them."""
    page = (ROOT / "docs" / "broker.md").read_text()
    text = re.findall(r"<<END\n(.*?)    END", page, re.DOTALL)[number]
    for found, here in (
        ("127.0.0.1:9093", f"127.0.0.1:{free_port()}"),
        (":9092", ":0"),
        (":9192", ":0"),
        ("/var/lib/broker1", str(tmp_path / "broker1")),
        ("/var/lib/kraftcore", str(tmp_path / "n1")),
    ):
        text = text.replace(found, here)
    properties = tmp_path / "server.properties"
    properties.write_text(re.sub("^ +", "", text, flags=re.MULTILINE))
    run = examples("broker.md", {})[function]

    async def commit(address):
        place = TopicPartition("t", 0)
        async with connect(bootstrap_servers=[address]) as client:
            await client.create_topics([NewTopic("t", partitions=1, replication_factor=1)])
            await client.commit_offsets("g", {place: 7})
            assert (await client.committed_offsets("g"))[place].offset == 7

    async def main():
        with trio.move_on_after(60), trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, str(properties))
                printed = ""
                while not (found := re.search(rf"{said}(\d+)", printed)):
                    await trio.sleep(0.01)
                    printed += capsys.readouterr().out
                if has_groups:
                    await commit(f"127.0.0.1:{found[1]}")
                scope.cancel()
        assert scope.cancelled_caught

    trio.run(main)


def section_of_broker(title):
    return (ROOT / "docs" / "broker.md").read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def versions_listed(text):
    """Lowest and highest version by request, from tables with one or several requests in a row."""
    return {name: (int(low), int(high)) for name, low, high in re.findall(r"\| (\w+) \| (\d+)-(\d+) (?=\|)", text)}


def test_what_the_broker_offers_is_what_its_page_says(tmp_path):
    from broker_rig import open_rig

    listed = versions_listed(section_of_broker("Under control requests"))

    async def main():
        async with open_rig(tmp_path) as rig:
            await rig.start(1)
            answer = await rig.ask(1, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            camel = {key: "".join(part.capitalize() for part in key.name.split("_")) for key in ApiKey}
            offered = {camel[ApiKey(each.api_key)]: (each.min_version, each.max_version) for each in answer.api_keys}
            assert offered == listed

    trio.run(main)


def test_what_the_broker_offers_under_a_kraft_controller_is_what_its_page_says(tmp_path):
    from kraft_rig import open_kraft_rig

    listed = versions_listed(section_of_broker("What clients may ask") + section_of_broker("Consumer groups"))

    async def main():
        async with open_kraft_rig(tmp_path) as rig:
            await rig.controller()
            await rig.broker(1)
            answer = await rig.ask(1, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            camel = {key: "".join(part.capitalize() for part in key.name.split("_")) for key in ApiKey}
            offered = {camel[ApiKey(each.api_key)]: (each.min_version, each.max_version) for each in answer.api_keys}
            assert offered == listed

    trio.run(main)


def test_testing_your_application(kraft_run, kraft_cluster):
    names = examples("testing-your-application.md", examples("embedding.md", {}))
    assert run_tests(names, kraft_run, kraft_cluster) == 2


def test_kafka_for_tests(kafka_cluster):
    names = examples("kafka-for-tests.md", {})
    assert run_tests(names, kafka_cluster) == 4
    trio.run(names["main"])


def test_what_a_kafka_for_tests_has_on_trio_and_in_a_thread(kafka_cluster):
    page = (ROOT / "docs" / "kafka-for-tests.md").read_text()
    (table,) = re.findall(r"^\| call \| what it does \|\n(.*?)\n\n", page, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", table, re.MULTILINE)
    assert len(rows) == table.count("\n")
    kafka = kafka_cluster(1)
    for calls, text in rows:
        for name in re.findall(r"`([a-z_]+)", calls):
            assert hasattr(kafka, name) is not text.startswith("on trio only: "), name
            assert kafka.look(hasattr, kafka.cluster, name) is not text.startswith("in a thread only: "), name


def test_plugins_and_transports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_tests(examples("plugins.md", {})) == 1
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("role leader\n", "hello back\n", "rules hold: "))


def test_every_page_begins_with_what_its_reader_can_do():
    others = {"architecture", "changing", "consensus"}
    for path in sorted((ROOT / "docs").glob("*.md")):
        title, first = path.read_text().split("\n\n")[:2]
        assert path.stem in others or (title.startswith("# ") and first.startswith("After this page ")), path.name


def test_every_link_to_a_heading_finds_it():
    def headings(path):
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")]
    for page in pages:
        for link, heading in re.findall(r"\]\(([^)\s:]*)#([^)\s]+)\)", page.read_text()):
            assert heading in headings(page.parent / link if link else page), f"{page.name}: {link}#{heading}"


def test_every_logger_is_documented():
    page = (ROOT / "docs" / "operating.md").read_text()
    text = "".join(path.read_text() for path in sources(".py") if "tests" not in path.parts)
    found = set(re.findall(r'getLogger\("(kraftcore[^"]*)"\)', text)) - {"kraftcore"}
    assert found == set(re.findall(r"^\| `(kraftcore\.[a-z.]+)` \|", page, flags=re.MULTILINE))


def test_the_changelog_has_each_section_once_in_order():
    text = (ROOT / "CHANGELOG.md").read_text()
    first = "0.1.0"  # what it is, by topic: before it nothing was released that could have changed
    for version in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.*)$", version, flags=re.MULTILINE)
        order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
        if version.startswith(first):
            assert len(set(found)) == len(found)
            assert len(version.splitlines()) <= 80, "0.1.0 is told in 80 lines: shorten what is there"
        else:
            assert found == [name for name in order if name in found], f"{version.split()[0]} has {found}"
        entries = re.findall(r"^- .*", version, flags=re.MULTILINE)
        assert len(set(entries)) == len(entries), [entry for entry in entries if entries.count(entry) > 1]
