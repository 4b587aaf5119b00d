"""What the server writes of controllers that register with it, and what it refuses."""

from __future__ import annotations

import pytest
from nodes import Lab, run

from kraftcore.cli.server_registration import Registration
from kraftcore.cli.server_state import MetadataRecords
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import LATEST_PRODUCTION_LEVEL, METADATA_VERSION
from kraftcore.protocol.messages.controller_registration import ControllerRegistrationRequest
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord

OPENING = encode_metadata_record(FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_PRODUCTION_LEVEL), 0)


def registration(listeners: int, security_protocol: int = 0) -> ControllerRegistrationRequest:
    listener = ControllerRegistrationRequest.Listener(
        name="CONTROLLER", host="h" * 1000, port=9093, security_protocol=security_protocol
    )
    return ControllerRegistrationRequest(
        controller_id=7, incarnation_id=Uuid(bytes(range(16))), listeners=[listener] * listeners
    )


def test_a_registration_too_large_for_a_batch_is_refused_and_the_next_one_written() -> None:
    async def main() -> None:
        lab, state = Lab(max_batch_bytes=100_000), MetadataRecords()
        async with lab.node(1, machine=lambda: state, plugins=[Registration(state)]) as node:
            await node.wait_leader()
            await node.append(OPENING)
            refused = await node.ask("n1", 9093, registration(1000), 5_000)
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            assert "100000" in refused.error_message
            assert state.incarnation(7) is None
            written = await node.ask("n1", 9093, registration(1), 5_000)
            assert written.error_code == ErrorCode.NONE
            assert state.incarnation(7) == Uuid(bytes(range(16)))

    run(main)


@pytest.mark.parametrize("security_protocol", [-1, 4, 32767])
def test_a_security_protocol_that_kafka_could_not_replay_is_refused(security_protocol: int) -> None:
    async def main() -> None:
        lab, state = Lab(), MetadataRecords()
        async with lab.node(1, machine=lambda: state, plugins=[Registration(state)]) as node:
            await node.wait_leader()
            await node.append(OPENING)
            refused = await node.ask("n1", 9093, registration(1, security_protocol), 5_000)
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            assert f"security protocol {security_protocol}" in refused.error_message
            assert state.incarnation(7) is None

    run(main)
