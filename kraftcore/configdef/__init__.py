"""Kafka's configuration definitions as data: which keys there are, and which values they take.

============  ========================================================================================================
``types``     how text becomes a value of each type, and back
``checks``    the validators: ranges, lists of words, and the few that are rules of their own
``keys``      the tables: topic, broker, group, client metrics, and quota keys, read from ``keys.tsv``
``topics``    the rules for a topic's configuration as a whole, and what is in force for a topic
``groups``    the same for groups
``metrics``   the same for client metrics subscriptions
============  ========================================================================================================

``keys.tsv`` is what Kafka 4.3.1's own classes print (a test compares them), one key a line; ``texts.tsv`` has a
sentence about each key in our own words, for those who ask for documentation. Refusals are in Kafka's words, because
users and tools read them.

This is a room of its own, beside ``kraftcore.config``: that one reads the settings of a kraftcore node, this one knows
the keys that a cluster keeps in its metadata. Controllers decide by it, brokers and tools need it as well.
"""

from kraftcore.configdef.types import ConfigType, ConfigValueError

__all__ = ["ConfigType", "ConfigValueError"]
