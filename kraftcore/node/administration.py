"""Answers Kafka's tools: which controllers there are, which features they support, and changes of a feature level.

The texts of refusals are those of Kafka 4.3.1's controllers. A node knows one feature, kraft.version; the features of a
metadata controller are answered by its plugin. The voter set says where voters listen. Kafka's controllers, observers
included, also register with the leader (KIP-919); the leader keeps registrations in memory while it leads, and writes
no records of them, for the log is the application's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from kraftcore.node.registry import ALTER_CLUSTER, CLUSTER_ACTION, Priority, RequestContext, RequestHandler
from kraftcore.node.status import Status
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import KRAFT_VERSION
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftcore.raft.events import Event, Outcome, Upgrade
from kraftcore.raft.quorum import Endpoint

BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # upgrade types of UpdateFeatures
_NO_LEVELS = (0, 0)  # the levels of a feature that a registration does not name

Supported: TypeAlias = Mapping[str, tuple[int, int]]
"""Least and highest level of each feature that a registered node claims."""

_PREFIX = "The update failed for all features since the following feature had an error: "


class Leading(Protocol):
    """Tells whether this node leads."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        ...


class Administration:
    """Answers Kafka's tools for one node.

    Args:
        node_id: the node's id.
        status: returns the node's status.
        executor: tells whether the node leads.
        feed: hands events to the consensus.

    Attributes:
        features_in_log: fills in the feature fields of ApiVersions answers in place of ``describe_features``; set by a
            plugin that keeps feature levels in the log.
    """

    def __init__(
        self, node_id: int, status: Callable[[], Status], executor: Leading, feed: Callable[[Event], None]
    ) -> None:
        self._node_id = node_id
        self._status = status
        self._executor = executor
        self._feed = feed
        self._registered: dict[int, tuple[Endpoint, ...]] = {}
        self._supported: dict[str, Supported] = {}
        self.features_in_log: Callable[[ApiVersionsResponse], None] | None = None

    @property
    def handlers(self) -> tuple[RequestHandler, ...]:
        """The handlers of these requests."""
        return (
            RequestHandler(ControllerRegistrationRequest, self.on_register, CLUSTER_ACTION, Priority.CONTROL),
            RequestHandler(DescribeClusterRequest, self.on_describe_cluster, ALTER_CLUSTER, Priority.CONTROL),
            RequestHandler(UpdateFeaturesRequest, self.on_update_features, ALTER_CLUSTER, Priority.CONTROL),
        )

    # --- who is there -------------------------------------------------------------------------------------------------

    def on_describe_cluster(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        """List voters, registered controllers and this node, where their address for the asker's listener is known."""
        status = self._status()
        version = context.version
        response = DescribeClusterResponse(cluster_id=status.cluster_id)
        if version >= 1:
            response.endpoint_type = request.endpoint_type
        wanted = request.endpoint_type if version >= 1 else BROKERS
        if wanted == CONTROLLERS:
            self._list_controllers(response, status, context.asker.listener)
        elif wanted == BROKERS:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            response.error_code = error
            response.error_message = (
                "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
            )
        else:
            response.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            response.error_message = f"Unsupported endpoint type {wanted}"
        return response

    def _list_controllers(self, response: DescribeClusterResponse, status: Status, listener: str) -> None:
        """Source: Kafka 4.3.1 ControllerRegistrationsPublisher: the endpoints advertised for the asker's listener."""
        leader_id = status.leader_id
        found = {node_id: list(endpoints) for node_id, endpoints in self._registered.items()}
        found.update((voter.key.id, list(voter.endpoints)) for voter in status.voters)
        if leader_id is not None:  # newer than the voter set, but perhaps without some of the leader's listeners
            found[leader_id] = [*status.leader_endpoints, *found.get(leader_id, ())]
        found[self._node_id] = list(status.listeners)
        entry = DescribeClusterResponse.DescribeClusterBroker
        for node_id, endpoints in sorted(found.items()):
            for at in endpoints:
                if at.name == listener:
                    response.brokers.append(entry(broker_id=node_id, host=at.host, port=at.port))
                    break
        response.controller_id = -1 if leader_id is None else leader_id

    def on_register(
        self, request: ControllerRegistrationRequest, context: RequestContext
    ) -> ControllerRegistrationResponse:
        """Register a Kafka controller's endpoints and features; only the leader does."""
        if not self._executor.is_leader:
            error = ErrorCode.NOT_CONTROLLER
            return ControllerRegistrationResponse(error_code=error, error_message=error.message)
        self.remember(request)
        return ControllerRegistrationResponse()

    def remember(self, request: ControllerRegistrationRequest) -> None:
        """Keep a controller's registration, its endpoints and supported levels, while this node leads."""
        self._registered[request.controller_id] = endpoints_of(request)
        self._supported[f"Controller {request.controller_id}"] = {
            each.name: (each.min_supported_version, each.max_supported_version) for each in request.features
        }

    def forget_registered(self) -> None:
        """Drop all registrations, for this node does not lead any more."""
        self._registered.clear()
        self._supported.clear()

    # --- features -----------------------------------------------------------------------------------------------------

    def describe_features(self, response: ApiVersionsResponse) -> None:
        """Fill in the feature fields of an ApiVersions answer."""
        if self.features_in_log is not None:
            self.features_in_log(response)
            return
        name = KRAFT_VERSION.name
        status = self._status()
        level = status.kraft_version
        supported = ApiVersionsResponse.SupportedFeatureKey(name=name, max_version=KRAFT_VERSION.max_level)
        response.supported_features = [supported]
        response.finalized_features_epoch = max((status.high_watermark or 0) - 1, 0)
        if level:
            finalized = ApiVersionsResponse.FinalizedFeatureKey
            response.finalized_features = [finalized(name=name, max_version_level=level, min_version_level=level)]

    def on_update_features(
        self, request: UpdateFeaturesRequest, context: RequestContext
    ) -> UpdateFeaturesResponse | None:
        """Change kraft.version; only the leader can. All updates of a request are carried out, or none."""
        if not self._executor.is_leader:
            error = ErrorCode.NOT_CONTROLLER
            return UpdateFeaturesResponse(error_code=error, error_message=error.message)
        version = context.version
        wanted = None
        for update in request.feature_updates:
            kind = update.upgrade_type if version >= 1 else SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
            reason = self._why_not(update.feature, update.max_version_level, kind)
            if reason:
                return _refused(update.feature, update.max_version_level, reason)
            wanted = update.max_version_level
        if wanted is None:
            return _accepted(request, version)
        level = wanted

        def done(outcome: Outcome) -> None:
            if outcome.error is ErrorCode.NONE:
                context.answer(_accepted(request, version))
            elif outcome.error is ErrorCode.INVALID_UPDATE_VERSION:
                context.answer(_refused(KRAFT_VERSION.name, level, outcome.message))
            else:
                error = ErrorCode.NOT_CONTROLLER
                context.answer(UpdateFeaturesResponse(error_code=error, error_message=error.message))

        self._feed(Upgrade(done, level, version >= 1 and request.validate_only))
        return None

    def _why_not(self, name: str, level: int, kind: int) -> str:
        present = self._status().kraft_version
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        if name != KRAFT_VERSION.name:
            return f"Local controller {self._node_id} does not support this feature."
        if level > KRAFT_VERSION.max_level:
            return f"Local controller {self._node_id} only supports versions 0-{KRAFT_VERSION.max_level}"
        if level < present and kind == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level < present:
            return "Can't downgrade the version of this feature."
        if level > present and kind != UPGRADE:
            return "Can't downgrade to a newer version."
        return self._who_cannot(name, level) if level > present else ""

    def _who_cannot(self, name: str, level: int) -> str:
        """Name an observer that does not support a level, or return ""; the consensus asks the voters (KIP-853).

        Source: Kafka 4.3.1, QuorumFeatures.reasonNotSupported.
        """
        for who, supported in sorted(self._supported.items()):
            low, high = supported.get(name, _NO_LEVELS)
            if low <= level <= high or who == f"Controller {self._node_id}":
                continue
            if high == 0:
                return f"{who} does not support this feature."
            return f"{who} only supports versions {low}" + (f"-{high}" if high > low else "")
        return ""


def endpoints_of(request: ControllerRegistrationRequest) -> tuple[Endpoint, ...]:
    """The endpoints in a controller's registration."""
    return tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners)


def _accepted(request: UpdateFeaturesRequest, version: int) -> UpdateFeaturesResponse:
    response = UpdateFeaturesResponse()
    if version <= 1:
        result = UpdateFeaturesResponse.UpdatableFeatureResult
        response.results = [result(feature=update.feature) for update in request.feature_updates]
    return response


def _refused(name: str, level: int, reason: str) -> UpdateFeaturesResponse:
    text = f"{_PREFIX}Invalid update version {level} for feature {name}. {reason}"
    return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=text)
