from __future__ import annotations

import pytest
from kafka_tools import KafkaMissingError, KafkaTools


@pytest.fixture(scope="session")
def kafka() -> KafkaTools:
    """Real Kafka. Its absence is a failure, not a skip: a green run means that Kafka agreed."""
    try:
        return KafkaTools()
    except KafkaMissingError as error:
        pytest.fail(str(error), pytrace=False)
