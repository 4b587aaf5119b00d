"""What a node makes of the answers when it asks whether there is a quorum."""

from __future__ import annotations

import pytest

from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_request, encode_request
from kraftcore.protocol.messages.fetch import FetchResponse
from kraftcore.protocol.messages.vote import VoteResponse
from kraftcore.raft.inquiry import Found, Inquiry
from kraftcore.raft.partition import FETCH_MIN_VERSION


def told(epoch: int, leader: int = -1, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> FetchResponse:
    kind = FetchResponse.FetchableTopicResponse.PartitionData
    place = kind.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    partition = kind(partition_index=0, error_code=error, current_leader=place)
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic])


REFUSED = FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
SILENT = (Failure.REFUSED, FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), VoteResponse(), told(-1))


def ask(*answers) -> Inquiry[int]:
    inquiry = Inquiry(range(len(answers)), "c", METADATA_TOPIC_ID)
    for who, answer in enumerate(answers):
        if answer is not None:
            inquiry.answered(who, answer)
    return inquiry


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ((), Found.NOTHING),
        ((told(0), told(0)), Found.NOTHING),
        ((told(0), None), Found.UNKNOWN),
        *(((told(0), silent), Found.UNKNOWN) for silent in SILENT),
        ((told(0), told(1)), Found.QUORUM),
        ((None, told(7)), Found.QUORUM),
        ((None, told(0, leader=2)), Found.QUORUM),
        ((Failure.TIMED_OUT, told(3, leader=2, error=ErrorCode.FENCED_LEADER_EPOCH)), Found.QUORUM),
        ((told(3), REFUSED), Found.OTHER_CLUSTER),
    ],
)
def test_what_is_found(answers, found):
    assert ask(*answers).found is found


def test_who_is_silent_is_named_with_the_reason_until_it_answers():
    inquiry = ask(Failure.REFUSED, None, told(0))
    assert inquiry.silent == {0: "REFUSED", 1: ""}
    inquiry.answered(0, told(0))
    inquiry.answered(0, Failure.RESET)  # what was told stays told
    assert inquiry.silent == {1: ""}


def test_the_highest_epoch_is_the_witness():
    witness = ask(told(3, leader=1), told(9), told(0)).witness
    assert witness is not None
    assert (witness.who, witness.epoch, witness.leader_id) == (1, 9, None)


def test_the_question_names_no_replica_and_can_be_sent():
    request = Inquiry((), None, METADATA_TOPIC_ID).request()
    for version in range(FETCH_MIN_VERSION, type(request).schema.versions[1] + 1):
        _, read = decode_request(encode_request(request, version, 1))
        assert read.replica_state.replica_id == -1
        assert read.max_wait_ms == 0
        assert read.topics[0].partitions[0].current_leader_epoch == 0
