"""Tables of format 1, whose runs were structured streams: what their checkpoints say of how far they came."""

from __future__ import annotations

import json
from dataclasses import replace

from kraftcore.errors import CorruptDataError
from kraftcore.plugins.spark.ranges import Progress, progress_from_json, progress_to_json
from kraftcore.plugins.spark.tables import BRONZE, Tables

_CHECKPOINTS = "_checkpoints"


def take_over(tables: Tables) -> None:
    """Go on in a folder of format 1 where its last run ended; nothing in others.

    Raises:
        CorruptDataError: that run did not end well, or the folder is of a version that is not known.
    """
    about = tables.about()
    if about is None or about["format"] != 1:
        return
    batches = {name: _last(tables, name) for name in BRONZE}
    progress = {name: _progress(tables, name, batch) for name, batch in batches.items()}
    ends = {
        progress_to_json({path: replace(one, torn=0) for path, one in found.items()}) for found in progress.values()
    }
    if len(ends) > 1:
        raise CorruptDataError(
            "tables of format 1, whose last run did not end: run the earlier version once more, or begin new tables",
            path=tables.path,
        )
    # Gold is made anew for all.
    tables.write_commit(max(batches.values()), tables.clusters(), progress_to_json(progress["errors"]))
    tables.write_about(-1)


def _last(tables: Tables, name: str) -> int:
    return max(
        (int(one) for one in tables.folder.files(f"{_CHECKPOINTS}/{name}/commits") if one.isdecimal()), default=-1
    )


def _progress(tables: Tables, name: str, batch: int) -> Progress:
    if batch < 0:
        return {}
    place = f"{_CHECKPOINTS}/{name}/offsets/{batch}"
    try:
        text = (tables.folder.read(place) or b"").decode().splitlines()[-1]
        return progress_from_json(json.loads(text)["progress"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise CorruptDataError("not what Spark writes about a micro-batch", path=tables.place(place)) from None
