"""What Kafka's tools ask of a controller besides the consensus: who is there, which features, change a feature.

The texts of refusals are those of Kafka 4.3.1's controllers. A node knows one feature, kraft.version; the features of a
metadata controller are that plugin's to answer. The voter set says where voters listen. Kafka's controllers also
register with the leader (KIP-919), observers too; it remembers them while it leads and writes no record of it, for the
log is the application's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftcore.node.driver import Ticket
from kraftcore.node.inbox import Respond
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import KRAFT_VERSION
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftcore.protocol.schema import Request
from kraftcore.raft.events import Outcome, Upgrade
from kraftcore.raft.quorum import Endpoint

if TYPE_CHECKING:
    from kraftcore.node.node import Node

BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # upgrade types of UpdateFeatures
_PREFIX = "The update failed for all features since the following feature had an error: "


class Administration:
    """Answers for one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._registered: dict[int, tuple[Endpoint, ...]] = {}

    @property
    def handlers(self) -> dict[type[Request], Respond]:
        """What this answers."""
        return {
            ControllerRegistrationRequest: self.on_register,
            DescribeClusterRequest: self.on_describe_cluster,
            UpdateFeaturesRequest: self.on_update_features,
        }

    # --- who is there -------------------------------------------------------------------------------------------------

    def on_describe_cluster(self, request: DescribeClusterRequest, version: int, ticket: Ticket) -> None:
        """The voters, who registered here, and this node, as far as known for the listener asked. Any node answers."""
        response = DescribeClusterResponse(cluster_id=self._node.cluster_id)
        if version >= 1:
            response.endpoint_type = request.endpoint_type
        wanted = request.endpoint_type if version >= 1 else BROKERS
        if wanted == CONTROLLERS:
            self._list_controllers(response, ticket.listener)
        elif wanted == BROKERS:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            response.error_code = error
            response.error_message = (
                "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
            )
        else:
            response.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            response.error_message = f"Unsupported endpoint type {wanted}"
        ticket.answer(response)

    def _list_controllers(self, response: DescribeClusterResponse, listener: str) -> None:
        """Source: Kafka 4.3.1 ControllerRegistrationsPublisher: what is advertised for the asker's own listener."""
        state = self._node.replica.state
        leader_id = state.leader_id
        found = {node_id: list(endpoints) for node_id, endpoints in self._registered.items()}
        found.update((voter.key.id, list(voter.endpoints)) for voter in self._node.replica.voters)
        if leader_id is not None:  # newer, but perhaps not of all its listeners
            found[leader_id] = [*state.leader_endpoints, *found.get(leader_id, ())]
        found[self._node.key.id] = list(state.config.listeners)
        entry = DescribeClusterResponse.DescribeClusterBroker
        for node_id, endpoints in sorted(found.items()):
            for at in endpoints:
                if at.name == listener:
                    response.brokers.append(entry(broker_id=node_id, host=at.host, port=at.port))
                    break
        response.controller_id = -1 if leader_id is None else leader_id

    def on_register(self, request: ControllerRegistrationRequest, version: int, ticket: Ticket) -> None:
        """A Kafka controller tells where it listens; only the leader wants to know."""
        if not self._node.is_leader:
            error = ErrorCode.NOT_CONTROLLER
            ticket.answer(ControllerRegistrationResponse(error_code=error, error_message=error.message))
            return
        self.remember(request)
        ticket.answer(ControllerRegistrationResponse())

    def remember(self, request: ControllerRegistrationRequest) -> None:
        """List a controller for as long as this node leads."""
        endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners)
        self._registered[request.controller_id] = endpoints

    def forget_registered(self) -> None:
        """This node does not lead any more."""
        self._registered.clear()

    # --- features -----------------------------------------------------------------------------------------------------

    def describe_features(self, response: ApiVersionsResponse) -> None:
        """Fill in the feature fields."""
        name = KRAFT_VERSION.name
        level = self._node.replica.kraft_version
        supported = ApiVersionsResponse.SupportedFeatureKey(name=name, max_version=KRAFT_VERSION.max_level)
        response.supported_features = [supported]
        response.finalized_features_epoch = max(self._node.high_watermark - 1, 0)
        if level:
            finalized = ApiVersionsResponse.FinalizedFeatureKey
            response.finalized_features = [finalized(name=name, max_version_level=level, min_version_level=level)]

    def on_update_features(self, request: UpdateFeaturesRequest, version: int, ticket: Ticket) -> None:
        """Change kraft.version; only the leader can. All updates of a request are carried out, or none."""
        if not self._node.is_leader:
            error = ErrorCode.NOT_CONTROLLER
            ticket.answer(UpdateFeaturesResponse(error_code=error, error_message=error.message))
            return
        wanted = None
        for update in request.feature_updates:
            kind = update.upgrade_type if version >= 1 else SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
            reason = self._why_not(update.feature, update.max_version_level, kind)
            if reason:
                _refuse(ticket, update.feature, update.max_version_level, reason)
                return
            wanted = update.max_version_level
        if wanted is None:
            _accept(ticket, request, version)
            return
        level = wanted

        def done(outcome: Outcome) -> None:
            if outcome.error is ErrorCode.NONE:
                _accept(ticket, request, version)
            elif outcome.error is ErrorCode.INVALID_UPDATE_VERSION:
                _refuse(ticket, KRAFT_VERSION.name, level, outcome.message)
            else:
                error = ErrorCode.NOT_CONTROLLER
                ticket.answer(UpdateFeaturesResponse(error_code=error, error_message=error.message))

        self._node.feed(Upgrade(done, level, version >= 1 and request.validate_only))

    def _why_not(self, name: str, level: int, kind: int) -> str:
        present = self._node.replica.kraft_version
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        if name != KRAFT_VERSION.name:
            return f"Local controller {self._node.key.id} does not support this feature."
        if level > KRAFT_VERSION.max_level:
            return f"Local controller {self._node.key.id} only supports versions 0-{KRAFT_VERSION.max_level}"
        if level < present and kind == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level < present:
            return "Can't downgrade the version of this feature."
        if level > present and kind != UPGRADE:
            return "Can't downgrade to a newer version."
        return ""


def _accept(ticket: Ticket, request: UpdateFeaturesRequest, version: int) -> None:
    response = UpdateFeaturesResponse()
    if version <= 1:
        result = UpdateFeaturesResponse.UpdatableFeatureResult
        response.results = [result(feature=update.feature) for update in request.feature_updates]
    ticket.answer(response)


def _refuse(ticket: Ticket, name: str, level: int, reason: str) -> None:
    text = f"{_PREFIX}Invalid update version {level} for feature {name}. {reason}"
    ticket.answer(UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=text))
