"""Vega, Vega-Lite and Vega-Embed for pages without a network, and what all plots share."""

from __future__ import annotations

from typing import Any

VEGA_LITE = "6.4"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
GOOD, WARN, WORSE, BAD = "#54a24b", "#eeca3b", "#f58518", "#e45756"
"""Colors of states."""
CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
    "legend": {"orient": "top", "title": None, "labelFontSize": 11, "symbolType": "circle", "labelLimit": 0},
}
NOTICE = (
    "Plots are drawn by Vega, Vega-Lite and Vega-Embed: Copyright (c) 2015-2026, University of Washington Interactive "
    "Data Lab and contributors; all rights reserved; BSD 3-Clause License."
)


def make_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script of about 0.9 MB, which loads nothing; takes more than a second."""
    import vl_convert

    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return text.replace("</script", "<\\/script")
