"""Whole requests and responses: header and body, without or with the four size bytes that TCP carries in front.

The functions are methods of one compiled ``FrameCodec``; ``help(kraftcore.core.wire.FrameCodec)`` documents them.
"""

from __future__ import annotations

from kraftcore.core.wire import FrameCodec
from kraftcore.errors import UnsupportedVersionError
from kraftcore.namespace import listing
from kraftcore.protocol.data.headers import RequestHeader, ResponseHeader
from kraftcore.protocol.registry import request_class, response_class
from kraftcore.protocol.schema import Request, Response

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_request_parts",
    "encode_response",
    "encode_response_parts",
]
__dir__ = listing(__all__)


def _find(api_key: int, is_response: bool) -> type[Request] | type[Response] | None:
    try:
        return response_class(api_key) if is_response else request_class(api_key)
    except UnsupportedVersionError:
        return None


_codec: FrameCodec[RequestHeader, ResponseHeader, Request, Response] = FrameCodec(RequestHeader, ResponseHeader, _find)

decode_request = _codec.decode_request
decode_request_header = _codec.decode_request_header
decode_response = _codec.decode_response
encode_request = _codec.encode_request
encode_request_parts = _codec.encode_request_parts
encode_response = _codec.encode_response
encode_response_parts = _codec.encode_response_parts
