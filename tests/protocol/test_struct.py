"""Message objects as Python objects."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest

from kraftcore.core.wire import decode, encode
from kraftcore.core.wire.struct import Field
from kraftcore.errors import LocalError
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.protocol.schema import Data, Struct, array, int32, string, struct

Partition = FetchResponse.FetchableTopicResponse.PartitionData


def test_defaults_are_the_schemas():
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (-1, 0x7FFFFFFF, -1)
    assert request.cluster_id is None
    assert request.topics == []
    assert request.replica_state == FetchRequest.ReplicaState()
    assert request.replica_state.replica_epoch == -1


def test_built_defaults_belong_to_one_object():
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchRequest.FetchTopic())
    one.replica_state.replica_id = 7
    assert len(one.topics) == 1
    assert one.replica_state.replica_id == 7
    assert other.topics == []
    assert other.replica_state.replica_id == -1
    assert one.topics is one.topics
    decoded = decode(FetchRequest, encode(other, 17), 17)
    decoded.replica_state.replica_id = 3
    assert decode(FetchRequest, encode(decoded, 17), 17).replica_state.replica_id == 3


def test_constructor_takes_field_names_only():
    with pytest.raises(TypeError, match=r"Vote.*voter_identity"):
        VoteRequest(voter_identity=1)
    with pytest.raises(TypeError):
        VoteRequest("cluster")
    with pytest.raises(AttributeError):
        VoteRequest().voter_identity = 1
    with pytest.raises(AttributeError):
        _ = VoteRequest().voter_identity


def test_equal_by_value_and_unhashable():
    assert FetchRequest(max_wait_ms=5) == FetchRequest(max_wait_ms=5)
    assert FetchRequest(max_wait_ms=5) != FetchRequest(max_wait_ms=6)
    assert FetchRequest() != FetchResponse()
    assert FetchRequest(topics=[FetchRequest.FetchTopic()]) != FetchRequest()
    tagged = FetchRequest()
    tagged.unknown_tagged_fields = {9: b"x"}
    assert tagged != FetchRequest()
    with pytest.raises(TypeError, match="unhashable"):
        hash(FetchRequest())


def test_copy_and_replace():
    tagged = VoteRequest(cluster_id="c", voter_id=4)
    tagged.unknown_tagged_fields[77] = b"kept"
    for made in (tagged.copy(), copy.copy(tagged), copy.deepcopy(tagged), pickle.loads(pickle.dumps(tagged))):
        assert made == tagged
        assert made is not tagged
        assert made.unknown_tagged_fields == {77: b"kept"}
    changed = tagged.replace(voter_id=5)
    assert (changed.voter_id, changed.cluster_id, tagged.voter_id) == (5, "c", 4)
    changed.unknown_tagged_fields.clear()
    assert tagged.unknown_tagged_fields == {77: b"kept"}
    with pytest.raises(TypeError, match="nope"):
        tagged.replace(nope=1)


def test_decoded_records_can_be_pickled():
    partition = Partition(records=b"batch")
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    decoded = decode(FetchResponse, encode(response, 17), 17)
    assert isinstance(decoded.responses[0].partitions[0].records, memoryview)
    assert pickle.loads(pickle.dumps(decoded)) == decoded == response


def test_repr_shows_what_is_set_and_no_megabytes():
    text = repr(VoteRequest(cluster_id="c", topics=[VoteRequest.TopicData(topic_name="t")]))
    assert text == "VoteRequest(cluster_id='c', topics=[VoteRequest.TopicData(topic_name='t')])"
    assert repr(Partition(records=bytes(1 << 20))).endswith("records=<1048576 bytes>)")
    assert "records=b'abc'" in repr(Partition(records=memoryview(b"abc")))


def test_objects_take_part_in_garbage_collection():
    request = FetchRequest()
    request.topics.append(request)
    assert gc.is_tracked(request)
    before = len(gc.get_objects())
    del request
    gc.collect()
    assert len(gc.get_objects()) < before


def test_deleted_and_misused_slots_do_not_crash():
    request = VoteRequest(cluster_id="c")
    del request.cluster_id
    assert encode(request, 0) == encode(VoteRequest(), 0)
    with pytest.raises(TypeError):
        VoteRequest.topics.__get__(FetchRequest())
    with pytest.raises(TypeError):
        VoteRequest.topics.__set__(3, [])


def test_schemas_of_ones_own():
    class Pair(Struct):
        left: int = int32()

    class Mine(Data, versions=(0, 1), flexible_from=1):
        """A message outside Kafka's."""

        pair: Pair | None = struct(Pair, nullable="1+", default=None)
        names: list[str] = array(string, "1+", ignorable=True)

    message = Mine(pair=Pair(left=3), names=["a"])
    assert decode(Mine, encode(message, 1), 1) == message
    assert decode(Mine, encode(message, 0), 0) == Mine(pair=Pair(left=3))
    assert encode(Mine(), 1) == b"\xff\x01\x00"
    with pytest.raises(LocalError, match="Mine v0, field pair: is None"):
        encode(Mine(), 0)

    class Named(Mine):
        """Behaviour may be added, fields may not."""

        def total(self) -> int:
            return self.pair.left

    assert Named(pair=Pair(left=4)).total() == 4
    with pytest.raises(TypeError, match="fields cannot be added"):

        class Longer(Mine):
            more: int = int32()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: string(default=None), "nullable"),
        (lambda: int32(tag=1), "tag and tagged versions go together"),
        (lambda: Field("int31"), "'int31' is not a field type"),
        (lambda: Field("struct"), "name a struct class"),
    ],
)
def test_impossible_schemas_are_refused(make, text):
    with pytest.raises(LocalError, match=text):
        make()
