"""The picture of a quorum as one JSON value, and what changed of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.plugins.picture.cluster import ClusterPicture
from kraftcore.plugins.picture.commits import Commits
from kraftcore.plugins.picture.groups import GroupLag
from kraftcore.plugins.picture.quorum import Level, QuorumPicture, Sentence
from kraftcore.protocol.topics import METADATA_TOPIC

Json = dict[str, Any]
_WORST_FIRST = (Level.BAD, Level.WARN, Level.GOOD)
TROUBLED_MAX = 100
"""Partitions in trouble that are in the picture; the others are found by a search."""
SAMPLES_MAX = 300
"""Samples that are kept, one a second."""


class Picture:
    """What an operator sees of a quorum now. It does nothing by itself: `Watching` feeds it.

    Args:
        topic: name of the quorum's log.
        topic_id: its id.

    Attributes:
        quorum, cluster, commits: its parts.
        groups: consumer groups by name; empty unless brokers are asked.
        log: offsets of the log as an observer mirrors it, by name; empty before one does.
        log_problem: why the log is not followed; empty while it is.
        groups_problem: why the groups are not known; empty: they are, or no broker is asked.
    """

    def __init__(self, topic: str = METADATA_TOPIC, topic_id: Uuid = METADATA_TOPIC_ID) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.quorum = QuorumPicture(topic)
        self.cluster = ClusterPicture()
        self.commits = Commits()
        self.groups: Mapping[str, GroupLag] = {}
        self.log: dict[str, int] = {}
        self.log_problem = "nothing of the log has come yet"
        self.groups_problem = ""
        self._samples: deque[Json] = deque(maxlen=SAMPLES_MAX)

    def sample(self, now_ms: int, now_s: float) -> None:
        """Keep the present rates for the plots; to be called once a second.

        Args:
            now_ms: milliseconds since 1970.
            now_s: by the clock of ``commits``.
        """
        counts = self.cluster.counts()
        self._samples.append({
            "at": now_ms,
            "rate": round(self.commits.rate(now_s), 1),
            "p50": _rounded(self.commits.latency_ms(0.5)),
            "p99": _rounded(self.commits.latency_ms(0.99)),
            **{kind: counts[kind] for kind in ("offline", "underMinIsr", "underReplicated")},
        })  # fmt: skip

    def sentences(self, now_ms: int) -> tuple[Sentence, ...]:
        """What an operator is to know, the most important first."""
        found = list(self.quorum.answer(now_ms))
        counts = self.cluster.counts()
        for key, words, level in (
            ("offline", "no leader", Level.BAD),
            ("underMinIsr", "fewer replicas in sync than min.insync.replicas", Level.WARN),
        ):
            if counts[key]:
                text = f"{counts[key]:,} of {counts['partitions']:,} partitions have {words}."
                found.append(Sentence(level, text))
        if counts["fencedBrokers"]:
            found.append(Sentence(Level.WARN, f"{counts['fencedBrokers']} of {counts['brokers']} brokers are fenced."))
        if self.cluster.trouble is not None:
            found.append(Sentence(Level.WARN, f"Brokers and topics are not shown: {self.cluster.trouble}."))
        elif self.log_problem:
            found.append(Sentence(Level.WARN, f"Brokers and topics are not up to date: {self.log_problem}."))
        if self.groups_problem:
            found.append(Sentence(Level.WARN, f"Consumer groups are not known: {self.groups_problem}."))
        return tuple(sorted(found, key=lambda each: _WORST_FIRST.index(each.level)))

    def frame(self, now_ms: int) -> Json:
        """The whole picture as a JSON value without lists of rows: rows are by name, so that changes are small.

        Times are milliseconds since 1970. No value is null.
        """
        told = self.quorum.told
        last = self._samples[-1] if self._samples else {}
        return {
            "topic": self.topic,
            "clusterId": self.quorum.cluster_id,
            "sentences": {
                str(place): {"level": each.level.value, "text": each.text, "help": each.help}
                for place, each in enumerate(self.sentences(now_ms))
            },
            "quorum": {
                "leaderId": -1 if self.quorum.leader is None or told is None else told.leader_id,
                "epoch": -1 if told is None else told.epoch,
                "highWatermark": -1 if told is None else told.high_watermark,
                "logEndOffset": -1 if told is None else told.end_offset,
                "toldMs": 0 if told is None else told.at_ms,
                "leaderlessSinceMs": self.quorum.leaderless_ms or 0,
            },
            "controllers": self.quorum.controllers(),
            "replicas": self.quorum.replicas(),
            "commits": {key: last[key] for key in ("rate", "p50", "p99") if last.get(key) is not None},
            "log": {**self.log, "takenIn": self.cluster.end_offset} if self.log else {},
            "counts": self.cluster.counts(),
            "brokers": self.cluster.brokers(),
            "troubled": self.cluster.troubled(TROUBLED_MAX),
            "groups": {
                name: {
                    "name": name,
                    "state": each.state,
                    "partitions": each.partitions,
                    "lag": -1 if each.lag is None else each.lag,
                    "worst": each.worst,
                    "problem": each.problem,
                }
                for name, each in self.groups.items()
            },
            "events": {
                str(each.number): {
                    "number": each.number,
                    "offset": each.offset,
                    "atMs": each.at_ms,
                    "type": each.type,
                    "text": each.text,
                    "isBad": each.is_bad,
                }
                for each in self.cluster.events
            },
            "samples": {str(each["at"]): each for each in self._samples},
        }


def difference(before: Json, after: Json) -> Json:
    """What turns one JSON value into another, as a JSON Merge Patch (RFC 7396); empty if nothing does.

    Neither value may hold null.
    """
    found: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if changed := difference(old, value):
                found[key] = changed
        elif old != value:
            found[key] = value
    return found


def _rounded(value: float | None) -> float:
    return -1.0 if value is None else round(value, 3)
