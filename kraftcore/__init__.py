"""KRaft you can embed: a durable, replicated, ordered log in a Python process, byte-compatible with Apache Kafka."""

__version__ = "0.1.0"
