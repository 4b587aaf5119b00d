"""DescribeCluster, api key 60."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Request, api_key=60, versions=(0, 2), flexible_from=0, listeners=("broker", "controller")):
    """Describe the brokers, or since v1 the controllers, of a cluster (KIP-700, KIP-919)."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterResponse(Response, api_key=60, versions=(0, 2), flexible_from=0):
    """Answer to DescribeClusterRequest."""

    class DescribeClusterBroker(Struct):
        """An element of ``brokers``."""

        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
        is_fenced: bool = boolean("2+")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
