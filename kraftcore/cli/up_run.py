"""Runs ``kraftcore up``: a cluster, its bootstrap servers as a line, signals."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import trio

from kraftcore.cli.node_run import ReportedLog, Reporter, begin_serving
from kraftcore.cli.stopping import Stopping, stopping_for_good
from kraftcore.errors import KraftError, LocalError, MissingDependencyError
from kraftcore.ports.transport import Address
from kraftcore.testing.kafka_cluster import KafkaCluster
from kraftcore.testing.kafka_thread import KafkaThread

_CONTROL_TIMEOUT_S = 120.0
"""How long a request of the HTTP interface may take: those that wait do so for half a minute, or twice that."""


def run_up(
    *,
    brokers: int,
    controllers: int,
    first_port: int,
    directory: str | None,
    properties: Mapping[str, str],
    users: Mapping[str, str],
    tls: bool,
    control: tuple[str, int] | None,
    as_json: bool,
) -> str | None:
    """Run a cluster until a signal, or the failure of a node, ends it; arguments are `KafkaCluster`'s.

    ``control`` is where the HTTP interface listens; None: nowhere.

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
            users=users,
            tls=tls,
        )
        serve: Callable[[KafkaCluster], AbstractContextManager[str | None]] = _serving_nothing
        if control is not None:
            from kraftcore.testing.control import Control  # it may lack what it needs

            serve = partial(_serving, Control, control)
        begin_serving()
        trio.run(_run, make, directory, reporter, started, serve)
    except (KraftError, AssertionError) as found:
        error = str(found)
        if isinstance(found, LocalError | MissingDependencyError) and not started.is_set():  # a setting that cannot be
            return error
    finally:
        logger.removeHandler(handler)
    reporter.event("stopped", error=error)
    return error


async def _run(
    make: partial[KafkaCluster],
    directory: str | None,
    reporter: Reporter,
    started: trio.Event,
    serve: Callable[[KafkaCluster], AbstractContextManager[str | None]],
) -> None:
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
                    with serve(kafka) as url:
                        reporter.event(
                            "started",
                            bootstrapServers=kafka.bootstrap_servers,
                            brokers=list(kafka.brokers),
                            controllers=list(kafka.controllers),
                            directory=directory,
                            securityProtocol=kafka.security_protocol,
                            caFile=kafka.ca_file,
                            controlUrl=url,
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


@contextmanager
def _serving(
    make: Callable[[KafkaThread], Callable[..., Any]], address: tuple[str, int], kafka: KafkaCluster
) -> Iterator[str]:
    """Serve the HTTP interface, while the block runs; its URL."""
    from kraftcore.plugins.metrics.server import Endpoint

    application = make(KafkaThread(kafka, trio.lowlevel.current_trio_token()))
    endpoint = Endpoint(application, *address, name="--control", timeout_s=_CONTROL_TIMEOUT_S)
    try:
        yield f"http://{Address(*endpoint.address)}"
    finally:
        endpoint.close()


@contextmanager
def _serving_nothing(kafka: KafkaCluster) -> Iterator[None]:
    yield None


async def _then_cancel(wait: Any, scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()


async def _obey(signals: Any, stopping: Stopping) -> None:
    async for number in signals:
        if number == signal.SIGUSR1:
            logging.getLogger("kraftcore").warning("SIGUSR1 starts nodes again that have ended: it needs --processes")
        else:
            stopping.take(number)
