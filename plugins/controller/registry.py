"""The table of all requests that the controller decides about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraftcore.plugins.controller import (
    acls,
    brokers,
    configs,
    controllers,
    describe_configs,
    directories,
    elections,
    features,
    isr,
    producer_ids,
    quotas,
    reassignments,
    scram,
    tokens,
    topics,
)
from kraftcore.plugins.controller.decision import Api
from kraftcore.protocol.schema import Request

APIS: Mapping[type[Request], Api] = MappingProxyType(
    {
        **acls.APIS,
        **brokers.APIS,
        **configs.APIS,
        **controllers.APIS,
        **describe_configs.APIS,
        **directories.APIS,
        **elections.APIS,
        **features.APIS,
        **isr.APIS,
        **producer_ids.APIS,
        **quotas.APIS,
        **reassignments.APIS,
        **scram.APIS,
        **tokens.APIS,
        **topics.APIS,
    }
)
"""By class of the request: how it is decided about, and how it is refused as a whole."""
