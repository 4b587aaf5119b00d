"""Decisions against what a real Kafka controller answered and wrote, request by request, from the same state."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from recorded_controller import RECORDINGS, Recording, Step, answer_as_data, read_recording, records_as_data

from kraftcore.errors import RemoteProtocolError
from kraftcore.metadata import Image
from kraftcore.plugins.controller import (
    acls,
    configs,
    controllers,
    describe_configs,
    features,
    producer_ids,
    quotas,
    scram,
    tokens,
)
from kraftcore.plugins.controller.decision import Context, ControllerResult, ControllerSettings, Refusal
from kraftcore.plugins.controller.soft_state import SoftState
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest

APIS = {
    request: api
    for module in (acls, configs, controllers, describe_configs, features, producer_ids, quotas, scram, tokens)
    for request, api in module.APIS.items()
}


def context_of(recording: Recording, image: Image) -> Context:
    settings = ControllerSettings(
        recording.cluster_id, int(recording.properties["node.id"]), static_configs=recording.properties
    )
    return Context(image, SoftState(), 0, 0, settings, random.Random(1))


def decide(context: Context, step: Step) -> tuple[Any, list[Any]] | None:
    """The answer and the records of a step as data; None for a request that others decide about."""
    request, version = step.request, step.version
    if isinstance(request, DescribeClusterRequest):
        answer = controllers.describe_cluster(context, request, version, "CONTROLLER", context.settings.node_id)
        return answer_as_data(answer, version), []
    if isinstance(request, ApiVersionsRequest):
        described = ApiVersionsResponse()
        features.describe(context.image.features, context.kraft_version, described, epoch=0)
        if version < 4:  # as the node does for every controller
            described.supported_features = [each for each in described.supported_features if each.min_version > 0]
        return features_of(answer_as_data(described, version)), []
    api = APIS.get(type(request))
    if api is None:
        return None
    try:
        decision = api.decide(context, request, version)
    except Refusal as refused:
        decision = ControllerResult(api.refuse(request, version, refused.code, refused.text))
    except RemoteProtocolError:
        return None, []
    return answer_as_data(decision.answer, version), records_as_data(decision.records)


def features_of(answer: dict[str, Any]) -> dict[str, Any]:
    """What ApiVersions says of features; the epoch is the runner's to know."""
    return {name: value for name, value in answer.items() if "eatures" in name and not name.endswith("Epoch")}


def kafkas(step: Step) -> tuple[Any, list[Any]]:
    answer = None if step.response is None else answer_as_data(step.response, step.version)
    if isinstance(step.request, ApiVersionsRequest):
        answer = features_of(answer) if step.response is not None and not step.response.error_code else None
    return answer, records_as_data([record for _, batch in step.log for record in batch])


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_the_controller_decides_as_kafka_did(path: Path) -> None:
    recording = read_recording(path)
    image = Image()
    checked: Counter[str] = Counter()
    wrong = []
    for step in recording.steps:
        ours = None if step.request is None else decide(context_of(recording, image), step)
        theirs = kafkas(step)
        if ours is not None and not (isinstance(step.request, ApiVersionsRequest) and theirs[0] is None):
            checked[type(step.request).__name__] += 1
            if ours != theirs:
                wrong.append((step.number, step.note, step.request, *ours, *theirs))
        for base, batch in step.log:
            for offset, (record, _) in enumerate(batch, base):
                image.apply(record, offset)
    assert not wrong, "\n\n".join("\n".join(map(str, each)) for each in wrong[:8]) + f"\n{len(wrong)} of {checked}"
    assert checked.total() > 100


def test_the_recordings_show_every_request() -> None:
    seen = {type(step.request) for path in RECORDINGS for step in read_recording(path).steps}
    assert set(APIS) <= seen
