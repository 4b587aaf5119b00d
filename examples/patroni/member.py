"""Patroni with one more DCS, that of kraft_dcs.py.

python member.py patroni.yml                 what `patroni patroni.yml` is
python member.py ctl -c patroni.yml list     what `patronictl -c patroni.yml list` is
"""

import sys
from collections.abc import Iterator
from typing import Any

import patroni.dcs
from kraft_dcs import Kraftcore

known = patroni.dcs.iter_dcs_classes


def with_kraftcore(config: Any = None) -> Iterator[tuple[str, type[patroni.dcs.AbstractDCS]]]:
    """What Patroni's own function tells: the DCS that a configuration has a section for, or all of them."""
    if config is None or "kraftcore" in config:
        yield "kraftcore", Kraftcore
    yield from known(config)


patroni.dcs.iter_dcs_classes = with_kraftcore

if __name__ == "__main__":  # not in the helper process in which Patroni starts PostgreSQL
    if sys.argv[1:2] == ["ctl"]:
        from patroni.ctl import ctl

        del sys.argv[1]
        ctl()
    else:
        from patroni.__main__ import main

        main()
