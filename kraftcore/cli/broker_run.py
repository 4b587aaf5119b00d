"""What ``kraftcore server start`` does with a broker's file: a broker, its events as lines, signals."""

from __future__ import annotations

import logging
import os
import signal

import trio

from kraftcore import __version__
from kraftcore.cli.server_run import ReportedLog, Reporter, begin_serving, stopping_for_good
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
    opening, serving = trio.CancelScope(), trio.CancelScope()
    to_cancel = opening
    raised: BaseException | None = None
    with trio.open_signal_receiver(*stopping_for_good()) as signals:

        async def obey() -> None:
            is_stopping = False
            async for number in signals:
                if is_stopping and number == signal.SIGHUP:  # a terminal that is closed may send several
                    continue
                if is_stopping:  # at once, which loses nothing that was acknowledged
                    signal.signal(number, signal.SIG_DFL)
                    os.kill(os.getpid(), number)
                is_stopping = True
                reporter.event("stopping", signal=signal.Signals(number).name)
                to_cancel.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(obey)
            try:
                with opening:
                    async with open_broker(config) as broker:
                        to_cancel = serving
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
