"""Controllers and brokers that answer by script, and a transport that leads to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import trio

from kraftcore.ports.transport import Address, Answer, Parts
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_request, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.registry import ApiKey, apis_on, request_class
from kraftcore.protocol.schema import Request, Response

Script = Callable[[Any], Response | Failure]
Silence = Failure.TIMED_OUT


class ScriptedNode:
    """One node; by default it is up and knows how to negotiate versions and describe the cluster.

    Attributes:
        asked: the requests it got, versions negotiated not counted.
        scripts: what it answers, by request class; a Failure stands for what the transport reports.
        is_up: False: nobody listens.
        versions: version range by api.
    """

    def __init__(self, node_id: int, *, is_broker: bool = False) -> None:
        self.id = node_id
        self.address = Address("broker" if is_broker else "controller", 9000 + node_id)
        self.asked: list[Request] = []
        self.is_up = True
        self.versions = {
            key: request_class(key).schema.versions for key in apis_on("broker" if is_broker else "controller")
        }
        self.scripts: dict[type[Request], Script] = {ApiVersionsRequest: self._negotiate}

    def _negotiate(self, _: ApiVersionsRequest) -> ApiVersionsResponse:
        entry = ApiVersionsResponse.ApiVersion
        keys = [
            entry(api_key=key, min_version=span[0], max_version=span[1])
            for key, span in self.versions.items()
            if span is not None
        ]
        return ApiVersionsResponse(api_keys=keys)

    def handle(self, frame: bytes) -> bytes | Failure:
        header, request = decode_request(frame)
        version = header.request_api_version
        if request is None or (
            version > self.versions[ApiKey.API_VERSIONS][1] and isinstance(request, ApiVersionsRequest)
        ):
            assert header.request_api_key == ApiKey.API_VERSIONS
            answer = self._negotiate(ApiVersionsRequest())
            answer.error_code = 35
            return encode_response(answer, 0, header.correlation_id)
        if not isinstance(request, ApiVersionsRequest):
            self.asked.append(request)
        response = self.scripts[type(request)](request)
        return response if isinstance(response, Failure) else encode_response(response, version, header.correlation_id)


class ScriptedTransport:
    """Leads to the nodes; answers come later, as over any transport."""

    def __init__(self, nodes: Iterable[ScriptedNode]) -> None:
        self.nodes = {node.address: node for node in nodes}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def aclose(self) -> None:
        """Nothing is open."""

    async def listen(self, *_: object) -> Address:
        raise NotImplementedError("the admin client only connects")

    def request(self, address: Address, parts: Parts, timeout_ms: int, answer: Answer) -> None:
        node = self.nodes.get(address._replace(lane=0))
        frame = b"".join(parts)
        found = node.handle(frame) if node is not None and node.is_up else Failure.REFUSED
        if found is Silence:
            trio.lowlevel.spawn_system_task(self._later, timeout_ms, answer)
        else:
            trio.lowlevel.current_trio_token().run_sync_soon(answer, found)

    async def _later(self, timeout_ms: int, answer: Answer) -> None:
        await trio.sleep(timeout_ms / 1000)
        answer(Failure.TIMED_OUT)


def make_cluster(nodes: Iterable[ScriptedNode], *, controller_id: int, endpoint_type: int = 2) -> None:
    """Let every node describe the cluster that they are, with ``controller_id`` in charge (-1: nobody)."""
    nodes = list(nodes)
    entry = DescribeClusterResponse.DescribeClusterBroker

    def describe(request: DescribeClusterRequest) -> DescribeClusterResponse:
        assert request.endpoint_type == endpoint_type
        return DescribeClusterResponse(
            endpoint_type=endpoint_type,
            cluster_id="scripted",
            controller_id=controller_id,
            brokers=[entry(broker_id=node.id, host=node.address.host, port=node.address.port) for node in nodes],
        )

    for node in nodes:
        node.scripts[DescribeClusterRequest] = describe
