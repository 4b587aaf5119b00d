"""``kraftcore server start`` with a broker's file: runs a broker, prints its events, handles signals."""

from __future__ import annotations

import logging
import os
from typing import Any

import trio

from kraftcore import __version__
from kraftcore.cli.node_run import ReportedLog, Reporter, begin_serving
from kraftcore.cli.stopping import Stopping, stopping_for_good
from kraftcore.errors import KraftError
from kraftcore.plugins.broker import open_broker
from kraftcore.plugins.broker.config import BrokerConfig


def run_broker(config: BrokerConfig, *, as_json: bool) -> str | None:
    """Run a broker until a signal, or its failure, ends it.

    Args:
        config: see `BrokerConfig`.
        as_json: print JSON objects instead of text.

    Returns:
        Why the broker could not start or had to stop; None if it was told to stop.
    """
    reporter = Reporter(as_json=as_json)
    logger = logging.getLogger("kraftcore")
    handler = ReportedLog(reporter)
    logger.addHandler(handler)
    error = None
    try:
        if config.ignored:
            reporter.event("ignored", properties=list(config.ignored))
        begin_serving()
        trio.run(_serve, config, reporter)
    except KraftError as found:
        error = str(found)
    finally:
        logger.removeHandler(handler)
    reporter.event("stopped", error=error)
    return error


async def _serve(config: BrokerConfig, reporter: Reporter) -> None:
    opening, serving = trio.CancelScope(), trio.CancelScope()
    under_way = opening

    def stop(name: str) -> None:
        reporter.event("stopping", signal=name)
        under_way.cancel()

    stopping = Stopping(stop)
    raised: BaseException | None = None
    with trio.open_signal_receiver(*stopping_for_good()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, stopping)
            try:
                with opening:
                    async with open_broker(config) as broker:
                        under_way = serving
                        reporter.event(
                            "started",
                            nodeId=config.node_id,
                            clusterId=broker.cluster_id,
                            directories=list(config.directories),
                            listeners=[str(endpoint) for endpoint in broker.endpoints],
                            pid=os.getpid(),
                            version=__version__,
                        )
                        with serving:
                            await broker.wait_failed()
            except BaseException as error:
                raised = error  # outside the nursery, which would wrap it in a group
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _obey(signals: Any, stopping: Stopping) -> None:
    async for number in signals:
        stopping.take(number)
