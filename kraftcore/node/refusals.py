"""Answers to requests that their sender is not allowed to send. Source: getErrorResponse of Kafka 4.3.1."""

from __future__ import annotations

import logging
from typing import Any, Final

from kraftcore.node.registry import RequestHandler
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.protocol.messages.produce import ProduceRequest, ProduceResponse
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
    if isinstance(request, ProduceRequest):
        return _refuse_produce(request, error)
    if isinstance(request, ListOffsetsRequest):
        return _refuse_list_offsets(request, error)
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


def _refuse_produce(request: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    of_topic = ProduceResponse.TopicProduceResponse
    return ProduceResponse(
        responses=[
            of_topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    of_topic.PartitionProduceResponse(index=each.index, error_code=error, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _refuse_list_offsets(request: ListOffsetsRequest, error: ErrorCode) -> ListOffsetsResponse:
    of_topic = ListOffsetsResponse.ListOffsetsTopicResponse
    return ListOffsetsResponse(
        topics=[
            of_topic(
                name=topic.name,
                partitions=[
                    of_topic.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
