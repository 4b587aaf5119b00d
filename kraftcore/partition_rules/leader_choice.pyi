from collections.abc import Mapping
from enum import Enum
from typing import final

from kraftcore.metadata.cluster import Broker

class Election(Enum):
    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2

@final
class LeaderChoice:
    def __init__(
        self, brokers: Mapping[int, Broker], is_elr_on: bool, without: int, including: int, unclean: int
    ) -> None: ...
