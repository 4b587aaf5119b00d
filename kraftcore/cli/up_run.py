"""Runs ``kraftcore up``: a cluster, its bootstrap servers as a line, signals."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from functools import partial
from typing import Any

import trio

from kraftcore.cli.node_run import ReportedLog, Reporter, begin_serving
from kraftcore.cli.stopping import Stopping, stopping_for_good
from kraftcore.errors import KraftError, LocalError
from kraftcore.testing.kafka_cluster import KafkaCluster


def run_up(
    *,
    brokers: int,
    controllers: int,
    first_port: int,
    directory: str | None,
    properties: Mapping[str, str],
    as_json: bool,
) -> str | None:
    """Run a cluster until a signal, or the failure of a node, ends it; arguments are `KafkaCluster`'s.

    Returns:
        Why the cluster could not start or had to stop; None if it was told to stop.
    """
    reporter = Reporter(as_json=as_json)
    logger, handler = logging.getLogger("kraftcore"), ReportedLog(reporter)
    logger.addHandler(handler)
    error, started = None, trio.Event()
    try:
        make = partial(
            KafkaCluster,
            brokers,
            controllers=controllers,
            directory=directory,
            properties=properties,
            first_port=first_port,
        )
        begin_serving()
        trio.run(_run, make, directory, reporter, started)
    except (KraftError, AssertionError) as found:
        error = str(found)
        if isinstance(found, LocalError) and not started.is_set():  # a setting that cannot be
            return error
    finally:
        logger.removeHandler(handler)
    reporter.event("stopped", error=error)
    return error


async def _run(make: partial[KafkaCluster], directory: str | None, reporter: Reporter, started: trio.Event) -> None:
    raised: BaseException | None = None
    asked, cluster = trio.Event(), make()

    def stop(name: str) -> None:
        reporter.event("stopping", signal=name)
        asked.set()

    stopping = Stopping(stop, lambda: cluster.directory if directory is None else None)
    with trio.open_signal_receiver(*stopping_for_good(), signal.SIGUSR1) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, stopping)
            try:
                async with cluster as kafka:
                    reporter.event(
                        "started",
                        bootstrapServers=kafka.bootstrap_servers,
                        brokers=list(kafka.brokers),
                        controllers=list(kafka.controllers),
                        directory=directory,
                    )
                    started.set()
                    async with trio.open_nursery() as waits:
                        for wait in (asked.wait, kafka.wait_failed):
                            waits.start_soon(_then_cancel, wait, waits.cancel_scope)
                    if not kafka.failures:
                        await kafka.stop_all()
            except BaseException as error:
                raised = error  # outside the nursery, which would wrap it in a group
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _then_cancel(wait: Any, scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()


async def _obey(signals: Any, stopping: Stopping) -> None:
    async for number in signals:
        if number == signal.SIGUSR1:
            logging.getLogger("kraftcore").warning("SIGUSR1 starts nodes again that have ended: it needs --processes")
        else:
            stopping.take(number)
