"""Whatever a message can hold comes back, in every version."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import classes, messages, versions

from kraftcore.core.wire import decode, encode
from kraftcore.errors import LocalError
from kraftcore.protocol.json_form import from_json_dict, to_json_dict
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import Data, float64, int8, int16, int32, int64, string, uint16, uint32

EXAMPLES = int(os.environ.get("KRAFTCORE_EXAMPLES", "6"))


def without_unknown(value):
    """A deep copy in which no struct keeps unknown tagged fields: JSON cannot carry them."""
    if isinstance(value, list):
        return [without_unknown(item) for item in value]
    if not hasattr(value, "__layout__"):
        return value
    return type(value)(**{field.name: without_unknown(getattr(value, field.name)) for field in value.__layout__.fields})


@pytest.mark.parametrize("name", sorted(classes()))
def test_round_trip(name):
    cls = classes()[name]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(messages(cls))
    def check(drawn):
        version, message = drawn
        raw = encode(message, version)
        again = decode(cls, raw, version)
        assert again == message
        assert encode(again, version) == raw
        plain = without_unknown(message)
        assert from_json_dict(cls, to_json_dict(plain, version), version) == plain

    check()


@pytest.mark.parametrize("name", sorted(classes()))
def test_defaults_round_trip_in_every_version(name):
    cls = classes()[name]
    for version in versions(cls):
        assert decode(cls, encode(cls(), version), version) == cls()


class Numbers(Data, versions=(0, 0), flexible_from=0):
    """One field of each bounded kind."""

    a: int = int8()
    b: int = int16()
    c: int = uint16()
    d: int = int32()
    e: int = uint32()
    f: int = int64()
    g: float = float64()
    h: str = string(tagged="0+", tag=70000)


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("a", -(2**7), 2**7 - 1),
        ("b", -(2**15), 2**15 - 1),
        ("c", 0, 2**16 - 1),
        ("d", -(2**31), 2**31 - 1),
        ("e", 0, 2**32 - 1),
        ("f", -(2**63), 2**63 - 1),
    ],
)
def test_limits_of_integers(field, low, high):
    for value in (low, high, 0):
        message = Numbers(**{field: value})
        assert decode(Numbers, encode(message, 0), 0) == message
    for value in (low - 1, high + 1, 2**80, -(2**80)):
        with pytest.raises(LocalError, match=f"Numbers v0, field {field}: {value} does not fit"):
            encode(Numbers(**{field: value}), 0)
    for value in ("1", 1.0, None, b"1"):
        with pytest.raises(LocalError, match=f"field {field}: needs an int"):
            encode(Numbers(**{field: value}), 0)


@given(st.floats())
def test_floats(number):
    again = decode(Numbers, encode(Numbers(g=number), 0), 0).g
    assert again == number or (number != number and again != again)
    assert encode(Numbers(g=3), 0) == encode(Numbers(g=3.0), 0)
    for value in ("1", None, 10**400):
        with pytest.raises(LocalError, match="field g"):
            encode(Numbers(g=value), 0)


@given(st.integers(0, 300) | st.sampled_from([127, 128, 16383, 16384, 32767]))
def test_tagged_fields_of_every_size(size):
    message = Numbers(h="x" * size)
    assert decode(Numbers, encode(message, 0), 0) == message


def test_values_that_do_not_fit():
    Topic = VoteRequest.TopicData
    cases = [
        (VoteRequest(topics=None), "field topics: is None"),
        (VoteRequest(topics=[None]), r"field topics\[0\]: is None"),
        (VoteRequest(topics="ab"), "field topics: needs a list, not str"),
        (VoteRequest(topics=[Topic(), VoteRequest()]), r"field topics\[1\]: needs a VoteRequest.TopicData"),
        (VoteRequest(topics=[Topic(topic_name=None)]), r"field topics\[0\].topic_name: is None"),
        (VoteRequest(topics=[Topic(topic_name="\udc80")]), r"topics\[0\].topic_name: holds lone surrogates"),
        (VoteRequest(cluster_id="x" * 32768), "field cluster_id: string of 32768 bytes"),
        (VoteRequest(cluster_id=b"x"), "field cluster_id: needs a str, not bytes"),
        (TopicRecord(topic_id="AAAAAAAAAAAAAAAAAAAAAQ"), "TopicRecord v0, field topic_id: needs a Uuid, not str"),
    ]
    for message, text in cases:
        with pytest.raises(LocalError, match=text):
            encode(message, 0)
    assert encode(VoteRequest(topics=()), 0) == encode(VoteRequest(), 0)


def test_fields_a_version_lacks():
    partition = VoteRequest.TopicData.PartitionData(pre_vote=True)
    message = VoteRequest(topics=[VoteRequest.TopicData(partitions=[partition])])
    with pytest.raises(LocalError, match=r"VoteRequest v1, field topics\[0\].partitions\[0\].pre_vote: .*this version"):
        encode(message, 1)
    assert decode(VoteRequest, encode(message, 2), 2) == message
    # ignorable: dropped
    assert decode(FetchRequest, encode(FetchRequest(rack_id="r"), 10), 10).rack_id == ""
    with pytest.raises(LocalError, match="FetchRequest v15, field replica_id"):
        encode(FetchRequest(replica_id=3), 15)


def test_unknown_tagged_fields_merge_in_tag_order():
    request = FetchRequest(cluster_id="c", replica_state=FetchRequest.ReplicaState(replica_id=1))
    request.unknown_tagged_fields = {900: b"x" * 200, 2: b""}
    raw = encode(request, 17)
    again = decode(FetchRequest, raw, 17)
    assert again == request
    assert list(again.unknown_tagged_fields) == [2, 900]
    assert encode(again, 17) == raw
    for unknown, text in [
        ({0: b""}, "is cluster_id in this version"),
        ({-1: b""}, "needs a tag"),
        ({2**32: b""}, "needs a tag"),
        ({5: "x"}, "and bytes"),
        ({"5": b""}, "needs a tag"),
    ]:
        request.unknown_tagged_fields = unknown
        with pytest.raises(LocalError, match=text):
            encode(request, 17)
    plain = FetchRequest()
    plain.unknown_tagged_fields = {5: b"x"}
    with pytest.raises(LocalError, match="FetchRequest v11: keeps unknown tagged fields"):
        encode(plain, 11)
