"""The nodes of a cluster. Source: KIP-700, 919, 1073; Kafka 4.3.1's client."""

from __future__ import annotations

from kraftcore.admin.calls import Calls
from kraftcore.admin.results import ClusterDescription, NodeAddress
from kraftcore.admin.router import BROKERS, CONTROLLERS, NoAnswer, raise_refusal, to_cluster
from kraftcore.admin.survey import Survey
from kraftcore.config.addresses import parse_address
from kraftcore.errors import LocalError, UnreachableError
from kraftcore.ports.transport import Address
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class ClusterCalls(Calls):
    """Calls about the cluster's nodes; see ``AdminClient`` for the errors that all of them raise."""

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Ask for the cluster's id, its active controller, and its nodes.

        Args:
            include_fenced: fenced brokers as well (KIP-1073); only through brokers.

        Raises:
            LocalError: ``include_fenced`` through controllers.
        """
        through_controllers = self._router.through_controllers
        if include_fenced and through_controllers:
            raise LocalError("Cannot request fenced brokers from controller endpoint")
        request = DescribeClusterRequest(
            endpoint_type=CONTROLLERS if through_controllers else BROKERS, include_fenced_brokers=include_fenced
        )
        response = await self._router.call(
            "listNodes",
            request,
            DescribeClusterResponse,
            lambda response: raise_refusal(response.error_code, response.error_message),
            min_version=2 if include_fenced else 1 if through_controllers else 0,
        )
        return to_cluster(response)

    async def describe_cluster_from(self, address: Address | str) -> ClusterDescription:
        """Ask one node, leader or not, to describe its cluster; a kraftcore observer is listed by itself only.

        Args:
            address: ``host:port`` of a node, known or not, of the kind this client is connected to.
        """
        where = parse_address(address)
        try:
            return await self._router.describe(where)
        except NoAnswer as failure:
            raise UnreachableError(
                f"{where} does not answer", last_failure=str(failure), outcome_unknown=False
            ) from None

    async def survey(self) -> Survey:
        """Ask the nodes that the client was given, and all that these name, side by side who answers; two seconds at
        most. What does not answer is in the result, and no error.
        """
        return await self._router.survey()

    async def list_endpoints(self, *, include_fenced: bool = False) -> tuple[NodeAddress, ...]:
        """Where the cluster's nodes listen: controllers when connected to controllers, else brokers; see
        ``describe_cluster``.
        """
        return (await self.describe_cluster(include_fenced=include_fenced)).nodes

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that will not come back (KIP-631).

        Args:
            broker_id: its id; a broker that still runs registers again.

        Raises:
            RefusedError: BROKER_ID_NOT_REGISTERED, CLUSTER_AUTHORIZATION_FAILED.
        """
        await self._router.call(
            "unregisterBroker",
            UnregisterBrokerRequest(broker_id=broker_id),
            UnregisterBrokerResponse,
            lambda response: raise_refusal(response.error_code, response.error_message),
        )
