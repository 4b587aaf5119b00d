"""A broker's life, request by request."""

import pytest

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.cluster import Listener
from kraftcore.metadata.registration import BrokerIdentity
from kraftcore.plugins.broker.kraft.lifecycle import Lifecycle, Stage
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

HEARTBEAT_MS = 2000
A, B = Uuid(bytes(15) + b"\x11"), Uuid(bytes(15) + b"\x12")
WHO = BrokerIdentity(3, "cluster", Uuid(bytes(15) + b"\x13"), (Listener("PLAINTEXT", "h", 9092, 0),), "r")


class Directories:
    def __init__(self):
        self.online, self.failed = [B, A], []


def make(previous_epoch=-1):
    directories = Directories()
    life = Lifecycle(WHO, lambda: directories.online, lambda: directories.failed, HEARTBEAT_MS, previous_epoch)
    return life, directories


def registered(epoch=7, **more):
    life, directories = make(**more)
    assert life.answered(BrokerRegistrationResponse(broker_epoch=epoch)) == 0
    return life, directories


def test_it_registers_catches_up_and_is_unfenced_when_it_is_ready():
    life, _ = make(previous_epoch=5)
    request = life.request(-1)
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.broker_id, request.cluster_id, request.incarnation_id) == (3, "cluster", WHO.incarnation_id)
    assert (request.previous_broker_epoch, request.log_dirs, request.rack) == (5, [A, B], "r")
    assert [(each.name, each.host, each.port) for each in request.listeners] == [("PLAINTEXT", "h", 9092)]
    assert {"metadata.version", "kraft.version"} <= {each.name for each in request.features}
    assert life.answered(BrokerRegistrationResponse(broker_epoch=7)) == 0
    assert (life.stage, life.broker_epoch) == (Stage.RECOVERING, 7)
    beat = life.request(40)
    assert isinstance(beat, BrokerHeartbeatRequest)
    assert (beat.broker_epoch, beat.current_metadata_offset, beat.want_fence, beat.want_shut_down) == (
        7,
        40,
        True,
        False,
    )
    assert life.answered(BrokerHeartbeatResponse(is_caught_up=False, is_fenced=True)) == HEARTBEAT_MS
    assert not life.is_caught_up
    assert life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)) == HEARTBEAT_MS
    assert life.is_caught_up
    life.is_ready = True
    assert not life.request(41).want_fence
    assert life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)) == HEARTBEAT_MS
    assert life.stage is Stage.RUNNING


def test_the_controller_is_told_once_when_its_registration_took_effect():
    life, _ = registered(7)
    assert not life.is_awaited(6)
    life.request(6)
    life.answered(BrokerHeartbeatResponse(is_caught_up=False, is_fenced=True))
    assert not life.is_awaited(6)
    assert life.is_awaited(7)
    life.request(7)
    assert not life.is_awaited(8)
    life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    assert not life.is_awaited(9)


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_an_epoch_that_is_not_known_any_more_leads_back_to_a_registration(error):
    life, _ = registered(7)
    life.answered(BrokerHeartbeatResponse(error_code=error))
    assert life.stage is Stage.STARTING
    assert life.refusal == error.name
    request = life.request(50)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == 7
    life.answered(BrokerRegistrationResponse(broker_epoch=60))
    assert life.request(61).broker_epoch == 60


@pytest.mark.parametrize(
    "answer",
    [
        Failure.REFUSED,
        Failure.TIMED_OUT,
        BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER),
        BrokerHeartbeatResponse(error_code=ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_without_an_answer_the_same_is_asked_again(answer):
    life, _ = registered()
    assert 0 < life.answered(answer) < HEARTBEAT_MS
    assert life.stage is Stage.RECOVERING
    assert life.request(40).broker_epoch == 7


def test_a_duplicate_registration_is_said_and_tried_again():
    life, _ = make()
    assert life.answered(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)) > 0
    assert life.refusal == "DUPLICATE_BROKER_REGISTRATION"
    assert isinstance(life.request(-1), BrokerRegistrationRequest)


def test_it_leaves_when_it_may():
    life, _ = registered()
    life.leave()
    assert life.request(40).want_shut_down
    assert life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)) < HEARTBEAT_MS
    assert life.stage is Stage.LEAVING
    life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True, should_shut_down=True))
    assert life.stage is Stage.GONE


def test_what_was_never_registered_or_is_not_any_more_may_go_at_once():
    life, _ = make()
    life.leave()
    assert life.stage is Stage.GONE
    life, _ = registered()
    life.leave()
    life.answered(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert life.stage is Stage.GONE


def test_who_is_fenced_for_its_silence_asks_to_be_let_in_again():
    life, _ = registered()
    life.is_ready = True
    life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    assert life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)) == 0
    assert life.stage is Stage.RECOVERING
    assert life.answered(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)) == HEARTBEAT_MS


def test_directories_that_failed_are_told():
    life, directories = registered()
    directories.online, directories.failed = [A], [B]
    assert life.request(40).offline_log_dirs == [B]
