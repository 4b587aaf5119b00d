"""Answers to requests that their sender is not allowed to send. Source: getErrorResponse of Kafka 4.3.1."""

from __future__ import annotations

import logging
from typing import Any, Final

from kraftcore.node.registry import RequestHandler
from kraftcore.protocol.error_answers import error_response
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.registry import api_of, response_class
from kraftcore.protocol.schema import Request, Response

_logger = logging.getLogger("kraftcore.node")

_BY_ID_FROM: Final = 13
"""Below this version of Fetch the answer has the error in each partition, too."""


def refusal_of(
    handler: RequestHandler, request: Request, version: int, error: ErrorCode, text: str | None = None
) -> Response | None:
    """The answer that carries an error for a whole request, as its handler makes it; None: the connection is broken.

    Args:
        handler: whose request it is.
        request: its body.
        version: of it.
        error: why.
        text: in words; None: those of the error.
    """
    try:
        if handler.refuse is not None:
            return handler.refuse(request, version, error, error.message if text is None else text)
        return refuse(request, version, error)
    except Exception:
        _logger.exception("%s cannot refuse a %s", handler.owner, handler.kind.__name__)
        return None


def refuse(request: Request, version: int, error: ErrorCode) -> Response:
    """The answer that carries an error for a whole request of the consensus, or of forwarding.

    Args:
        request: its body.
        version: of it.
        error: why.
    """
    if isinstance(request, ProduceRequest | ListOffsetsRequest):  # their responses have no place for the whole
        return error_response(request, version, error)
    fields: dict[str, Any] = {"error_code": error}
    kind = response_class(api_of(type(request)).key)
    if "error_message" in {field.name for field in kind.__layout__.fields}:
        fields["error_message"] = error.message
    response = kind(**fields)
    if isinstance(request, FetchRequest) and isinstance(response, FetchResponse) and version < _BY_ID_FROM:
        of_topic = FetchResponse.FetchableTopicResponse
        response.responses = [
            of_topic(
                topic=topic.topic,
                partitions=[
                    of_topic.PartitionData(partition_index=each.partition, error_code=error, high_watermark=-1)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response
