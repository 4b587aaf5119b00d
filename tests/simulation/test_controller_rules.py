"""What the rules of simulated controllers allow, without a simulation."""

from __future__ import annotations

import pytest

from kraftcore.core.batch import RecordBatch, build_batch
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import PartitionKey
from kraftcore.plugins.controller.simulated.rules import Rules
from kraftcore.protocol.features import LATEST_PRODUCTION_LEVEL, METADATA_VERSION
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.simulation.checks import Checker, Violation

TOPIC = Uuid(b"5" * 16)
KEY = PartitionKey(TOPIC, 0)
BROKERS = 101, 102


class Log:
    """What the rules are told is committed: brokers 101 and 102, and a partition that 102 leads alone."""

    def __init__(self):
        self.rules = Rules(Checker(lambda batch: None))
        self._end = 0
        self.commit((FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_PRODUCTION_LEVEL), 0))
        for number in BROKERS:
            record = RegisterBrokerRecord(broker_id=number, broker_epoch=self._end, fenced=False)
            record.incarnation_id, record.log_dirs = Uuid(b"%016d" % number), [self.directory(number)]
            self.commit((record, 3))
        partition = PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            leader_epoch=0,
            partition_epoch=0,
            replicas=[102, 101],
            isr=[102],
            leader=102,
        )
        partition.directories = [self.directory(number) for number in (102, 101)]
        self.commit((TopicRecord(name="t", topic_id=TOPIC), 0), (partition, 1))

    @staticmethod
    def directory(number):
        return Uuid(b"directory %06d" % number)

    def commit(self, *records):
        values = [encode_metadata_record(*each) for each in records]
        self.rules.committed(RecordBatch(build_batch(values, timestamp_ms=1, base_offset=self._end)))
        self._end += len(values)

    def propose(self, broker_id, leader_epoch, partition_epoch, isr):
        kind = AlterPartitionRequest.TopicData
        wanted = kind.PartitionData(partition_index=0, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        wanted.new_isr_with_epochs = [kind.PartitionData.BrokerState(broker_id=each) for each in isr]
        topics = [kind(topic_id=TOPIC, partitions=[wanted])]
        self.rules.proposes(AlterPartitionRequest(broker_id=broker_id, topics=topics))

    def change(self):
        """The ISR grows, and who came leads."""
        self.commit((PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[102, 101], leader=101), 0))


def test_who_is_proposed_may_lead_at_once():
    """As the log directory of the leader that proposed it has failed meanwhile (simulator: seed 207000073)."""
    log = Log()
    log.propose(102, 0, 0, [102, 101])
    log.change()
    assert log.rules.reference.partitions.get(*KEY).leader == 101


@pytest.mark.parametrize(
    "proposal",
    [
        None,
        (101, 0, 0, [102, 101]),  # by another one
        (102, 0, 1, [102, 101]),  # of another partition epoch
        (102, 1, 0, [102, 101]),  # of another leader epoch
        (102, 0, 0, [102]),  # of others
    ],
)
def test_nobody_else_leads_without_recovering(proposal):
    log = Log()
    if proposal is not None:
        log.propose(*proposal)
    with pytest.raises(Violation, match="does not recover") as broken:
        log.change()
    assert broken.value.rule == "epochs"
