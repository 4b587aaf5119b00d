"""Static voters beside Kafka's that lose their disks and format themselves: Kafka tells them enough to count again."""

from __future__ import annotations

import shutil
from pathlib import Path

from kafka_lab import KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.storage.probation_mark import PROBATION_MARK


def counts(node: KafkaNode) -> bool:
    """Whether it has formatted itself, and its probation is over."""
    folder = Path(node.folder)
    return (folder / "meta.properties").exists() and not (folder / PROBATION_MARK).exists()


def wait_voters_keep_up(lab: KafkaLab, leaders: set[int]) -> int:
    """Wait until one of them leads, and all voters have what it has committed; returns the leader's id."""

    def keep_up() -> int | None:
        found = lab.describe()
        if found is None or found.leader_id not in leaders or len(found.voters) != 3:
            return None
        return found.leader_id if all(voter.log_end_offset >= found.high_watermark for voter in found.voters) else None

    return wait_for("the voters to keep up", keep_up)


def test_a_lost_disk_beside_kafka(kafka: KafkaTools, tmp_path: Path) -> None:
    """A new quorum begins; one that lost its disk counts again, and then its vote is enough for the next leader."""
    with KafkaLab(kafka, tmp_path) as lab:
        theirs = [lab.controller(number) for number in (1, 2)]
        ours = lab.kraftcore(
            3, kraftcore_create="join", kraftcore_cluster_id=lab.cluster_id, kraftcore_reluctant="true"
        )
        nodes = [*theirs, ours]
        static = ",".join(f"{number}@{node.address}" for number, node in enumerate(nodes, 1))
        lab.bootstrap = [node.address for node in theirs]
        for node in nodes:
            node.write(controller_quorum_voters=static, controller_quorum_bootstrap_servers=None)
        for node in theirs:
            node.format()
        for node in nodes:
            node.start()
        wait_voters_keep_up(lab, {1, 2})
        wait_for("the new quorum to count it", lambda: counts(ours))
        ours.kill()
        before = ours.directory_id
        shutil.rmtree(ours.folder)
        ours.start()
        wait_for("it to count again", lambda: counts(ours))
        assert ours.directory_id != before
        leader = wait_voters_keep_up(lab, {1, 2})
        theirs[leader - 1].kill()
        other = 3 - leader
        lab.bootstrap = [theirs[other - 1].address]

        def leads() -> bool:
            found = lab.describe()
            return found is not None and found.leader_id == other and found.high_watermark > 0

        wait_for("the other one to lead with its vote", leads)
