"""A simulated broker's process, without a simulation: it does what a broker does in production."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

from image_records import latest

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import LOST_DIRECTORY, Uuid
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.retention import Retention
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replication.follower_fetch import FetchSettings
from kraftcore.plugins.broker.simulated.process import Process
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.simulation.agenda import Agenda

EPOCH = 7
T, TOPIC = TopicPartition("t", 0), Uuid(b"5" * 16)


class Machine(SimpleNamespace):
    """What a process asks for; ``told`` is what it sent to the controller."""

    def __init__(self):
        super().__init__(agenda=Agenda(), told=[])

    def now_ms(self):
        return self.agenda.now // 1000

    def later(self, delay_ms, action, *arguments):
        self.agenda.after_ms(delay_ms, action, *arguments)

    def loaded(self):
        pass

    def flush_ms(self):
        return 0

    def taken_up(self, request):
        raise AssertionError("nobody asks")

    def do_aside(self, work, done):
        raise AssertionError("nothing is heavy")

    def ask_controller(self, request, done):
        self.told.append(request)


def test_the_controller_is_told_of_a_damaged_log_and_has_others_lead():
    machine = Machine()
    process = Process(
        1, SimulatedDisk(Random(1)), ["/d"], PartitionSettings(), Retention(), FetchSettings(), machine, Random(1)
    )
    process.broker_epoch = EPOCH
    (own,) = (each.id for each in process.dirs.usable)
    replica = {"partition_id": 0, "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=MetadataVersion.V4_0_IV1),
        RegisterBrokerRecord(broker_id=1, broker_epoch=EPOCH, incarnation_id=Uuid(b"6" * 16), log_dirs=[own]),
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], directories=[own, Uuid(b"7" * 16)], **replica),
    ]
    process.read([(0, [latest(record) for record in records])])
    assert process.replicas.all[T].partition.leading is not None
    assert machine.told == []
    process.replicas.damaged(T, CorruptDataError("its file is shorter than it was"))
    (request,) = machine.told
    assert isinstance(request, AssignReplicasToDirsRequest)
    ((directory_id, topic_id),) = ((each.id, each.topics[0].topic_id) for each in request.directories)
    assert (request.broker_epoch, directory_id, topic_id) == (EPOCH, LOST_DIRECTORY, TOPIC)
