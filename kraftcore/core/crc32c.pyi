from typing_extensions import Buffer

__all__ = ["crc32c"]

def crc32c(data: Buffer, value: int = 0) -> int: ...
