"""The compiled core: bytes in, bytes out. No sockets, no tasks, no clocks.

A folder for each topic: ``batch``, ``wire``, ``columns``, ``log``, ``disk``; beside them modules that all folders use
(``uuid``, ``crc32c``, ``bytes``) and ``dump``, which prints batches as Kafka's tool does.
"""
