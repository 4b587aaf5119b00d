"""AlterConfigs and IncrementalAlterConfigs: the broker refuses some changes, and passes the rest to the controller.

Source: Kafka 4.3.1, ConfigAdminManager.preprocess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kraftcore.configdef.brokers import applied, validate_broker
from kraftcore.configdef.keys import definitions
from kraftcore.configdef.types import ConfigValueError, read_integer
from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.forwarding import Forwarding
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftcore.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CHANGES: dict[Any, Any] = {
    AlterConfigsRequest: AlterConfigsResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
}
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OF_LISTS = {_APPEND: "append", _SUBTRACT: "subtract"}
_CORDONED = "cordoned.log.dirs"


class ConfigChanges:
    """Answers AlterConfigs and IncrementalAlterConfigs requests.

    Args:
        forwarding: passes requests on to the controller.
        background: runs the tasks that wait for the controller.
        image: gives the committed metadata image.
        broker_id: the id of this broker, which refuses changes for other brokers.
    """

    def __init__(
        self, forwarding: Forwarding, background: Background, image: Callable[[], Image], broker_id: int
    ) -> None:
        self._broker_id = broker_id
        self._forwarding = forwarding
        self._background = background
        self._image = image

    def respond(self, request: Any, context: RequestContext) -> None:
        """Refuse resources named twice, keys named twice or set to null, and values that no broker may have."""
        named = Counter((each.resource_type, each.resource_name) for each in request.resources)
        refused: list[Any] = []
        passed: list[Any] = []
        for each in request.resources:
            text = _refusal(each, named[each.resource_type, each.resource_name])
            error, text = (ErrorCode.INVALID_REQUEST, text) if text else self._bad_value(each)
            if error is not ErrorCode.NONE:
                answer = CHANGES[type(request)].AlterConfigsResourceResponse(
                    error_code=error,
                    error_message=text,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                refused.append(answer)
            else:
                passed.append(each)
        if not refused:
            self._forwarding.respond(request, context)
        elif not passed:
            context.answer(CHANGES[type(request)](responses=refused))
        else:
            rest = type(request)(resources=passed, validate_only=request.validate_only)
            self._background.answer(context, lambda: self._ask(rest, refused, context))

    def _bad_value(self, resource: Any) -> tuple[ErrorCode, str]:
        """The error and its text for the values that a broker, or all brokers, would get; NONE if they are valid."""
        if resource.resource_type != BROKER:
            return ErrorCode.NONE, ""
        if resource.resource_name and read_integer(resource.resource_name) != self._broker_id:
            return ErrorCode.INVALID_REQUEST, self._misnamed(resource.resource_name)
        for each in resource.configs:
            what = _OF_LISTS.get(getattr(each, "config_operation", _SET))
            if what is None or definitions("broker").is_list(each.name):
                continue
            if each.name not in definitions("broker"):
                return ErrorCode.INVALID_CONFIG, f"Unknown config name: {each.name}"
            return ErrorCode.INVALID_CONFIG, f"Config value {what} is not allowed for config key: {each.name}"
        of_one = bool(resource.resource_name)
        changed = self._changed(resource, of_one=of_one)
        if of_one and changed.get(_CORDONED):
            text = f"{_CORDONED} cannot be set: this broker keeps no new partitions away from a log directory"
            return ErrorCode.INVALID_REQUEST, text
        try:
            validate_broker(changed, of_one=of_one)
        except ConfigValueError as error:
            return ErrorCode.INVALID_REQUEST, str(error)
        return ErrorCode.NONE, ""

    def _misnamed(self, name: str) -> str:
        if read_integer(name) is None:
            return f"Node id must be an integer, but it is: {name}"
        return f"Unexpected broker id, expected {self._broker_id}, but received {name}"

    def _changed(self, resource: Any, *, of_one: bool) -> dict[str, str]:
        """The values to be checked. Of a list only the added elements are: removing one spoils no value."""
        if not isinstance(resource, IncrementalAlterConfigsRequest.AlterConfigsResource):
            return {each.name: each.value for each in resource.configs}
        found = applied(self._image().configs.of(BROKER, resource.resource_name), of_one=of_one)
        for each in resource.configs:
            if each.config_operation == _DELETE:
                found.pop(each.name, None)
            elif each.config_operation == _SET or each.config_operation == _APPEND:
                found[each.name] = each.value or ""
        return found

    async def _ask(self, rest: Any, refused: list[Any], context: RequestContext) -> Any:
        response: Any = await self._forwarding.ask(rest, context, context.version)
        if response is not None:
            response.responses = [*refused, *response.responses]
        return response


def _refusal(resource: Any, count: int) -> str:
    if count > 1:
        return "Each resource must appear at most once."
    names = [each.name for each in resource.configs]
    if len(set(names)) < len(names):
        return "Error due to duplicate config keys"
    null = [each.name for each in resource.configs if each.value is None and not _deletes(each)]
    return f"Null value not supported for : {', '.join(null)}" if null else ""


def _deletes(change: Any) -> bool:
    """Whether a change deletes its key; AlterConfigs, which replaces all settings, has no operations."""
    return getattr(change, "config_operation", None) == _DELETE
