"""DescribeConfigs and DescribeAcls, which a broker answers as a controller does.

The code of ``plugins.controller`` makes the answers, from the metadata image and the properties of this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from kraftcore.metadata import Image
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.work.turns import InTurns, Turn, chunks, in_turns
from kraftcore.plugins.controller.caller import caller_of
from kraftcore.plugins.controller.decision import Api, Context, ControllerSettings, Refusal
from kraftcore.plugins.controller.describe_configs import Descriptions
from kraftcore.plugins.controller.soft_state import SoftState
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.schema import Request, Response

QUESTIONS: Final[tuple[type[Request], ...]] = (DescribeAclsRequest, DescribeConfigsRequest)
"""The requests that `ImageQuestions` answers."""


class ImageQuestions:
    """Answers DescribeConfigs and DescribeAcls from the metadata image.

    Args:
        image: gives the committed metadata image.
        settings: the settings that DescribeConfigs tells, this broker's properties among them.
        permits: knows what the asker may describe.
        now_ms: the time, milliseconds since 1970.
    """

    def __init__(
        self, image: Callable[[], Image], settings: ControllerSettings, permits: Permits, now_ms: Callable[[], int]
    ) -> None:
        self._image = image
        self._settings = settings
        self._permits = permits
        self._now_ms = now_ms

    @in_turns
    def respond(self, request: Any, context: RequestContext) -> InTurns[Response | None]:
        """The answer, from the image as it is at each turn."""
        if not isinstance(request, DescribeConfigsRequest):
            return self._decide(request, context)
        descriptions = Descriptions(self._asked(request, context), request)
        turn = Turn()
        for some in chunks(request.resources):
            try:
                descriptions.add(some)
            except Refusal as refused:
                return self.refuse(request, context.version, refused.code, refused.text)
            if turn.is_over(len(some)):
                yield
        return descriptions.response()

    def _decide(self, request: Any, context: RequestContext) -> Response | None:
        api = _api(request)
        try:
            return api.decide(self._asked(request, context), request, context.version).answer
        except Refusal as refused:
            return api.refuse(request, context.version, refused.code, refused.text)

    def _asked(self, request: Any, context: RequestContext) -> Context:
        now_ms = self._now_ms()
        return Context(
            self._image(),
            SoftState(),
            now_ms,
            next_offset=0,
            settings=self._settings,
            random=Random(0),  # these answers draw no random numbers
            is_allowed=self._permits.asker(request, context),
            caller=caller_of(context.asker),
            wall_ms=now_ms,
        )

    def refuse(self, request: Any, version: int, error: ErrorCode, text: str | None) -> Response:
        """The answer to a request that is refused as a whole."""
        return _api(request).refuse(request, version, error, text)


def _api(request: Request) -> Api:
    from kraftcore.plugins.controller.registry import APIS  # late: it imports all of the controller

    return APIS[type(request)]


def settings_of(cluster_id: str, node_id: int, static_configs: Mapping[str, str]) -> ControllerSettings:
    """The settings for `ImageQuestions`, of this broker's properties."""
    return ControllerSettings(cluster_id, node_id, static_configs=static_configs)
