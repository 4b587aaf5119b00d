"""The report as Chromium and Firefox show it: narrow and wide, light and dark, zoomed, and without a network.

Fonts differ from machine to machine, so what is compared is what they do not change: text is made invisible, and of
each plot the colors along its lanes are read from a screenshot and held against a stored drawing, one letter for each
hundredth of the time. ``--rewrite`` writes the drawing anew.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

import bad_day
import pytest
from browsers import browser
from project import ROOT

from kraftcore.plugins.spark.answers import question
from kraftcore.plugins.spark.charts import BAD, GOOD, WARN, WORSE

pytestmark = pytest.mark.deep

WIDTHS = (600, 1280, 1920)
DRAWING = ROOT / "tests" / "data" / "report" / "bad-day.txt"
LETTERS = {GOOD: "g", WARN: "w", WORSE: "o", BAD: "b"}
DRAWN = ("Voters", "Worst partitions", "Broker availability")
COLUMNS = 100
NO_TEXT = "* {color: transparent !important} svg text, svg .role-axis-grid {visibility: hidden}"

CLUSTER = f"document.querySelector('section[data-cluster=\"{bad_day.CLUSTER_ID}\"]')"
PLOTS = f"[...{CLUSTER}.querySelectorAll('figure[data-chart]')]"
# Every plot's places: of the plot itself, and of the labels below it.
FACTS = """(() => {
  const box = one => { const r = one.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  return PLOTS.map(figure => {
    const svg = figure.querySelector('svg'), axes = [...svg.querySelectorAll('g.role-axis[aria-label]')];
    const below = axes.find(one => one.getAttribute('aria-label').startsWith('X-axis'));
    return {title: figure.querySelector('b').textContent, svg: box(svg),
      plot: box(svg.querySelector('path.background')),
      ticks: [...below.querySelectorAll('.role-axis-label text')].filter(one => getComputedStyle(one).opacity !== '0')
        .map(one => [one.textContent, ...box(one)]),
      texts: [...svg.querySelectorAll('text')].filter(one => one.textContent.trim() && !one.closest('.role-mark')
        && one.getAttribute('opacity') !== '0').map(one => [one.textContent, ...box(one)])};
  });
})()""".replace("PLOTS", PLOTS)
# Words of cells that begin in one line and end in another.
BROKEN = """(() => {
  const found = [], walk = document.createTreeWalker(CLUSTER, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (!node.parentElement.closest('td, th, p, h3, li, figcaption, button')) continue;
    for (const word of node.textContent.matchAll(/[^\\s\\-/]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter(r => r.width > 0.5).map(r => Math.round(r.top)));
      if (lines.size > 1) found.push(word[0]);
    }
  }
  return found;
})()""".replace("CLUSTER", CLUSTER)
# Tables that are wider than the page.
CUT_OFF = (
    "[...document.querySelectorAll('.rows')].filter(one => one.scrollWidth > one.clientWidth)"
    ".map(one => one.querySelector('table').dataset.query)"
)


def shown(page, report, width):
    """Open the report, and wait until all plots of the bad day are drawn."""
    page.open(report, width)
    page.evaluate(f"{PLOTS}.forEach(one => one.scrollIntoView())")
    for number in range(page.evaluate(f"{PLOTS}.length")):
        page.evaluate(f"{PLOTS}[{number}].scrollIntoView({{block: 'center'}})")
        page.wait(f"{PLOTS}[{number}].dataset.drawn === 'yes'")
    page.evaluate("scrollTo(0, 0)")


def seconds(label):
    """A tick's label as seconds of the day."""
    found = re.fullmatch(r"(\d\d):(\d\d)(?::(\d\d))?", label)
    assert found, f"a tick at {label}"
    hours, minutes, rest = found.groups()
    return int(hours) * 3600 + int(minutes) * 60 + int(rest or 0)


def check_layout(page, width):
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(BROKEN) == []
    if width >= 1280:
        assert page.evaluate(CUT_OFF) == []
    facts = page.evaluate(FACTS)
    assert len(facts) == 8
    assert len({round(one["plot"][0]) for one in facts}) == 1, "one moment is not at one place in all plots"
    assert len({round(one["plot"][2]) for one in facts}) == 1
    for one in facts:
        left, top, right, bottom = one["svg"]
        assert right - left <= width
        assert one["plot"][2] - one["plot"][0] > 0.6 * width * min(1, 1400 / width)
        for _, x0, y0, x1, y1 in one["texts"]:
            assert left - 1 <= x0 and x1 <= right + 1 and top - 1 <= y0 and y1 <= bottom + 1, one
        ticks = sorted(one["ticks"], key=lambda tick: tick[1])
        assert len(ticks) >= 3, one["title"]
        assert all(before[3] < after[1] for before, after in pairwise(ticks)), "labels overlap"
        moments = [seconds(tick[0]) for tick in ticks]
        step, *others = {after - before for before, after in pairwise(moments)}
        assert not others, moments
        assert step in (15, 30, 60, 120, 300), f"a tick every {step} s"
        assert all(moment % step == 0 for moment in moments)


def lanes(page):
    """Each lane of the drawn plots, as letters."""
    lines = []
    page.evaluate(
        f"document.head.append(Object.assign(document.createElement('style'), {{textContent: {json.dumps(NO_TEXT)}}}))"
    )
    for one in page.evaluate(FACTS):
        if one["title"] not in DRAWN:
            continue
        left, top, right, bottom = one["plot"]
        scroll = page.evaluate("scrollY")
        box = {"x": left, "y": top + scroll, "width": right - left, "height": bottom - top}
        picture = page.picture(box)
        lines.append(f"{one['title']}:")
        for row in range(round((bottom - top) / 24)):
            y = row * 24 + 12
            lines.append("  " + "".join(letter(picture, (column + 0.5) / COLUMNS, y) for column in range(COLUMNS)))
    return lines


def letter(picture, share, y):
    """The color at a share of the width."""
    x = min(round(share * picture.width), picture.width - 1)
    found = picture.getpixel((x, min(y, picture.height - 1)))
    near = {
        name: sum(abs(int(color[1 + 2 * i : 3 + 2 * i], 16) - found[i]) for i in range(3))
        for color, name in LETTERS.items()
    }
    best = min(near, key=near.get)
    return best if near[best] < 40 else "."


def differing(lines, wanted):
    """How many letters of either drawing the other has neither there nor beside: edges may fall a pixel further."""
    assert [len(one) for one in lines] == [len(one) for one in wanted]
    pairs = list(zip(lines, wanted, strict=True))
    return sum(missing(one, other) + missing(other, one) for one, other in pairs)


def missing(line, other):
    return sum(letter not in other[max(at - 1, 0) : at + 2] for at, letter in enumerate(line))


def check_colors(page, scheme):
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.body).color")
    label = page.evaluate(f"{PLOTS}[0].querySelector('.role-axis-label text').getAttribute('fill')")

    def light(color):
        parts = [int(one) for one in re.findall(r"\d+", color)][:3] if "rgb" in color else [
            int(color.lstrip("#").ljust(6, color[-1])[i : i + 2], 16) for i in (0, 2, 4)]  # fmt: skip
        return sum(parts) / 3

    dark = scheme == "dark"
    assert (light(ground) < 60) == dark
    assert abs(light(ground) - light(ink)) > 120
    assert abs(light(ground) - light(label)) > 120
    corner = page.picture({"x": 0, "y": 0, "width": 4, "height": 4}).getpixel((1, 1))
    assert (sum(corner) / 3 < 60) == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_it_is_drawn_at_every_width(name, scheme, written_report, request):
    if request.config.getoption("--rewrite") and (name, scheme) == ("chromium", "light"):
        with browser(name, scheme) as page:
            shown(page, written_report, 1280)
            DRAWING.write_text("\n".join(lanes(page)) + "\n")
    wanted = DRAWING.read_text().splitlines()
    assert Counter("".join(wanted))["b"] > 20
    with browser(name, scheme) as page:
        for width in WIDTHS:
            shown(page, written_report, width)
            check_colors(page, scheme)
            check_layout(page, width)
            assert differing(lanes(page), wanted) <= len(wanted), f"{name}, {scheme}, {width} px"
        asked = [one for one in page.requests() if not one.startswith(("about:", "data:"))]
        assert set(asked) <= {written_report.as_uri()}
        assert asked or name == "firefox"  # which does not tell of files


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_plots_are_zoomed_together_and_tell_what_is_under_the_pointer(name, written_report):
    with browser(name, "light") as page:
        shown(page, written_report, 1280)
        spans = (
            f"[...kraftReport.shown.values()].filter(one => one.cluster === '{bad_day.CLUSTER_ID}')"
            ".map(one => JSON.stringify(one.view.scale('x').domain().map(Number)))"
        )
        (whole,) = {*page.evaluate(spans)}
        first, last = json.loads(whole)

        page.evaluate(f"{CLUSTER}.querySelector('[data-zoom=in]').click()")
        page.wait(f"new Set({spans}).size === 1 && {spans}[0] !== {json.dumps(whole)}")
        start, end = json.loads(page.evaluate(spans)[0])
        assert end - start == pytest.approx((last - first) / 2, abs=2)

        page.evaluate(f"{PLOTS}.at(-1).scrollIntoView({{block: 'center'}})")
        left, top, right, bottom = page.evaluate(FACTS)[-1]["plot"]
        middle = ((left + right) / 2, (top + bottom) / 2)
        before = page.evaluate(spans)[0]
        page.drag(middle, (middle[0] + 100, middle[1]))
        page.wait(f"new Set({spans}).size === 1 && {spans}[0] !== {json.dumps(before)}")
        moved, _ = json.loads(page.evaluate(spans)[0])
        assert moved == pytest.approx(start - 100 / (right - left) * (end - start), rel=0, abs=(end - start) * 0.01)

        fire = (
            f"(kind, more) => {PLOTS}.at(-1).querySelector('svg path.background').dispatchEvent(new kind[0](kind[1], "
            f"{{bubbles: true, cancelable: true, clientX: {middle[0]}, clientY: {middle[1]}, ...more}}))"
        )
        before = page.evaluate(spans)[0]
        assert page.evaluate(f"({fire})([WheelEvent, 'wheel'], {{deltaY: -100}})"), "the page scrolls as ever"
        assert page.evaluate(spans)[0] == before
        assert not page.evaluate(f"({fire})([WheelEvent, 'wheel'], {{deltaY: -100, ctrlKey: true}})")
        page.wait(f"new Set({spans}).size === 1 && {spans}[0] !== {json.dumps(before)}")
        start, end = json.loads(before)
        first_seen, last_seen = json.loads(page.evaluate(spans)[0])
        assert last_seen - first_seen < end - start
        page.evaluate(f"({fire})([MouseEvent, 'dblclick'], {{}})")
        page.wait(f"new Set({spans}).size === 1 && {spans}[0] === {json.dumps(whole)}")

        page.evaluate(f"{CLUSTER}.querySelector('[data-zoom=on]').click()")
        page.wait(f"new Set({spans}).size === 1 && {spans}[0] !== {json.dumps(whole)}")
        page.evaluate(f"{CLUSTER}.querySelector('[data-zoom=all]').click()")
        page.wait(f"new Set({spans}).size === 1 && {spans}[0] === {json.dumps(whole)}")

        trouble = [one["title"] for one in page.evaluate(FACTS)].index("Partitions in trouble")
        figure = f"{PLOTS}[{trouble}]"
        page.evaluate(f"{figure}.scrollIntoView({{block: 'center'}})")
        place = f"(value => kraftReport.shown.get({figure}).view.scale('y')(value))"
        bottom, one, peak = page.evaluate(f"[0, 1, {bad_day.CLICKS}].map({place})")
        assert bottom - one < 0.02 * (bottom - peak), "a peak hides the rest"
        page.evaluate(f"{figure}.querySelector('.log input').click()")
        page.wait(f"{figure}.dataset.scale === 'log'")
        bottom, one, peak = page.evaluate(f"[0, 1, {bad_day.CLICKS}].map({place})")
        assert bottom - one > 0.1 * (bottom - peak)
        ticks = (
            f"[...{figure}.querySelectorAll('[aria-label^=Y-axis] .role-axis-label text')].map(one => one.textContent)"
        )
        assert page.evaluate(ticks) == ["0", "1", "10", "100"]
        page.evaluate(f"{figure}.querySelector('.log input').click()")
        page.wait(f"{figure}.dataset.scale === 'linear'")

        details = f"{CLUSTER}.querySelector('details.sql[data-query=incidents]')"
        page.evaluate(f"{details}.open = true")
        page.wait(
            f"{details}.querySelector('pre').textContent === {json.dumps(question('incidents', bad_day.CLUSTER_ID))}"
        )
        other = "it's \\ $& one"  # a cluster may have any name
        page.evaluate(f"{CLUSTER}.dataset.cluster = {json.dumps(other)}")
        page.evaluate(
            "(details => details.open = true)"
            f"([...document.querySelectorAll('section')].find(one => one.dataset.cluster === {json.dumps(other)})"
            ".querySelector('details.sql[data-query=now]'))"
        )
        page.wait(
            "[...document.querySelectorAll('details.sql[data-query=now] pre')]"
            f".some(one => one.textContent === {json.dumps(question('now', other))})"
        )
        page.evaluate(
            f"[...document.querySelectorAll('section')].find(one => one.dataset.cluster === {json.dumps(other)})"
            f".dataset.cluster = {json.dumps(bad_day.CLUSTER_ID)}"
        )

        folded = "[...document.querySelectorAll('details.fold')].findIndex(one => !one.open)"
        number = page.evaluate(folded)
        page.evaluate(f"document.querySelector('a[href=\"#cluster-{number}\"]').click()")
        page.wait(f"document.querySelector('#cluster-{number} details.fold').open")

        number = [one["title"] for one in page.evaluate(FACTS)].index("Broker availability")
        page.evaluate(f"{PLOTS}[{number}].scrollIntoView({{block: 'center'}})")
        left, top, right, _ = page.evaluate(FACTS)[number]["plot"]
        at = left + (bad_day.moment("14:06:05.000") - first) / (last - first) * (right - left)
        lane = page.evaluate(
            f"[...{PLOTS}[{number}].querySelectorAll('.role-axis-label text')].map(one => one.textContent)"
            ".filter(text => text.startsWith('broker')).indexOf('broker 101')"
        )
        page.hover(at, top + lane * 24 + 12)
        tip = page.wait("(document.querySelector('#vg-tooltip-element.visible') || {}).innerText")
        assert "broker 101" in tip and "fenced" in tip and "2026-11-21 14:06:01.200" in tip
