"""The picture of a quorum: changes one by one give what counting anew gives, and it says what is the matter."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from itertools import count

import trio
from hypothesis import given
from hypothesis import strategies as st
from metadata_records import records
from nodes import Lab, run

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.errors import RemoteProtocolError
from kraftcore.metadata import Image, MetadataMachine
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.plugins.picture import Picture, Watching
from kraftcore.plugins.picture.cluster import EVENTS_MAX, TOLD_MAX, ClusterPicture
from kraftcore.plugins.picture.commits import WINDOW_S, Commits
from kraftcore.plugins.picture.picture import difference
from kraftcore.plugins.picture.quorum import SILENT_MS, Level, QuorumPicture, Says
from kraftcore.plugins.picture.watching import Carrier
from kraftcore.ports.transport import Address
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.describe_cluster import DescribeClusterResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumResponse, ReplicaState
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord

TOPIC_ID = Uuid(bytes([7]) * 16)
MIN_ISR = st.builds(
    ConfigRecord,
    resource_type=st.sampled_from([TOPIC, BROKER]),
    resource_name=st.sampled_from(["", "a", "a.b", "a_b"]),
    name=st.just("min.insync.replicas"),
    value=st.none() | st.sampled_from(["1", "2", "3"]),
)


def latest(record) -> bytes:
    return encode_metadata_record(record, type(record).schema.decodable_versions[-1][1])


def batches(values, base=0):
    return list(iter_batches(build_batch(values, timestamp_ms=1_000 + base, base_offset=base)))


def fed(*steps) -> ClusterPicture:
    """A picture after batches of records."""
    picture, offset = ClusterPicture(), 0
    for step in steps:
        picture.applied(*batches([latest(record) for record in step], offset))
        offset += len(step)
    return picture


def partition(number=0, isr=(1, 2), leader=1, **more) -> PartitionRecord:
    fields = {"replicas": [1, 2], "leader_epoch": 0, "partition_epoch": 0} | more
    return PartitionRecord(topic_id=TOPIC_ID, partition_id=number, isr=list(isr), leader=leader, **fields)


# --- the cluster ------------------------------------------------------------------------------------------------------


def counted_anew(image: Image) -> tuple[dict[str, set], int]:
    """Partitions in trouble by kind, and how many have an ELR: by a look at everything."""
    kinds: dict[str, set] = {"offline": set(), "under min ISR": set(), "under-replicated": set()}
    with_elr = 0
    for topic in image.topics.values():
        wanted = image.configs.of(TOPIC, topic.name).get("min.insync.replicas")
        wanted = int(wanted or image.configs.of(BROKER, "").get("min.insync.replicas") or 1)
        for number, each in image.partitions.of_topic(topic.id):
            name = f"{topic.name}-{number}"
            with_elr += each.elr != ()
            if each.leader == -1:
                kinds["offline"].add(name)
            if len(each.isr) < min(wanted, len(each.replicas)):
                kinds["under min ISR"].add(name)
            if len(each.isr) < len(each.replicas) - len(each.adding):
                kinds["under-replicated"].add(name)
    return kinds, with_elr


def check(picture: ClusterPicture) -> None:
    kinds, with_elr = counted_anew(picture.image)
    rows = picture.troubled(1_000).values()
    assert {kind: {row["name"] for row in rows if kind in row["kinds"]} for kind in kinds} == kinds
    counts = picture.counts()
    assert [counts[key] for key in ("offline", "underMinIsr", "underReplicated", "withElr")] == [
        *(len(kinds[kind]) for kind in ("offline", "under min ISR", "under-replicated")), with_elr
    ]  # fmt: skip


@given(st.lists(st.lists(records | MIN_ISR, min_size=1, max_size=4), max_size=25))
def test_changes_one_by_one_give_what_counting_anew_gives(drawn):
    picture, image, offset = ClusterPicture(), Image(), 0
    for step in drawn:
        values = []
        for record in step:
            try:
                image.apply(record)
            except RemoteProtocolError:
                continue
            values.append(latest(record))
        if values:
            picture.applied(*batches(values, offset))
            offset += len(values)
            check(picture)
    assert picture.trouble is None and picture.end_offset == offset
    again = ClusterPicture()
    snapshot = [latest(record) for record, _ in picture.image.records()]
    for _ in again.load(batches(snapshot) if snapshot else (), offset):
        pass
    check(again)
    assert again.counts() == picture.counts() and again.brokers() == picture.brokers()


def test_the_worst_partitions_come_first_and_say_what_helps():
    brokers = [RegisterBrokerRecord(broker_id=each, broker_epoch=each, fenced=each == 2) for each in (1, 2)]
    picture = fed(
        [*brokers, TopicRecord(name="orders", topic_id=TOPIC_ID)],
        [partition(0, isr=[1]), partition(1), partition(2, isr=[2], leader=-1), partition(3, isr=[], leader=-1)],
        [partition(4, isr=[], leader=-1, eligible_leader_replicas=[2])],
    )
    rows = picture.troubled(10)
    assert list(rows) == ["orders-2", "orders-3", "orders-4", "orders-0"]
    assert rows["orders-2"]["kinds"] == ["offline", "under-replicated"]
    assert rows["orders-2"]["helps"] == rows["orders-4"]["helps"] == "start broker 2"
    assert "unclean election" in rows["orders-3"]["helps"]
    assert list(picture.troubled(2)) == ["orders-2", "orders-3"]
    assert picture.counts()["fencedBrokers"] == 1
    found = [row["name"] for row in picture.search("rder", 3) if row]
    assert found == ["orders-0", "orders-1", "orders-2"]
    assert next(row["name"] for row in picture.search("orders-4", 3) if row) == "orders-4"


def test_a_partition_that_stays_in_trouble_is_so_since_it_began():
    change = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=[1])
    picture = fed(
        [TopicRecord(name="t", topic_id=TOPIC_ID), partition()],
        [change],
        [PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=-1)],
    )
    assert picture.troubled(1)["t-0"]["sinceMs"] == 1_002


def test_events_have_the_types_that_observe_prints_and_words():
    picture = fed(
        [TopicRecord(name="orders", topic_id=TOPIC_ID), partition(), NoOpRecord()],
        [PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=-1, isr=[2])],
        [ConfigRecord(resource_type=BROKER, resource_name="1", name="ssl.key.password", value="secret")],
        [RemoveTopicRecord(topic_id=TOPIC_ID)],
    )
    assert [(each.offset, each.type, each.text, each.is_bad) for each in picture.events] == [
        (0, "TOPIC_RECORD", "topic orders is created", False),
        (1, "PARTITION_RECORD", "orders-0 is created: replicas 1,2, leader 1", False),
        (3, "PARTITION_CHANGE_RECORD", "orders-0: no leader, ISR 2", True),
        (4, "CONFIG_RECORD", "ssl.key.password is set on broker 1", False),
        (5, "REMOVE_TOPIC_RECORD", "topic orders is removed", False),
    ]


def test_events_are_bounded_however_many_records_there_are():
    made = [TopicRecord(name=f"t{at}", topic_id=Uuid(at.to_bytes(16, "big"))) for at in range(10, TOLD_MAX + 60)]
    picture = fed(made, *([ConfigRecord(resource_type=TOPIC, resource_name="t10", name="x", value="1")],) * 400)
    assert len(picture.events) == EVENTS_MAX
    assert picture.events[-1].number == TOLD_MAX + 1 + 400
    assert fed(made).events[-1].text == "50 more records in one batch"


def test_an_applications_own_log_is_said_to_be_one():
    picture = ClusterPicture()
    picture.applied(*batches([b"{}"]))
    assert "no cluster metadata" in picture.trouble
    picture.applied(*batches([b"{}"], 1))
    assert picture.end_offset == 2


# --- the quorum -------------------------------------------------------------------------------------------------------

PLACES = {number: Address(f"c{number}", 9093) for number in (1, 2, 3)}


def described(leader=1, epoch=5, ages=(0, 0, 0), end=100) -> DescribeQuorumResponse:
    """A leader's answer; ``ages``: how long ago each voter fetched, ms; None: never."""
    kind = DescribeQuorumResponse
    voters = [
        ReplicaState(
            replica_id=number,
            log_end_offset=end,
            last_fetch_timestamp=-1 if age is None else 50_000 - age,
            last_caught_up_timestamp=-1 if age is None else 50_000 - age,
        )
        for number, age in zip(PLACES, ages, strict=True)
    ]
    part = kind.TopicData.PartitionData(
        leader_id=leader, leader_epoch=epoch, high_watermark=end, current_voters=voters, observers=[]
    )
    nodes = [
        kind.Node(node_id=number, listeners=[kind.Node.Listener(name="CONTROLLER", host=at.host, port=at.port)])
        for number, at in PLACES.items()
    ]
    return kind(topics=[kind.TopicData(topic_name="__cluster_metadata", partitions=[part])], nodes=nodes)


def not_leader() -> DescribeQuorumResponse:
    kind = DescribeQuorumResponse
    part = kind.TopicData.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return kind(topics=[kind.TopicData(topic_name="__cluster_metadata", partitions=[part])])


def three(**leaders_answer) -> QuorumPicture:
    picture = QuorumPicture("__cluster_metadata")
    picture.know(PLACES[1], None, 0)
    picture.described(PLACES[1], described(**leaders_answer), 1_000)
    for number in (2, 3):
        picture.described(PLACES[number], not_leader(), 1_000)
    return picture


def test_a_leader_names_the_voters_and_all_is_well():
    picture = three()
    assert picture.addresses == list(PLACES.values())
    (sentence,) = picture.answer(1_500)
    assert (sentence.level, sentence.text) == (Level.GOOD, "Controller 1 leads epoch 5; 3 voters fetch.")
    assert [each["role"] for each in picture.replicas().values()] == ["leader", "voter", "voter"]


def test_a_lost_majority_is_said_at_once_with_who_answers_what():
    picture = three()
    for number in (1, 2):
        picture.described(PLACES[number], Failure.REFUSED, 9_000)
    listed = DescribeClusterResponse(cluster_id="x", controller_id=1, brokers=[])
    picture.listed(PLACES[3], listed, 9_000)
    first, *accounts = picture.answer(12_000)
    assert first.level is Level.BAD
    assert first.text == ("No leader answers, for 3 s. 1 of 3 voters answers, 2 are needed: nothing can be committed.")
    assert first.help.startswith("Start 1 more") and "recover-quorum" in first.help
    assert [each.text for each in accounts] == [
        "controller 1 (c1:9093) does not answer: nobody listens there, for 3 s.",
        "controller 2 (c2:9093) does not answer: nobody listens there, for 3 s.",
        "controller 3 (c3:9093) answers, and it takes controller 1 for the leader, for 11 s.",
    ]
    assert {each["role"] for each in picture.replicas().values()} == {"voter"}
    picture.described(PLACES[1], described(epoch=6), 13_000)
    assert picture.leaderless_ms is None


def test_a_leader_that_nobody_fetches_from_is_not_believed():
    first, *rest = three(ages=(0, SILENT_MS + 1, None)).answer(1_000)
    assert first.level is Level.BAD and "no majority fetches from it" in first.text
    assert [each.text for each in rest] == [
        "Voter 2 has for 5 s not fetched from the leader.", "Voter 3 has never fetched from the leader."
    ]  # fmt: skip


def test_a_voter_that_is_down_or_only_out_of_reach_from_here():
    picture = three(ages=(0, 0, 30_000))
    for number in (2, 3):
        picture.described(PLACES[number], Failure.TIMED_OUT, 1_000)
    texts = [each.text for each in picture.answer(4_000)]
    assert texts == [
        "Voter 3 has for 30 s not fetched from the leader.",
        "controller 2 (c2:9093) does not answer: no answer in time, for 3 s; the quorum reaches it all the same.",
        "controller 3 (c3:9093) does not answer: no answer in time, for 3 s.",
    ]


def test_the_leader_of_the_higher_epoch_is_believed():
    picture = three(epoch=5)
    picture.described(PLACES[2], described(leader=2, epoch=6), 2_000)
    picture.described(PLACES[1], described(leader=1, epoch=5), 2_000)
    assert picture.leader.leader_id == 2


def test_brokers_tell_what_the_leader_answers_where_no_controller_can_be_reached():
    picture, broker = QuorumPicture("__cluster_metadata"), Address("b1", 9092)
    assert [each.text for each in picture.answer(0)] == ["Nobody has answered yet."]
    picture.relayed(broker, not_leader(), 0)
    assert "No broker that was named tells" in picture.answer(0)[0].text
    picture.relayed(broker, described(), 1_000)
    for address in PLACES.values():
        picture.described(address, Failure.OTHER, 1_000)
    assert picture.leader.leader_id == 1
    assert all(each.text.endswith("; the quorum reaches it all the same.") for each in picture.answer(2_000))
    picture.relayed(broker, Failure.REFUSED, 3_000)
    assert "No leader answers, for 1 s. 0 of 3 voters answer" in picture.answer(4_000)[0].text


# --- commits, differences ---------------------------------------------------------------------------------------------


def test_rate_and_latency_of_commits():
    commits = Commits()
    assert commits.latency_ms(0.5) is None and commits.rate(0) == 0
    for second in range(20):
        commits.progress(second, 100 * second + 100, 100 * second)
        commits.progress(second + 0.25, 100 * second + 100, 100 * second + 100)
    assert commits.latency_ms(0.5) == 250
    assert 90 <= commits.rate(19.25) <= 110
    assert commits.rate(19.25 + 2 * WINDOW_S) == 0 and commits.latency_ms(0.5) is None
    commits.progress(60, 5, 5)  # another log
    assert commits.rate(60) == 0


JSON = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


def merged(target, patch):
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.dictionaries(st.sampled_from("abc"), JSON))
def test_a_difference_turns_one_picture_into_the_next(before, after):
    patch = difference(before, after)
    assert merged(before, patch) == after
    assert (patch == {}) == (before == after)


# --- watching ---------------------------------------------------------------------------------------------------------


def test_a_quorum_is_watched_and_its_loss_is_told():
    async def main():
        lab, picture = Lab(), Picture()
        async with (
            lab.network.transport("watcher") as transport,
            trio.open_nursery() as nursery,
            AsyncExitStack() as stack,
        ):
            async with lab.quorum(machine=MetadataMachine) as (leader, *_):
                watching = Watching(picture, Carrier(transport, (Address("n2", 9093),)))
                nursery.start_soon(watching.run)
                for record in (TopicRecord(name="orders", topic_id=TOPIC_ID), partition()):
                    await leader.append(latest(record))
                await watching.looked.wait()
                while picture.cluster.counts()["partitions"] != 1 or picture.quorum.leader is None:
                    await trio.sleep(0.05)
                await watching.loaded.wait()
                frame = picture.frame(watching.now_ms())
                json.dumps(frame)
                assert frame["quorum"]["leaderId"] == 1
                assert {each["id"] for each in frame["controllers"].values()} == {1, 2, 3}
                assert frame["log"]["takenIn"] == leader.high_watermark
                assert [each["text"] for each in frame["events"].values()][-2:] == [
                    "topic orders is created",
                    "orders-0 is created: replicas 1,2, leader 1",
                ]
                assert "leads epoch" in frame["sentences"]["0"]["text"]
                while not picture.frame(0)["samples"]:
                    await trio.sleep(0.05)
            await stack.enter_async_context(lab.node(3))
            while picture.quorum.leaderless_ms is None or Says.FOLLOWS not in {
                each["says"] for each in picture.quorum.controllers().values()
            }:
                await trio.sleep(0.05)
            first = picture.sentences(watching.now_ms())[0]
            assert "1 of 3 voters answers, 2 are needed" in first.text
            nursery.cancel_scope.cancel()

    run(main)


def test_what_is_read_of_a_large_cluster_is_read_once():
    """A frame looks at what changed, not at all partitions."""
    size, numbers = 3_000, count()
    topics = [TopicRecord(name=f"t{at}", topic_id=Uuid(at.to_bytes(16, "big"))) for at in range(1_000, 1_000 + size)]
    parts = [
        PartitionRecord(
            topic_id=each.topic_id,
            partition_id=0,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for each in topics
    ]
    picture = fed(topics, parts)

    class Counted:
        def __init__(self, table):
            self.table = table

        def __len__(self):
            return len(self.table)

        def __getattr__(self, name):
            next(numbers)
            return getattr(self.table, name)

    picture.image.partitions = Counted(picture.image.partitions)
    assert len(picture.troubled(100)) == 100 and picture.counts()["underReplicated"] == size
    picture.brokers()
    assert next(numbers) < 300
