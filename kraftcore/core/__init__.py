"""The compiled core: bytes in, bytes out. No sockets, no tasks, no clocks.

A room for each topic: ``batch``, ``wire``, ``columns``, ``log``, ``disk``; beside them what all use (``uuid``,
``crc32c``, ``bytes``) and ``dump``, which prints batches as Kafka's tool does.
"""
