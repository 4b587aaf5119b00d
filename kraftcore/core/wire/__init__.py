"""Kafka's binary protocol: one codec for every message, all versions, driven by the classes in ``kraftcore.protocol``.

`struct` has the message objects, `plan` the layout of a version, `decode` and `encode` convert, `codec` has the
functions for Python, `text` the form in which Kafka's dump tool prints messages.
"""

from kraftcore.core.wire.codec import FrameCodec, RecordCodec, decode, decode_prefix, encode

__all__ = ["FrameCodec", "RecordCodec", "decode", "decode_prefix", "encode"]
