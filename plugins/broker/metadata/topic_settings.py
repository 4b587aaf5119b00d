"""What is set for each topic's partitions: its own configuration, then the brokers', then this broker's file.

Source: Kafka 4.3.1, LogConfig; ``kraftcore.configdef`` has the keys and what falls back to what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kraftcore.configdef.brokers import applied
from kraftcore.configdef.topics import ConfigSource, TopicDefaults
from kraftcore.configdef.types import ConfigValueError, Value, parse
from kraftcore.core.batch import Compression
from kraftcore.core.log.config import INDEX_BYTES_MIN, LogConfig
from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.plugins.broker.api.record_rules import RecordRules
from kraftcore.plugins.broker.config import NEVER_MS, RECORD_PROPERTIES, BrokerConfig
from kraftcore.plugins.broker.partition.retention import UNLIMITED, Retention

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
# Codec -> key and least level here; zstd's negative ones are faster and larger than 1.
_LEVELS = {Compression.GZIP: ("compression.gzip.level", -1), Compression.ZSTD: ("compression.zstd.level", 1)}


class TopicSettings(NamedTuple):
    """The settings of one topic.

    Attributes:
        min_insync_replicas: acks=all is refused if the ISR has fewer replicas.
        max_message_bytes: the most bytes of a client's batch.
        flush_messages: a sync is due before an answer when so many records are not synced.
        flush_ms: the longest time that records stay without a sync, milliseconds.
        retention: how long, and how many bytes of, its logs are kept.
        log: the settings of its logs.
        records: the rules for its records.
        may_delete: whether records may go by a client's wish (cleanup.policy has delete, or is empty).
    """

    min_insync_replicas: int
    max_message_bytes: int
    flush_messages: int
    flush_ms: int
    retention: Retention
    log: LogConfig
    records: RecordRules
    may_delete: bool


class TopicSettingsTable:
    """The settings of all topics that have their own; the others have the broker's.

    Args:
        config: of the broker.
        log: of logs whose topic sets nothing.
    """

    def __init__(self, config: BrokerConfig, log: LogConfig) -> None:
        self._broker_id = config.node_id
        retention = Retention(config.retention_ms, max(config.retention_bytes, UNLIMITED))
        self._file = TopicSettings(
            config.min_insync_replicas,
            config.message_max_bytes,
            config.flush_messages,
            config.flush_ms,
            retention,
            log,
            RecordRules(),
            may_delete=True,
        )
        self._static = {key: text for key, text in config.static_configs.items() if key in RECORD_PROPERTIES}
        self._defaults = TopicDefaults(self._static)
        self._default = self._read({})
        self._own: dict[str, TopicSettings] = {}

    def of(self, topic: str) -> TopicSettings:
        """The settings in force for a topic."""
        return self._own.get(topic, self._default)

    def log_config(self, topic: str) -> LogConfig:
        """The settings of the logs of a topic's partitions."""
        return self.of(topic).log

    def show_brokers(self, image: Image) -> None:
        """Take over changed settings of this broker or of all brokers; then `show` is called for each topic."""
        cluster = applied(image.configs.of(BROKER, ""), of_one=False)
        node = applied(image.configs.of(BROKER, str(self._broker_id)), of_one=True)
        self._defaults = TopicDefaults(self._static, cluster, node)
        self._default = self._read({})
        self._own.clear()

    def show(self, topic: str, image: Image) -> None:
        """Take over a topic's configuration."""
        overrides = image.configs.of(TOPIC, topic)
        if overrides:
            self._own[topic] = self._read(overrides)
        else:
            self._own.pop(topic, None)

    def forget(self, topic: str) -> None:
        """Forget a deleted topic."""
        self._own.pop(topic, None)

    def _value(self, key: str, overrides: Mapping[str, str]) -> tuple[Value, ConfigSource]:
        """What is in force, read as Kafka does: what stands around a value does not count.

        A controller of Kafka takes numbers that are not read here, with any number of zeros in front.
        """
        found = self._defaults.of(key, overrides)
        try:
            return None if found.value is None else parse(key, found.value, found.type), found.source
        except ConfigValueError:
            return self._value(key, {}) if key in overrides else (None, ConfigSource.DEFAULT)

    def _read(self, overrides: Mapping[str, str]) -> TopicSettings:
        def number(key: str, of_file: int) -> int:
            value, source = self._value(key, overrides)
            return of_file if source is ConfigSource.DEFAULT or not isinstance(value, int) else value

        def limit(key: str, of_file: int) -> int:
            return max(number(key, of_file), UNLIMITED)  # brokers may say it by any negative number

        log, retention = self._file.log, self._file.retention
        listed, _ = self._value("cleanup.policy", overrides)
        policies = set(listed) if isinstance(listed, list) else set()
        # A compacted topic's records do not age; as long as there is no cleaner, they all stay.
        ages = "delete" in policies
        return TopicSettings(
            number("min.insync.replicas", self._file.min_insync_replicas),
            number("max.message.bytes", self._file.max_message_bytes),
            number("flush.messages", self._file.flush_messages),
            number("flush.ms", self._file.flush_ms),
            Retention(limit("retention.ms", retention.ms), limit("retention.bytes", retention.bytes))
            if ages
            else Retention(UNLIMITED, UNLIMITED),
            replace(
                log,
                segment_bytes=number("segment.bytes", log.segment_bytes),
                segment_ms=min(number("segment.ms", log.segment_ms), NEVER_MS),
                index_interval_bytes=number("index.interval.bytes", log.index_interval_bytes),
                index_bytes_max=max(number("segment.index.bytes", log.index_bytes_max), INDEX_BYTES_MIN),
                max_batch_bytes=number("segment.bytes", log.max_batch_bytes),
                file_delete_delay_ms=min(number("file.delete.delay.ms", log.file_delete_delay_ms), NEVER_MS),
            ),
            self._record_rules(overrides, needs_keys="compact" in policies),
            ages or "compact" not in policies,
        )

    def _record_rules(self, overrides: Mapping[str, str], *, needs_keys: bool) -> RecordRules:
        def text(key: str) -> str:
            return str(self._value(key, overrides)[0])

        codec = _CODECS.get(text("compression.type"))
        level = None if codec is None else _LEVELS.get(codec)
        return RecordRules(
            text("message.timestamp.type") == "LogAppendTime",
            int(text("message.timestamp.before.max.ms")),
            int(text("message.timestamp.after.max.ms")),
            codec,
            None if level is None else max(int(text(level[0])), level[1]),
            needs_keys=needs_keys,
        )
