"""Parts that the client's calls share: results by item, and requests that a quota holds back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import trio

from kraftcore.admin.router import Router, UnknownNodeError, refusal
from kraftcore.errors import RefusedError, RemoteProtocolError, UnreachableError
from kraftcore.ownership import Owned
from kraftcore.protocol.error_codes import ErrorCode

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)
V = TypeVar("V")
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED.name


class InTopic(Protocol):
    """An object that belongs to a partition of a topic."""

    @property
    def topic(self) -> str:
        """Its topic's name."""

    @property
    def partition(self) -> int:
        """The partition's number."""


def by_topic(partitions: Iterable[InTopic]) -> dict[str, list[int]]:
    """Numbers of partitions by topic, as most requests name them."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for each in partitions:
        grouped[each.topic].append(each.partition)
    return grouped


class PartlyRefusedError(RefusedError):
    """Some items of one call were refused; the error is that of the first refused item.

    Attributes:
        results: by item the call's result, or the item's RefusedError.
    """

    results: Mapping[Any, object]

    def __init__(self, results: Mapping[Any, object]) -> None:
        self.results = results
        first = next(each for each in results.values() if isinstance(each, RefusedError))
        super().__init__(first.error, first.message)


def settle(results: Mapping[K, V | RefusedError]) -> dict[K, V]:
    """Return the results, if no item was refused.

    Raises:
        PartlyRefusedError: an item was refused.
    """
    fine = {key: value for key, value in results.items() if not isinstance(value, RefusedError)}
    if len(fine) < len(results):
        raise PartlyRefusedError(results)
    return fine


def all_told(asked: Iterable[K], told: Mapping[K, V]) -> dict[K, V]:
    """An answer's results in the order of the requested items; results of other items are left out.

    Raises:
        RemoteProtocolError: an item has no result.
    """
    try:
        return {item: told[item] for item in asked}
    except KeyError as missing:
        raise RemoteProtocolError(f"the answer does not say what became of {missing.args[0]}") from None


def check_active(codes: Iterable[int]) -> None:
    """Let the router look for the active controller if an error in an answer says that the node was not active.

    Raises:
        RefusedError: NOT_CONTROLLER.
    """
    error = refusal(ErrorCode.NOT_CONTROLLER, None)
    if error is not None and ErrorCode.NOT_CONTROLLER in codes:
        raise error


class Calls(Owned):
    """The base class of the client's parts; see ``AdminClient``."""

    def __init__(self, router: Router) -> None:
        self._router = router

    @property
    def _timeout_ms(self) -> int:
        """How long a node may take for a request: as long as the client waits for the answer."""
        return min(self._router.request_timeout_ms, self._router.call_timeout_ms)

    def _need_brokers(self) -> None:
        """Refuse a call that only brokers can answer, on a connection to controllers.

        Raises:
            RefusedError: UNSUPPORTED_ENDPOINT_TYPE, with the text of Kafka's client.
        """
        if self._router.through_controllers:
            raise RefusedError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE.name,
                "This Admin API is not yet supported when communicating directly with the controller quorum.",
            )

    async def _of_each_node(
        self, items: Mapping[N, list[K]], ask: Callable[[N, list[K]], Awaitable[Mapping[K, V]]]
    ) -> dict[K, V]:
        """Results of changes that each node makes itself; all nodes are asked, even if one cannot be reached.

        Raises:
            UnreachableError, UnknownNodeError: of the first node that could not be asked, after all others were.
        """
        results: dict[K, V] = {}
        failure: UnreachableError | UnknownNodeError | None = None
        for node_id, asked in items.items():
            try:
                results.update(await ask(node_id, asked))
            except (UnreachableError, UnknownNodeError) as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    async def _past_quotas(
        self,
        items: Iterable[K],
        ask: Callable[[list[K]], Awaitable[tuple[int, Mapping[K, V | RefusedError]]]],
        *,
        retry: bool,
    ) -> dict[K, V | RefusedError]:
        """Ask, and ask again for items that ``controller_mutation_rate`` held back (KIP-599), until the call's timeout.

        Items held back until then have the quota's last refusal as their result.

        Args:
            items: the items to ask for.
            ask: sends a request for some items; returns the time to wait in milliseconds, and the results by item.
            retry: False: a refusal by a quota is a result like any other.

        Raises:
            UnreachableError: no node answered the first request within the call's timeout.
        """
        results: dict[K, V | RefusedError] = {}
        left = list(items)
        deadline = trio.current_time() + self._router.call_timeout_ms / 1000
        with trio.CancelScope() as scope:
            while left:
                wait_ms, found = await ask(left)
                scope.deadline = deadline  # not for the first request: the router's error names unreachable nodes
                results.update(found)
                left = [item for item in left if retry and _is_throttled(found[item])]
                if left:
                    await trio.sleep(max(wait_ms, 1) / 1000)
        return results


def _is_throttled(result: object) -> bool:
    return isinstance(result, RefusedError) and result.error == THROTTLED
