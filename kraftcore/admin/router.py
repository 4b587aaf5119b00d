"""Sends a request to a node that can answer it.

Two routes, as in Kafka (KIP-919). Through controllers every call goes to the active one: it is found by asking any
known controller to describe the cluster, and again whenever a node says that it is not active. Through brokers every
call goes to any broker, which passes it on. Until the leader is known, or if it never registered, the bootstrap
addresses are tried in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio

from kraftcore import __version__
from kraftcore.admin.results import ClusterDescription, NodeAddress
from kraftcore.admin.survey import Reply, Survey, SurveyedError, Surveyor
from kraftcore.errors import (
    AuthenticationError,
    ClosedError,
    KraftError,
    LocalError,
    RefusedError,
    UnreachableError,
    UnsupportedVersionError,
    WireError,
)
from kraftcore.ports.nursery import open_nursery
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.registry import ApiKey
from kraftcore.protocol.schema import Request, Response

BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster (KIP-919)
BACKOFF_MS, BACKOFF_MAX_MS = 100, 1000  # retry.backoff.ms, retry.backoff.max.ms of Kafka's clients
STAGGER_S = 0.25  # pause between asking one known node and the next for the cluster's nodes
SETTLE_S = 0.5  # how long others may take when a node has answered that it knows no leader
SURVEY_AFTER_S = 0.3  # a call that lasts longer has the nodes asked who answers, again and again
SURVEY_PATIENCE_S = 2.0  # for the answers of all of them
DOES_NOT_LEAD = "says that it does not lead"
ELSEWHERE = {ErrorCode.NOT_CONTROLLER.name, ErrorCode.NOT_LEADER_OR_FOLLOWER.name}
REASONS = {
    Failure.REFUSED: "nobody listens there",
    Failure.RESET: "the connection was broken",
    Failure.TIMED_OUT: "no answer in time",
    Failure.UNSUPPORTED_VERSION: "it closed the connection on this version",
    Failure.UNAUTHENTICATED: "it does not accept the login",
    Failure.OTHER: "it cannot be reached (name resolution, route or TLS)",
}
R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class Timing:
    """The timeouts of an admin client, milliseconds.

    Attributes:
        call_timeout_ms: for a whole call with all its tries (Kafka: default.api.timeout.ms).
        request_timeout_ms: for one request's answer (Kafka: request.timeout.ms).
        waits_for_nodes: False: a call ends as soon as it is known that too few nodes answer (``Survey.is_hopeless``),
            or that brokers answer and what they passed on does not come back.
    """

    call_timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    waits_for_nodes: bool = True

    def __post_init__(self) -> None:
        if self.call_timeout_ms <= 0 or self.request_timeout_ms <= 0:
            raise LocalError(f"timeouts are above 0 ms, not {self.call_timeout_ms} and {self.request_timeout_ms}")


class Waiting(Protocol):
    """Describes why an awaited answer is not there yet."""

    @property
    def last_failure(self) -> str:
        """The last failure, or the answer that is missing, for people."""

    @property
    def survey(self) -> Survey | None:
        """Who answers; None while that is not known."""


Watch = Callable[[str, Waiting], AbstractContextManager[None]]
"""Called for each call, with a text that names the awaited answer and its `Waiting`; the call runs in the block."""


@dataclass(slots=True)
class Tries:
    """The outcomes of one call's requests so far.

    Attributes:
        lost_answers: how many were sent and not answered, the one under way included: each may have been carried out.
        doubtful: how many were refused in a way that leaves open whether they are carried out all the same.
        last_failure: the last failure in words, for people.
        survey: who answers, if the call has lasted long enough for that to be looked up.
        asked: who is asked now, if another node may be asked instead.
        under_way: cancelled to ask another node.
    """

    lost_answers: int = 0
    doubtful: int = 0
    last_failure: str = ""
    survey: Survey | None = None
    asked: Address | None = None
    under_way: trio.CancelScope | None = None

    @property
    def outcome_unknown(self) -> bool:
        """Whether a request may have been carried out."""
        return self.lost_answers + self.doubtful > 0

    def timed_out(self, name: str) -> UnreachableError:
        """The error for a call named ``name`` that has reached its timeout."""
        return self._error(f"Timed out waiting for a node assignment. Call: {name}")

    def given_up(self, name: str) -> UnreachableError:
        """The error for a call named ``name`` that does not wait for nodes to come back."""
        return self._error(f"Nobody can answer now. Call: {name}")

    def _error(self, text: str) -> UnreachableError:
        if self.survey is None:
            return UnreachableError(text, last_failure=self.last_failure, outcome_unknown=self.outcome_unknown)
        return SurveyedError(
            text, last_failure=self.last_failure, outcome_unknown=self.outcome_unknown, survey=self.survey
        )


class UnknownNodeError(LocalError):
    """The cluster's answer has no node of this id."""


class NoAnswer(Exception):
    """A try that may be repeated failed; used inside this package."""

    def __init__(self, reason: str, *, was_sent: bool = False) -> None:
        self.was_sent = was_sent
        super().__init__(reason)


def refusal(code: int, message: str | None) -> RefusedError | None:
    """The error in a response as an exception; None for code 0. Without a text it gets Kafka's standard one."""
    if code == 0:
        return None
    known = ErrorCode.of(code)
    text = known.message if message is None else message
    return RefusedError(known.name, text or "")


def raise_refusal(code: int, message: str | None) -> None:
    """Raise the error in a response, if it is one."""
    error = refusal(code, message)
    if error is not None:
        raise error


class Router:
    """Sends the requests of one client, whose calls may run at the same time."""

    def __init__(
        self,
        transport: Transport,
        bootstrap: Sequence[Address],
        *,
        through_controllers: bool,
        timing: Timing,
        client_id: str,
        watch: Watch | None = None,
    ) -> None:
        self.through_controllers = through_controllers
        self._transport = transport
        self._bootstrap = tuple(bootstrap)
        self._timing = timing
        self._client_id = client_id
        self._watch = watch
        self._correlation_ids = itertools.count(1)
        self._turn = itertools.count()
        self._versions: dict[Address, Mapping[int, tuple[int, int]]] = {}
        self._nodes: dict[int, Address] = {}
        self._target: Address | None = None
        self._answered: tuple[Address, ...] = ()
        self._surveyor = Surveyor(self._bootstrap, self._reply, through_controllers=through_controllers)
        self._is_closed = False

    def close(self) -> None:
        """Refuse calls from now on; calls under way end with their present try."""
        self._is_closed = True

    @property
    def call_timeout_ms(self) -> int:
        """How long a call may take with all its tries."""
        return self._timing.call_timeout_ms

    @property
    def request_timeout_ms(self) -> int:
        """How long one try waits for its answer."""
        return self._timing.request_timeout_ms

    async def call(
        self,
        name: str,
        request: Request,
        response_type: type[R],
        check: Callable[[R], None],
        *,
        min_version: int = 0,
        max_version: int | None = None,
        node_id: int | None = None,
        retry_refusals: bool = False,
        doubtful: Collection[ErrorCode] = (),
        tries: Tries | None = None,
        once: bool = False,
    ) -> R:
        """Send a request until it is answered, and check the answer.

        Args:
            name: Kafka's name of the call, for messages.
            request: its body, the same for every try.
            response_type: class of its response.
            check: raises RefusedError if the response has an error.
            min_version: lowest version that has all fields that the request sets.
            max_version: highest version to use; None: the newest.
            node_id: send it to this node and no other.
            retry_refusals: repeat on retriable errors, too.
            doubtful: errors by which a leader also answers a change that it began and may still complete.
            tries: takes the outcomes; an object of an earlier call is continued.
            once: do not repeat a request without an answer, for by now another node may be the right one.

        Raises:
            AuthenticationError: a login was refused.
            ClosedError: the client was closed.
            UnknownNodeError: the cluster has no node ``node_id``.
            RefusedError: raised by ``check``, unless another node or a later try may succeed.
            UnreachableError: no node answered within the call's timeout.
            UnsupportedVersionError: the node does not support the request.
        """
        tries = Tries() if tries is None else tries
        tries.last_failure = f"none of {', '.join(map(str, self._bootstrap))} has answered yet"
        backoff_ms = BACKOFF_MS
        address: Address | None = None
        watched = nullcontext() if self._watch is None else self._watch(f"the answer to {name}", tries)
        with watched, trio.move_on_after(self._timing.call_timeout_ms / 1000) as scope:
            async with open_nursery() as nursery:
                nursery.start_soon(self._survey_meanwhile, tries, nursery.cancel_scope)
                while True:
                    try:
                        address = await self._find(node_id, address)
                        if node_id is None:
                            tries.asked = address
                        response = await self._try(tries, address, request, (min_version, max_version), response_type)
                        check(response)
                        nursery.cancel_scope.cancel()
                        return response
                    except NoAnswer as failure:
                        tries.last_failure = str(failure)
                        if once:
                            self._target = None
                            raise tries.timed_out(name) from failure
                    except RefusedError as error:
                        tries.doubtful += error.error in {code.name for code in doubtful}
                        elsewhere = error.error in ELSEWHERE
                        if not elsewhere and not (retry_refusals and ErrorCode[error.error].retriable):
                            raise
                        tries.last_failure = f"{address} {DOES_NOT_LEAD}" if elsewhere else f"{address}: {error}"
                    self._target = None
                    await trio.sleep(backoff_ms / 1000)
                    backoff_ms = min(backoff_ms * 2, BACKOFF_MAX_MS)
        raise tries.timed_out(name) if scope.cancelled_caught else tries.given_up(name)

    async def _survey_meanwhile(self, tries: Tries, call: trio.CancelScope) -> None:
        """Look up who answers, for as long as a call lasts; cancels it if it does not wait for nodes that are away."""
        timeout_s = self._timing.call_timeout_ms / 1000
        begun = trio.current_time()
        await trio.sleep(min(SURVEY_AFTER_S, timeout_s / 4))
        while True:
            found = tries.survey = await self.survey(min(SURVEY_PATIENCE_S, timeout_s / 2))
            if tries.under_way is not None and found.leads_elsewhere(str(tries.asked)):
                tries.under_way.cancel()
            is_hopeless = found.is_hopeless
            if not is_hopeless and not self.through_controllers:  # what is passed on gets as long as a silent node
                await trio.sleep_until(begun + SURVEY_AFTER_S + SURVEY_PATIENCE_S)
                is_hopeless = tries.lost_answers > 0
            if is_hopeless and not self._timing.waits_for_nodes:
                call.cancel()
            await trio.sleep(SURVEY_PATIENCE_S)

    async def survey(self, patience_s: float = SURVEY_PATIENCE_S) -> Survey:
        """Ask all nodes side by side who answers; see ``Surveyor.survey``."""
        return await self._surveyor.survey(self._nodes, patience_s)

    def note_voters(self, voters: Iterable[int]) -> None:
        """Remember the ids of the voters, as a leader told them, for surveys."""
        self._surveyor.voters = frozenset(voters)

    async def _reply(self, address: Address) -> Reply:
        try:
            return Reply(await self.describe(address), "", is_alive=True)
        except NoAnswer as failure:
            return Reply(None, str(failure).removeprefix(f"{address}: "), is_alive=False)
        except KraftError as error:
            return Reply(None, str(error), is_alive=True)

    async def _try(
        self, tries: Tries, address: Address, request: Request, versions: tuple[int, int | None], response_type: type[R]
    ) -> R:
        silence = f"{address}: {REASONS[Failure.TIMED_OUT]}"
        tries.last_failure = silence
        with trio.CancelScope() as tries.under_way:
            version = await self._version_for(address, request, *versions)
            tries.lost_answers += 1
            try:
                response = await self._send(address, request, version, response_type)
            except NoAnswer as failure:
                tries.lost_answers -= not failure.was_sent
                raise
            tries.lost_answers -= 1
            return response
        raise NoAnswer(f"{silence}, and another node leads")

    async def _find(self, node_id: int | None, tried: Address | None) -> Address:
        """The address to ask; ``tried`` was asked before, without success."""
        if node_id is not None:
            if node_id not in self._nodes or tried is not None:  # the node may have another address by now
                description, answered = await self.refresh()
                active = self._nodes.get(-1 if description.controller_id is None else description.controller_id)
                if node_id not in self._nodes and active is not None and active != answered:
                    # Among kraftcore nodes only the leader knows the observers that have registered.
                    self._remember(await self.describe(active))
            address = self._nodes.get(node_id, tried)  # a node that has just started is not listed for a while
            if address is None:
                kind = "controllers" if self.through_controllers else "brokers"
                raise UnknownNodeError(f"node {node_id} is not among the {kind} {sorted(self._nodes)}")
            return address
        if self._target is None:
            description, answered = await self.refresh()
            if not self.through_controllers:
                self._target = answered
            elif description.controller_id is not None:
                self._target = self._nodes.get(description.controller_id)
        if self._target is None:  # one that does not answer would only cost time
            candidates = self._answered or self._bootstrap
            return candidates[next(self._turn) % len(candidates)]
        return self._target

    async def refresh(self) -> tuple[ClusterDescription, Address]:
        """Ask the known nodes, one shortly after the other, to describe the cluster; the first good answer is used.

        Returns:
            The answer, and the address of the node that gave it.

        Raises:
            NoAnswer: no node answered.
            KraftError: the error of the first node that answered, if there was no good answer; see ``AdminClient``.
        """
        known = list(dict.fromkeys((*self._bootstrap, *self._nodes.values())))
        answers: list[tuple[ClusterDescription, Address]] = []
        errors: list[NoAnswer | KraftError] = []

        async def ask(address: Address, delay_s: float, scope: trio.CancelScope) -> None:
            await trio.sleep(delay_s)
            try:
                found = await self.describe(address)
            except (NoAnswer, KraftError) as error:
                errors.append(error)
                return
            answers.append((found, address))
            if found.controller_id is not None:
                scope.cancel()
            else:
                scope.deadline = min(scope.deadline, trio.current_time() + len(known) * STAGGER_S + SETTLE_S)

        async with open_nursery() as nursery:
            for place, address in enumerate(known):
                nursery.start_soon(ask, address, place * STAGGER_S, nursery.cancel_scope)
        is_leader_told = any(found.controller_id is not None for found, _ in answers)  # then not all were asked
        self._answered = () if is_leader_told else tuple(address for _, address in answers)
        if answers:
            self._remember(answers[-1][0])
            return answers[-1]
        for error in errors:
            if not isinstance(error, NoAnswer):
                raise error
        raise NoAnswer("; ".join(str(error) for error in errors))

    def _remember(self, found: ClusterDescription) -> None:
        self._nodes = {node.id: Address(node.host, node.port) for node in found.nodes}

    async def describe(self, address: Address) -> ClusterDescription:
        """Ask one node to describe the cluster."""
        versions = await self._versions_of(address)
        # Kafka's clients begin with Metadata on this route, and name it in the error if the node is a controller.
        if not self.through_controllers and ApiKey.METADATA not in versions:
            raise UnsupportedVersionError("The node does not support METADATA")
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS if self.through_controllers else BROKERS)
        version = await self._version_for(address, request, 1 if self.through_controllers else 0)
        response = await self._send(address, request, version, DescribeClusterResponse)
        raise_refusal(response.error_code, response.error_message)
        return to_cluster(response)

    async def _version_for(
        self, address: Address, request: Request, min_version: int, max_version: int | None = None
    ) -> int:
        schema = type(request).schema
        key = schema.api_key
        if key is None or schema.versions is None:
            raise LocalError(f"{type(request).__name__} is no request of Kafka 4.3.1")
        name = ApiKey(key).name
        offered = (await self._versions_of(address)).get(key)
        if offered is None:
            raise UnsupportedVersionError(f"The node does not support {name}")
        low, high = max(schema.versions[0], min_version), schema.versions[1] if max_version is None else max_version
        version = min(high, offered[1])
        if version < max(low, offered[0]):
            raise UnsupportedVersionError(
                f"The node does not support {name} with version in range [{low},{high}]. The supported range is "
                f"[{offered[0]},{offered[1]}]."
            )
        return version

    async def _versions_of(self, address: Address) -> Mapping[int, tuple[int, int]]:
        found = self._versions.get(address)
        if found is None:
            response = await self._negotiate(address)
            found = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
            self._versions[address] = found
        return found

    async def _negotiate(self, address: Address) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="kraftcore", client_software_version=__version__)
        newest = 4
        response = await self._send(address, request, newest, ApiVersionsResponse)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:  # in version 0, with the supported versions (KIP-511)
            offered = next((entry for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS), None)
            version = 0 if offered is None else min(newest, offered.max_version)
            response = await self._send(address, request, version, ApiVersionsResponse)
        raise_refusal(response.error_code, None)
        return response

    async def _send(self, address: Address, request: Request, version: int, response_type: type[R]) -> R:
        if self._is_closed:
            raise ClosedError("the admin client is closed")
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        parts = encode_request_parts(request, version, correlation_id, self._client_id)
        done = trio.Event()
        received: list[bytes | Failure] = []

        def answer(what: bytes | Failure) -> None:
            received.append(what)
            done.set()

        self._transport.request(address, parts, self._timing.request_timeout_ms, answer)
        await done.wait()
        frame = received[0]
        if isinstance(frame, Failure):
            self._versions.pop(address, None)  # the node may come back as another release
            if frame is Failure.UNAUTHENTICATED:
                why: Callable[[Address], str | None] | None = getattr(self._transport, "login_error", None)
                text = None if why is None else why(address)
                raise AuthenticationError(text or f"{address}: {REASONS[frame]}")
            raise NoAnswer(f"{address}: {REASONS[frame]}", was_sent=frame in (Failure.RESET, Failure.TIMED_OUT))
        key = type(request).schema.api_key
        if key == ApiKey.API_VERSIONS and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0
        header, response = decode_response(frame, -1 if key is None else key, version)
        if header.correlation_id != correlation_id or not isinstance(response, response_type):
            raise WireError(f"{address} answered another request", message_name=response_type.__name__, version=version)
        return response


def to_cluster(response: DescribeClusterResponse) -> ClusterDescription:
    """Make a `ClusterDescription` from a DescribeCluster response."""
    nodes = (
        NodeAddress(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
        for each in sorted(response.brokers, key=lambda each: each.broker_id)
    )
    controller_id = response.controller_id if response.controller_id >= 0 else None
    return ClusterDescription(response.cluster_id, controller_id, tuple(nodes))
