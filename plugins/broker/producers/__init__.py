"""What a partition knows of the producers that number their batches: idempotent and transactional ones (KIP-98).

``state`` is one producer, with its rules; ``snapshot`` Kafka's file of all of them; ``states`` keeps them beside a log.
"""

from kraftcore.plugins.broker.producers.state import ProducerState, StoredBatch
from kraftcore.plugins.broker.producers.states import ProducerStates

__all__ = ["ProducerState", "ProducerStates", "StoredBatch"]
