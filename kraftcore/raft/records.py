"""Voter sets and kraft.version as control records, both ways.

Source: KIP-853 "Log and snapshot control records"; Kafka 4.3.1 writes the records in version 0 only.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftcore.core.batch import RecordBatch
from kraftcore.raft.quorum import Endpoint, ReplicaKey, VersionRange, Voter, VoterSet
