"""What a partition knows of the producers that number their batches: idempotent and transactional ones (KIP-98).

``state`` is one producer, with its rules; ``snapshot`` Kafka's file of all of them; ``marker`` what ends a transaction;
``aborted`` the transactions that were aborted, and their files; ``states`` keeps all of that beside a log.
"""

from kraftcore.plugins.broker.producers.aborted import AbortedTransaction
from kraftcore.plugins.broker.producers.marker import Marker
from kraftcore.plugins.broker.producers.state import ProducerState, StoredBatch
from kraftcore.plugins.broker.producers.states import ProducerStates

__all__ = ["AbortedTransaction", "Marker", "ProducerState", "ProducerStates", "StoredBatch"]
