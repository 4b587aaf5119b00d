"""The dashboard as Chromium and Firefox show it: small, medium, large, light and dark; by keyboard; and axe's view."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browsers import browser
from served_dashboard import PARTITIONS, TOPIC_ID, ServedDashboard, serve_dashboard

from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord

pytestmark = pytest.mark.deep

WIDTHS = (390, 1280, 1920)
DRAWN = (
    "document.getElementById('connection').textContent === 'live' && "
    f"kraftDashboard.picture.counts.partitions === {PARTITIONS} && "
    "[...document.querySelectorAll('.plot')].every(one => one.dataset.drawn === 'yes')"
)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedDashboard]:
    with serve_dashboard() as found:
        yield found


def axe() -> str:
    spec = find_spec("axe_core_python")
    assert spec and spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_it_is_drawn_at_every_size_and_axe_finds_nothing(name, scheme, served):
    with browser(name, scheme) as page:
        for width in WIDTHS:
            page.open(served.url, width)
            page.wait(DRAWN)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) / 3 < 60) == (scheme == "dark")
            page.evaluate(f"(() => {{ {axe()} }})()")
            found = page.evaluate(
                "axe.run().then(found => found.violations.map(one => [one.id, one.nodes.map(node => node.html)]))"
            )
            assert found == []
        asked = {urlsplit(one).netloc for one in page.requests() if not one.startswith(("about:", "data:"))}
        assert asked <= {urlsplit(served.url).netloc}


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_it_is_used_by_keyboard_and_follows_the_quorum(name, served):
    with browser(name, "light") as page:
        page.open(served.url, 1280)
        page.wait(DRAWN)
        page.press("Tab")
        page.wait("document.activeElement.className === 'skip'")
        page.press("Enter")
        page.wait("document.activeElement.id === 'matter'")
        for _ in range(20):
            page.press("Tab")
            if page.evaluate("document.activeElement.id") == "search-text":
                break
        assert page.evaluate("document.activeElement.id") == "search-text"
        for letter in "orders-12":
            page.press(letter)
        page.press("Enter")
        page.wait("document.getElementById('found-note').textContent === '1 partitions found for orders-12.'")
        row = "[...document.querySelectorAll('#found tbody td')].map(one => one.textContent)"
        assert page.evaluate(row)[0] == "orders-12"

        troubled = "document.querySelectorAll('#troubled tbody tr').length"
        assert page.evaluate(troubled) == 100
        note = "document.getElementById('troubled-note').textContent"
        left = page.evaluate("kraftDashboard.picture.counts.underReplicated") - 100
        assert page.evaluate(note) == f"And {left} partitions in trouble more."
        kept = "document.querySelector('#replicas tbody tr')"
        page.evaluate(f"({kept}.dataset.mine = 'yes')")
        part = {"chromium": 101, "firefox": 102}[name]
        served.append(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=part, isr=[1, 2]))
        page.wait(
            f"document.querySelector('#events tbody tr td:nth-child(3)').textContent === 'orders-{part}: ISR 1,2'"
        )
        assert page.evaluate(f"{kept}.dataset.mine") == "yes", "rows that stay are not made anew"
        assert page.evaluate(note) == f"And {left - 1} partitions in trouble more."
        first = json.loads(page.evaluate("JSON.stringify(kraftDashboard.picture.sentences['0'])"))
        announced = page.evaluate("document.getElementById('announced').textContent")
        assert announced and announced == re.sub(r", for \d+ (s|min)", "", first["text"])
