"""Topics that brokers keep for themselves, as Kafka's ``Topic.INTERNAL_TOPICS``."""

from __future__ import annotations

GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
