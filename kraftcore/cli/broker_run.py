"""What ``kraftcore server start`` does with a broker's file: a broker, its events as lines, signals."""

from __future__ import annotations

import logging
import os
import signal

import trio

from kraftcore import __version__
from kraftcore.cli.server_run import STOPPING, ReportedLog, Reporter, begin_serving
from kraftcore.errors import KraftError
from kraftcore.plugins.broker import open_broker
from kraftcore.plugins.broker.config import BrokerConfig


def run_broker(config: BrokerConfig, *, as_json: bool) -> str | None:
    """Run a broker until a signal, or its failure, ends it.

    Args:
        config: see `BrokerConfig`.
        as_json: print JSON objects instead of text.

    Returns:
        Why it could not start or had to stop; None if it was asked to.
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
    with trio.open_signal_receiver(*STOPPING) as signals:
        async with open_broker(config) as broker:
            reporter.event(
                "started",
                nodeId=config.node_id,
                clusterId=broker.cluster_id,
                directories=list(config.directories),
                listeners=[str(endpoint) for endpoint in broker.endpoints],
                pid=os.getpid(),
                version=__version__,
            )
            async with trio.open_nursery() as nursery:

                async def obey() -> None:
                    number = await anext(signals)
                    reporter.event("stopping", signal=signal.Signals(number).name)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(obey)
                await broker.wait_failed()
                nursery.cancel_scope.cancel()
        # What comes now stops it at once: nothing that was acknowledged is lost.
