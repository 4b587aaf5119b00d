"""Dynamic configuration of brokers: what is refused, and what a running one takes over.

Source: Kafka 4.3.1, ``DynamicBrokerConfig`` (``validateConfigs``, ``fromPersistentProps``) and ``KafkaConfig``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kraftcore.configdef.keys import ConfigKey, definitions
from kraftcore.configdef.types import ConfigValueError, Value, read_integer

# Keys of a server that stand for each other in other units.
_SAME = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FLUSH = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
_OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_OF_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
# What a running server takes over for one of its listeners only.
_OF_LISTENERS_ONLY = ("ssl.keystore.", "ssl.key.", "ssl.truststore.")
# Of a listener, and may nevertheless be the same for all brokers.
_OF_ALL_BROKERS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
_PROVIDERS = "config.providers"  # which Kafka has read what it checks then
# What a server's own checks ask of numbers (``KafkaConfig.validateValues``), in their order.
_REQUIRED: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "log.roll.ms": (lambda number: number >= 1, "greater than or equal to 1"),
    "log.roll.jitter.ms": (lambda number: number >= 0, "greater than or equal to 0"),
    "log.retention.ms": (lambda number: number != 0, "unlimited (-1) or, greater than or equal to 1"),
}
_PER_ADDRESS, _OF_ADDRESSES = "max.connections.per.ip", "max.connections.per.ip.overrides"
# The first may not be more than the second, which would cause what is last.
_ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "unnecessary socket timeouts"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "frequent changes in ISR"),
)


def synonyms(name: str) -> Sequence[str]:
    """A server's key, and those that stand for it where it is not set."""
    for names in _SAME:
        if name in names:
            return names
    if name == _FLUSH[0]:
        return _FLUSH
    found = _OF_LISTENER.fullmatch(name)
    if found is None:
        return (name,)
    base = found[1]
    return name, next((each for each in _OF_MECHANISM if base.endswith(each)), base)


def server_key(name: str) -> ConfigKey | None:
    """The definition of a server's key, that of a listener's key included; None: Kafka knows no such key."""
    for each in (name, *synonyms(name)):
        key = definitions("broker").get(each) or definitions("broker-quota").get(each)
        if key is not None:
            return key
    return None


def validate_broker(configs: Mapping[str, str], *, of_one: bool) -> None:
    """Check all values that a broker, or all of them, are to have.

    Args:
        configs: the values as they are to be.
        of_one: they are of a single broker.

    Raises:
        ConfigValueError: refused, with Kafka's message.
    """
    _refuse("Cannot update these configs dynamically", filter(_is_read_only, configs))
    of_listeners = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse(of_listeners, filter(_needs_listener, configs))
    plain = {_without_listener(name): value for name, value in configs.items()}
    for name in [name for name in plain if name.startswith(_PROVIDERS)]:
        del plain[name]
    for scope in ("broker-quota", "broker"):
        keys = definitions(scope)
        keys.read({name: value for name, value in plain.items() if name in keys})
    if not of_one:
        at_one = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse(at_one, filter(_is_of_one, configs))
    for name in _REQUIRED:
        if name in configs:
            _check_required(name, definitions("broker")[name].read(configs[name]))
    if _OF_ADDRESSES in configs:
        _check_counts(_OF_ADDRESSES, configs[_OF_ADDRESSES])


def server_faults(configs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What Kafka's storage tool and its server refuse of a server's own file: types, ranges, and what they require.

    Args:
        configs: all of the file; names that Kafka does not define are left alone.

    Yields:
        A key, and why, in Kafka's words.
    """
    keys = definitions("broker")
    for name, text in configs.items():
        try:
            if name in keys:
                _check_required(name, keys[name].read(text))
        except ConfigValueError as error:
            yield name, str(error)
    for less, more, why in _ORDERED:
        given = next((name for name in (less, more) if name in configs), None)
        values = [read_integer(configs.get(name, keys[name].default or "")) for name in (less, more)]
        if given is not None and values[0] is not None and values[1] is not None and values[0] > values[1]:
            yield given, f"requirement failed: {less} should always be less than or equal to {more} to prevent {why}"
    if read_integer(configs.get(_PER_ADDRESS, "")) == 0 and not configs.get(_OF_ADDRESSES):
        yield _PER_ADDRESS, f"requirement failed: {_PER_ADDRESS} can be set to zero only if {_OF_ADDRESSES} is set."


def applied(configs: Mapping[str, str], *, of_one: bool) -> dict[str, str]:
    """What a running server takes over of a dynamic configuration: it ignores bad values and keys it cannot change."""
    found = {}
    for name, value in configs.items():
        if _is_read_only(name) or _needs_listener(name) or (not of_one and _is_of_one(name)):
            continue
        key = server_key(name)
        try:
            if key is not None:
                _check_required(name, key.read(value))
        except ConfigValueError:
            continue
        found[name] = value
    return found


def _refuse(text: str, names: Iterable[str]) -> None:
    found = ", ".join(names)
    if found:
        raise ConfigValueError(f"{text}: [{found}]")


def _check_required(name: str, value: Value) -> None:
    holds, text = _REQUIRED.get(name, (None, ""))
    if holds is not None and isinstance(value, int) and not holds(value):
        raise ConfigValueError(f"requirement failed: {name} must be {text}")


def _check_counts(name: str, text: str) -> None:
    """See that a value is a list of numbers by name."""
    for part in filter(None, text.split(",")):
        before, colon, number = part.strip().rpartition(":")
        if not colon:
            wrong = f"begin 0, end -1, length {len(before + number)}"
            raise ConfigValueError(f"Error parsing configuration property '{name}': {wrong}")
        if read_integer(number.strip()) is None:
            raise ConfigValueError(f'For input string: "{number.strip()}"')


def _without_listener(name: str) -> str:
    found = _OF_LISTENER.fullmatch(name)
    return name if found is None else found[1]


def _is_read_only(name: str) -> bool:
    key = definitions("broker").get(name)
    return key is not None and key.update_mode == "read-only"


def _needs_listener(name: str) -> bool:
    return name.startswith(_OF_LISTENERS_ONLY) and name in definitions("broker")


def _is_of_one(name: str) -> bool:
    key = definitions("broker").get(name)
    if key is not None:
        return key.update_mode == "per-broker"
    base = _without_listener(name)
    return base != name and base not in _OF_ALL_BROKERS
