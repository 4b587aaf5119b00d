"""Whatever a request says, its refusal can be written in the version that was asked in."""

from __future__ import annotations

import pytest
from messages import golden_vectors

from kraftcore.core.wire import decode, encode
from kraftcore.plugins.controller.registry import APIS
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.schema import Request

FILLED = {(name, version): raw for name, version, kind, raw in golden_vectors() if kind == "filled"}


@pytest.mark.parametrize("kind", APIS, ids=lambda kind: kind.__name__)
def test_every_refusal_can_be_written(kind: type[Request]) -> None:
    assert kind.schema.versions is not None
    low, high = kind.schema.versions
    for version in range(low, high + 1):
        for request in (kind(), decode(kind, FILLED[kind.__name__, version], version)):
            for error in (ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
                answer = APIS[kind].refuse(request, version, error, "because")
                assert answer is not None
                decode(type(answer), encode(answer, version), version)
