from collections.abc import Callable
from typing import Generic, TypeVar, final

from typing_extensions import Buffer

from kraftcore.core.wire.struct import Struct

_M = TypeVar("_M", bound=Struct)
_RequestHeaderT = TypeVar("_RequestHeaderT", bound=Struct)
_ResponseHeaderT = TypeVar("_ResponseHeaderT", bound=Struct)
_RequestT = TypeVar("_RequestT", bound=Struct)
_ResponseT = TypeVar("_ResponseT", bound=Struct)

def encode(message: Struct, version: int) -> bytes: ...
def decode(cls: type[_M], data: Buffer, version: int) -> _M: ...
def decode_prefix(cls: type[_M], data: Buffer, version: int, position: int = 0) -> tuple[_M, int]: ...

@final
class FrameCodec(Generic[_RequestHeaderT, _ResponseHeaderT, _RequestT, _ResponseT]):
    def __init__(
        self,
        request_header: type[_RequestHeaderT],
        response_header: type[_ResponseHeaderT],
        find: Callable[[int, bool], type[_RequestT] | type[_ResponseT] | None],
    ) -> None: ...
    def decode_request_header(self, frame: Buffer) -> tuple[_RequestHeaderT, int]: ...
    def decode_request(self, frame: Buffer) -> tuple[_RequestHeaderT, _RequestT | None]: ...
    def decode_response(self, frame: Buffer, api_key: int, version: int) -> tuple[_ResponseHeaderT, _ResponseT]: ...
    def encode_request(
        self,
        message: _RequestT,
        version: int,
        correlation_id: int,
        client_id: str | None = None,
        *,
        size_prefix: bool = False,
    ) -> bytes: ...
    def encode_request_parts(
        self,
        message: _RequestT,
        version: int,
        correlation_id: int,
        client_id: str | None = None,
        *,
        size_prefix: bool = False,
    ) -> list[bytes | memoryview]: ...
    def encode_response(
        self, message: _ResponseT, version: int, correlation_id: int, *, size_prefix: bool = False
    ) -> bytes: ...
    def encode_response_parts(
        self, message: _ResponseT, version: int, correlation_id: int, *, size_prefix: bool = False
    ) -> list[bytes | memoryview]: ...

@final
class RecordCodec(Generic[_M]):
    def __init__(self, find: Callable[[int], type[_M]]) -> None: ...
    def decode(self, value: Buffer) -> tuple[_M, int]: ...
    def encode(self, record: _M, version: int) -> bytes: ...
