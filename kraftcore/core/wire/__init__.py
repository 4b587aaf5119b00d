"""Kafka's binary protocol: one codec for every message, all versions, driven by the classes in ``kraftcore.protocol``.

`struct` holds what messages are made of, `plan` how a version is laid out, `decode` and `encode` do it, `codec` is
what Python calls, `text` the form in which Kafka's dump tool prints messages.
"""

from kraftcore.core.wire.codec import FrameCodec, RecordCodec, decode, decode_prefix, encode

__all__ = ["FrameCodec", "RecordCodec", "decode", "decode_prefix", "encode"]
