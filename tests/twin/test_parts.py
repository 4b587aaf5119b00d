"""The twin's own parts, without a controller."""

import json
import os
import subprocess
import sys

import pytest
from conformance import codec
from twin import normal, proxy
from twin.generate import generate
from twin.image import Image
from twin.observer import Observer
from twin.pair import diff, diff_records
from twin.resolve import Resolver
from twin.shrink import shrink

TOPIC = {"kind": "TopicRecord", "version": 0, "Name": "a", "TopicId": "xxxxxxxxxxxxxxxxxxxxxw"}
PART = {
    "kind": "PartitionRecord",
    "version": 2,
    "PartitionId": 0,
    "TopicId": TOPIC["TopicId"],
    "Replicas": [1, 2],
    "Isr": [1, 2],
    "RemovingReplicas": [],
    "AddingReplicas": [],
    "Leader": 1,
    "LeaderRecoveryState": 0,
    "LeaderEpoch": 0,
    "PartitionEpoch": 0,
    "Directories": [codec.ZERO_UUID] * 2,
}
CHANGE = {
    "kind": "PartitionChangeRecord",
    "version": 2,
    "PartitionId": 0,
    "TopicId": TOPIC["TopicId"],
    "Isr": [2],
    "Leader": 2,
    "LeaderRecoveryState": -1,
}


class FakeSide:
    """What a resolver needs."""

    def __init__(self, records=()):
        self.image, self.symbols, self.cluster_id = Image(), normal.Symbols([9], "c" * 22), "c" * 22
        self.observer = type("O", (), {"offset": 40})
        for r in records:
            self.symbols.learn(r)
            self.image.take(r)


def batch(*records, base=10):
    pairs = [
        codec.metadata(r["kind"], {k: v for k, v in r.items() if k not in ("kind", "version")}, r["version"])
        for r in records
    ]
    return codec.Batch(codec.batch(base, 1, pairs))


def test_a_seed_is_a_script_and_says_so_twice():
    assert json.dumps(generate(5, 200)) == json.dumps(generate(5, 200)) != json.dumps(generate(6, 200))
    assert len(generate(5, 200)["steps"]) == 200


def test_after_a_restart_no_topic_gets_the_name_of_one_that_is_gone():
    made = 0
    for seed in range(12):
        gone, retired = set(), set()
        for step in generate(seed, 300)["steps"]:
            if "op" in step:
                retired |= gone
            elif step["api"] == "DeleteTopics" and step["note"] == "by name":
                gone.update(step["body"].get("TopicNames") or [each["Name"] for each in step["body"]["Topics"]])
            elif step["api"] == "CreateTopics" and step["note"] == "create":
                names = {topic["Name"] for topic in step["body"]["Topics"]}
                assert not names & retired
                gone -= names
                made += len(names)
    assert made > 100


def test_a_seed_is_the_same_script_in_every_process():
    code = "import json, twin.generate as g; print(json.dumps([g.generate(seed, 120) for seed in range(12)]))"
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(made) == 1


def test_every_step_of_many_seeds_resolves_and_encodes():
    side = FakeSide([TOPIC, PART])
    for seed in range(30):
        for step in generate(seed, 300)["steps"]:
            if "api" in step:
                codec.encode(step["api"] + "Request", step["version"], Resolver(side).value(step["body"]))


def test_about_a_third_is_meant_to_fail():
    steps = [s for seed in range(10) for s in generate(seed, 300)["steps"]]
    assert 0.25 < sum(s["note"].startswith("bad") for s in steps) / len(steps) < 0.4


def test_uuids_are_named_by_what_they_stand_for():
    one, two = FakeSide([TOPIC]), FakeSide([{**TOPIC, "TopicId": "yyyyyyyyyyyyyyyyyyyyyw"}])
    assert one.symbols.topic(TOPIC["TopicId"]) == two.symbols.topic("yyyyyyyyyyyyyyyyyyyyyw") == "topic a #1"
    assert one.symbols.topic("yyyyyyyyyyyyyyyyyyyyyw") == "unknown uuid"


def test_an_unknown_epoch_does_not_pass_as_a_known_one():
    sym = normal.Symbols()
    sym.epochs[3] = [17]
    assert sym.epoch(3, 17) == "epoch 3.1" and "+1" in sym.epoch(3, 18) and sym.epoch(3, -1) == -1


def test_partition_changes_of_one_batch_come_in_any_order_but_those_of_one_partition_keep_theirs():
    other = {**CHANGE, "PartitionId": 1}
    later = {**CHANGE, "Isr": [1]}
    a, _ = normal.log(FakeSide([TOPIC]).symbols, [batch(CHANGE, other, later)])
    b, _ = normal.log(FakeSide([TOPIC]).symbols, [batch(other, CHANGE, later)])
    c, _ = normal.log(FakeSide([TOPIC]).symbols, [batch(other, later, CHANGE)])
    assert a == b != c


def test_new_records_keep_their_order():
    other = {**PART, "PartitionId": 1}
    a, _ = normal.log(FakeSide([TOPIC]).symbols, [batch(PART, other)])
    b, _ = normal.log(FakeSide([TOPIC]).symbols, [batch(other, PART)])
    assert a != b


def test_answers_are_sorted_but_not_replica_lists():
    def ask(partitions):
        return normal.answer(
            normal.Symbols(),
            "AlterPartition",
            {"ErrorCode": 0, "ThrottleTimeMs": 3, "Topics": [{"TopicId": "q" * 22, "Partitions": partitions}]},
        )[0]

    p, q = {"PartitionIndex": 0, "Isr": [1, 2]}, {"PartitionIndex": 1, "Isr": [3]}
    assert ask([p, q]) == ask([q, p]) != ask([{**p, "Isr": [2, 1]}, q])


def test_messages_are_kept_apart():
    a, m = normal.answer(normal.Symbols(), "UnregisterBroker", {"ErrorCode": 102, "ErrorMessage": "no"})
    assert a == {"ErrorCode": 102} and m == {"": "no"}


def test_the_image_follows_epochs_and_transactions():
    image = Image()
    begin, end, abort = ({"kind": k + "TransactionRecord"} for k in ("Begin", "End", "Abort"))
    for r in (TOPIC, PART, begin, CHANGE, abort, begin, CHANGE):
        image.take(r)
    assert image.partition("a", 0)["leader"] == 1
    image.take(end)
    assert {k: image.partition("a", 0)[k] for k in ("leader", "leader_epoch", "partition_epoch", "isr")} == {
        "leader": 2,
        "leader_epoch": 1,
        "partition_epoch": 1,
        "isr": [2],
    }


def test_directories_that_were_never_told_are_those_that_a_snapshot_tells_so():
    images = []
    for directories in ([], [codec.ZERO_UUID] * 2):
        images.append(Image())
        for r in (TOPIC, {**PART, "Directories": directories}):
            images[-1].take(r)
    assert [image.partition("a", 0)["directories"] for image in images] == [[codec.ZERO_UUID] * 2] * 2


def test_a_record_left_out_is_one_difference():
    a = [{"kind": "A", "n": 1}, {"kind": "B", "n": 2}, {"kind": "C", "n": 3}]
    assert list(diff_records(a, a[1:])) == [((0, "A"), a[0], "(absent)")]
    assert [p for p, _, _ in diff_records(a, [a[0], {**a[1], "n": 9}, a[2]])] == [(1, "B", "n")]


def test_diff_names_the_place():
    assert list(diff({"a": [{"b": 1}], "isr": [1, 2]}, {"a": [{"b": 2}], "isr": [2, 1]})) == [
        (("a", 0, "b"), 1, 2),
        (("isr",), [1, 2], [2, 1]),
    ]


def test_shrinking_keeps_what_matters_and_glued_steps_together():
    steps = [{"n": i} for i in range(40)]
    steps[17]["glue"] = True  # 17 stays with 16

    class D:
        sign, step = "x", 39

    def run(script, stop):
        have = {s["n"] for s in script["steps"]}
        assert (16 in have) == (17 in have)
        return [D] if {3, 17, 30} <= have else []

    small, _ = shrink({"steps": steps}, "x", run)
    assert [s["n"] for s in small["steps"]] == [3, 16, 17, 30]


def test_mutations_change_what_they_name():
    swap, b = proxy.SwappedIsr(), batch(PART)
    assert codec.Batch(swap.batch(b)[0]).records[0]["Isr"] == [2, 1] and swap.batch(b) is None
    drop, b = proxy.DroppedRecord(), batch(CHANGE, {**CHANGE, "PartitionId": 1})
    new = codec.Batch(drop.batch(b)[0])
    assert new.valid and len(new.records) == 1 and new.last == b.last
    assert [codec.Batch(x).base for x in proxy.SplitBatch().batch(batch(TOPIC, PART, {**PART, "PartitionId": 1}))] == [
        10,
        11,
    ]


def test_the_quorums_epoch_is_that_of_the_logs_end_whatever_its_number():
    def ask(number, end):
        partitions = [{"PartitionIndex": 0, "LeaderEpoch": number}]
        body = {"ErrorCode": 0, "Topics": [{"TopicName": "__cluster_metadata", "Partitions": partitions}]}
        return normal.answer(normal.Symbols(), "DescribeQuorum", body, 9, None, end)[0]

    assert ask(4, 4) == ask(2, 2) != ask(3, 2)


def test_what_was_read_is_not_lost_when_the_leader_goes():
    class Fetches(Observer):
        def fetch(self):
            return answers.pop(0)

    fine = {"ErrorCode": 0, "SnapshotId": {"EndOffset": -1}, "DivergingEpoch": {"EndOffset": -1}}
    answers = [{**fine, "Records": batch(TOPIC, base=0).raw}, {"ErrorCode": 6}, {"ErrorCode": 6}]
    observer = Fetches(None)
    assert [b.base for b in observer.read()] == [0]
    assert observer.offset == 1
    with pytest.raises(LookupError, match="error 6"):
        observer.read()


def test_a_refused_partition_has_no_high_watermark():
    def ask(high_watermark, end):
        body = {"Topics": [{"TopicName": "t0", "Partitions": [{"PartitionIndex": 0, "HighWatermark": high_watermark}]}]}
        return normal.answer(normal.Symbols(), "DescribeQuorum", body, end)[0]

    assert ask(0, 228) == ask(0, 229) != ask(229, 229) == ask(228, 228) != ask(227, 228)
