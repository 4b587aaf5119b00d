"""Configurations that change in the middle of a script; what comes next waits until the broker knows of it."""

from __future__ import annotations

import random
from typing import Any

from kafka_lab import wait_for

from broker_twin.side import Side
from broker_twin.world import Kind, Params, World
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, GROUP, METRICS = 2, 32, 16
ITS_OWN = (1, 7, 8)  # where a value comes from: a topic, client metrics, a group
VALUES = {
    "max.message.bytes": ("300", "5000", "1048588", "-1", "many", None),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "Never"),
    "cleanup.policy": ("compact", "delete", "compact,delete", "", "none"),
    "compression.type": ("producer", "uncompressed", "best"),
    "message.timestamp.after.max.ms": ("1000", "9223372036854775807", "-5"),
    "min.insync.replicas": ("1", "2", "0"),
    "no.such.key": ("1",),
}
OF_OTHERS = {
    GROUP: {"consumer.session.timeout.ms": ("50000", "1"), "no.such.key": ("1",)},
    METRICS: {"interval.ms": ("1000", "5"), "metrics": ("a.b",), "match": ("client_id=a", "b")},
}


def draw_alter(rng: random.Random, world: World) -> Params:
    kind = rng.choice((TOPIC, TOPIC, TOPIC, TOPIC, GROUP, METRICS))
    values = VALUES if kind == TOPIC else OF_OTHERS[kind]
    changes = []
    for key in rng.sample(sorted(values), rng.choice((1, 1, min(2, len(values))))):
        operation = rng.choice((SET, SET, SET, DELETE))
        changes.append((key, operation, None if operation == DELETE else rng.choice(values[key])))
    return {
        "type": kind,
        "name": world.partition(rng)[0] if kind == TOPIC else f"{world.prefix}-{rng.choice('ab')}",
        "changes": changes,
        "checks": rng.random() < 0.2,
        "twice": rng.random() < 0.05,
    }


def make_alter(params: Params, side: Side) -> Any:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [
        kind.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in params["changes"]
    ]
    one = kind(resource_type=params["type"], resource_name=params["name"], configs=changes)
    return IncrementalAlterConfigsRequest(resources=[one] * (1 + params["twice"]), validate_only=params["checks"])


def make_replace(params: Params, side: Side) -> Any:
    kind = AlterConfigsRequest.AlterConfigsResource
    values = [kind.AlterableConfig(name=key, value=value) for key, operation, value in params["changes"]]
    one = kind(resource_type=params["type"], resource_name=params["name"], configs=values)
    # Not twice: Kafka does not answer that at all.
    return AlterConfigsRequest(resources=[one], validate_only=params["checks"])


def learn_change(params: Params, answer: Any, side: Side) -> None:
    """Wait until the broker itself says what was set."""
    if params["checks"] or any(each.error_code for each in answer.responses):
        return
    kind = DescribeConfigsRequest.DescribeConfigsResource
    one = kind(resource_type=params["type"], resource_name=params["name"])
    request = DescribeConfigsRequest(resources=[one])

    def is_known() -> bool:
        [told] = side.ask("setup", request, 4).results
        values = {each.name: each for each in told.configs}
        for key, operation, value in params["changes"]:
            is_set = key in values and values[key].config_source in ITS_OWN
            if is_set and operation == DELETE:
                return False
            if operation == SET and (key not in values or values[key].value != value):
                return False
        return True

    wait_for("a configuration", lambda: is_known() or None)


KINDS = {
    "alter-configs": Kind(IncrementalAlterConfigsRequest, 4, draw_alter, make_alter, learn_change),
    "replace-configs": Kind(AlterConfigsRequest, 2, draw_alter, make_replace, learn_change),
}
