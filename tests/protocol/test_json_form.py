from __future__ import annotations

import json

import pytest
from messages import classes, golden_vectors

from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.core.wire import decode
from kraftcore.errors import LocalError
from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord
from kraftcore.protocol.json_form import from_json_dict, to_json_dict
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.fetch import FetchResponse
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftcore.protocol.messages.vote import VoteRequest
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord


def test_tagged_fields_only_when_set():
    record = PartitionChangeRecord(partition_id=1, topic_id=METADATA_TOPIC_ID)
    assert to_json_dict(record, 0) == {"partitionId": 1, "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}
    record = record.replace(isr=[], leader=-1)
    assert list(to_json_dict(record, 0).items())[2:] == [("isr", []), ("leader", -1)]


def test_only_the_fields_of_the_version():
    record = RegisterBrokerRecord(broker_id=3, rack=None)
    assert "logDirs" not in to_json_dict(record, 1)
    assert "isMigratingZkBroker" in to_json_dict(record, 2)
    assert to_json_dict(record, 0)["rack"] is None
    with pytest.raises(LocalError, match=r"RegisterBrokerRecord v0, field in_controlled_shutdown: .*cannot carry"):
        to_json_dict(record.replace(in_controlled_shutdown=True), 0)


def test_names_and_kinds_of_values():
    assert to_json_dict(KRaftVersionRecord(kraft_version=1), 0) == {"version": 0, "kRaftVersion": 1}
    assert to_json_dict(SaslAuthenticateRequest(auth_bytes=b"\xff\xfe\xfd"), 0) == {"authBytes": "//79"}
    topic = FetchResponse.FetchableTopicResponse
    response = FetchResponse(responses=[topic(partitions=[topic.PartitionData(records=memoryview(b"abc"))])])
    assert to_json_dict(response, 12)["responses"][0]["partitions"][0]["records"] == "YWJj"


def test_every_golden_message_survives():
    for name, version, kind, raw in golden_vectors():
        cls = classes()[name]
        message = decode(cls, raw, version)
        data = json.loads(json.dumps(to_json_dict(message, version)))
        assert from_json_dict(cls, data, version) == message, (name, version, kind)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"voterId": None}, "field voter_id: is null"),
        ({"voterId": "1"}, "field voter_id: needs a int32"),
        ({"voterId": True}, "field voter_id: needs a int32"),
        ({"clusterId": 5}, "field cluster_id: needs a string"),
        ({"topics": {}}, "field topics: needs an array"),
        ({"topics": [5]}, r"field topics\[0\]: needs an object"),
        ({"topics": [{}]}, r"field topics\[0\].topic_name: 'topicName' is missing"),
        ({"topicz": 1}, "field topicz: this version has no such field"),
    ],
)
def test_bad_json(change, text):
    data = {"clusterId": "c", "voterId": 1, "topics": []}
    assert from_json_dict(VoteRequest, data, 1) == VoteRequest(cluster_id="c", voter_id=1)
    with pytest.raises(LocalError, match=f"VoteRequest v1, {text}"):
        from_json_dict(VoteRequest, {**data, **change}, 1)


def test_bad_texts_and_versions():
    with pytest.raises(LocalError, match=r"field topic_id: .* is not a uuid"):
        from_json_dict(PartitionChangeRecord, {"partitionId": 1, "topicId": "x"}, 0)
    with pytest.raises(LocalError, match="field auth_bytes"):
        from_json_dict(SaslAuthenticateRequest, {"authBytes": "?"}, 0)
    for action in (lambda: to_json_dict(VoteRequest(), 3), lambda: from_json_dict(VoteRequest, {}, 3)):
        with pytest.raises(LocalError, match="VoteRequest has no version 3"):
            action()
    with pytest.raises(LocalError, match="field message: needs an object"):
        from_json_dict(VoteRequest, [], 0)
    op = {"key": "k", "value": 1, "remove": False}
    quotas = from_json_dict(
        AlterClientQuotasRequest, {"entries": [{"entity": [], "ops": [op]}], "validateOnly": True}, 0
    )
    assert isinstance(quotas.entries[0].ops[0].value, float)
