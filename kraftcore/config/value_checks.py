"""The check of values for both formatting a server's directories and starting it."""

from __future__ import annotations

from kraftcore.config.properties import Properties
from kraftcore.configdef.brokers import server_faults

_OWN = "kraftcore."


def check_values(properties: Properties) -> None:
    """Check the type and range of every property in a server's file that Kafka defines or a node has.

    Raises:
        ConfigError: a value is refused, as by Kafka's kafka-storage and its server; the error names the place.
    """
    if any(key.startswith(_OWN) for key in properties.names):
        from kraftcore.config.node_settings import SETTINGS  # much, for a file of Kafka's that is to be formatted

        for setting in SETTINGS.values():
            if setting.key.startswith(_OWN) and setting.key in properties and not setting.is_composed:
                setting.read(properties)
    for key, why in server_faults(properties.all):
        raise properties.error(why, key)
