"""Histories of topics, brokers, controllers, configs, features, quotas, credentials, ACLs, tokens and producer ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftcore.plugins.spark.canonical import EVENT, Canonical
from kraftcore.plugins.spark.frames import (
    Integers,
    Row,
    codes,
    distinct,
    equals,
    integers,
    last_known,
    matches,
    ordered,
    present,
    running_sum,
    shared_codes,
    stacked,
    starts,
    take,
    where,
)
from kraftcore.plugins.spark.masking import is_secret, masked
from kraftcore.plugins.spark.meanings import gold

UNFENCE, FENCE = -1, 1
KNOWN = "known from a snapshot"
RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4


def _only(rows: pa.Table, *names: str, **constants: pa.Scalar) -> pa.Table:
    # The columns of EVENT, some more columns, and columns with one value.
    found = rows.select([*EVENT, *names])
    for name, value in constants.items():
        found = found.append_column(name, pa.repeat(value, len(rows)))
    return found


@gold(topic="its name")
def topics(canonical: Canonical) -> pa.Table:
    """One row a topic: from its creation to its deletion."""
    made = canonical.state("topic")
    made = _only(made, "topic_id").append_column("topic", made["name"])
    rows = stacked([made, _only(canonical.state("remove_topic"), "topic_id")])
    return canonical.history(rows, ["topic_id"], ["topic"], gone=~present(rows["topic"]))


_OF_BROKER = ["incarnation_id", "broker_epoch", "rack", "end_points", "features", "log_dirs", "cordoned_log_dirs"]
_FLAGS = ["fenced", "in_controlled_shutdown"]


@gold(
    event="what began the state: `registered`, `fenced`, `unfenced`, `controlled shutdown`, `directories changed`, "
    "`known from a snapshot` (a record before the snapshot began it)",
)
def brokers(canonical: Canonical) -> pa.Table:
    """One row a state of a broker. ``event`` names what began it, or is ``known from a snapshot``.

    A registration is a whole state; records of fencing and controlled shutdown change the fields that they name.
    """
    whole_states = canonical.state("register_broker")
    is_known = equals(whole_states["source"], "snapshot")
    registered = _only(whole_states, "broker_id", *_OF_BROKER, *_FLAGS)
    registered = registered.append_column("event", pa.array(np.where(is_known, KNOWN, "registered"), pa.string()))
    rows = stacked([
        registered,
        _broker_changes(canonical),
        _plain(canonical, "fence_broker", "id", "fenced", fenced=pa.scalar(True)),
        _plain(canonical, "unfence_broker", "id", "unfenced", fenced=pa.scalar(False)),
        _plain(canonical, "unregister_broker", "broker_id", "unregistered"),
    ])  # fmt: skip
    keys = integers(rows["era"]), integers(rows["broker_id"])
    rows = rows.take(pa.array(ordered(*keys, integers(rows["at"]), integers(rows["seq"]))))
    keys = integers(rows["era"]), integers(rows["broker_id"])
    begun = equals(rows["event"], "registered") | equals(rows["event"], KNOWN)
    life = running_sum(begun.astype(np.int64), starts(*keys))
    begins = starts(*keys, life)
    for name in (*_OF_BROKER, *_FLAGS):
        filled = take(rows[name], last_known(present(rows[name]), begins))
        rows = rows.set_column(rows.schema.get_field_index(name), name, filled)
    gone = equals(rows["event"], "unregistered")
    return canonical.history(rows, ["broker_id"], ["event", *_OF_BROKER, *_FLAGS], gone=gone)


def _broker_changes(canonical: Canonical) -> pa.Table:
    rows = canonical.state("broker_registration_change")
    fence, shutdown = equals(rows["fenced"], FENCE), equals(rows["in_controlled_shutdown"], 1)
    unfence = equals(rows["fenced"], UNFENCE)
    words = np.select(
        [fence, unfence, shutdown], ["fenced", "unfenced", "controlled shutdown"], "directories changed"
    ).tolist()
    named = pc.greater(pc.fill_null(pc.list_value_length(rows["log_dirs"]), 0), 0)
    found = _only(rows, "broker_id", "cordoned_log_dirs")
    found = found.append_column("log_dirs", pc.if_else(named, rows["log_dirs"], None))
    found = found.append_column("fenced", pa.array(fence, mask=~(fence | unfence)))
    found = found.append_column("in_controlled_shutdown", pa.array(shutdown, mask=~shutdown))
    return found.append_column("event", pa.array(words, pa.string()))


def _plain(canonical: Canonical, kind: str, key: str, event: str, **constants: pa.Scalar) -> pa.Table:
    rows = canonical.state(kind)
    return _only(rows, event=pa.scalar(event), **constants).append_column("broker_id", rows[key])


@gold()
def controllers(canonical: Canonical) -> pa.Table:
    """One row a registration of a controller (KIP-919)."""
    rows = canonical.state("register_controller")
    return canonical.history(
        rows, ["controller_id"], ["incarnation_id", "zk_migration_ready", "end_points", "features"]
    )


@gold(
    "config",
    value="its value as text; of a secret `hidden:` and twelve digits, equal for equal values in one folder of tables",
)
def configs(canonical: Canonical) -> pa.Table:
    """One row a value of a config; a deleted topic's configs end with it. Secrets are masked."""
    rows = _only(canonical.state("config"), "resource_type", "resource_name", "name", "value")
    rows = rows.set_column(rows.schema.get_field_index("value"), "value", _without_secrets(canonical, rows))
    rows = stacked([rows, _ended_with_topics(canonical, rows)])
    keys = ["resource_type", "resource_name", "name"]
    return canonical.history(rows, keys, ["value"], gone=~present(rows["value"]))


def _without_secrets(canonical: Canonical, configs: pa.Table) -> pa.Array:
    columns = (configs[name].to_pylist() for name in ("name", "value", "resource_type"))
    values = [
        masked(value, canonical.masking_key) if value and is_secret(name, value, kind) else value
        for name, value, kind in zip(*columns, strict=True)
    ]
    return pa.array(values, pa.string())


def _ended_with_topics(canonical: Canonical, configs: pa.Table) -> pa.Table:
    # For each topic that is removed, an end of each config that its name has ever had.
    topics, removed = canonical.state("topic"), canonical.state("remove_topic")
    topics = topics.take(pa.array(distinct(integers(topics["era"]), codes(topics["topic_id"]))))
    removals, made = pairs(removed, topics, ("era", "era"), ("topic_id", "topic_id"))
    ends = _only(removed.take(pa.array(removals))).append_column("resource_name", take(topics["name"], made))
    keys = where(configs, equals(configs["resource_type"], RESOURCE_TOPIC))
    keys = keys.take(
        pa.array(distinct(integers(keys["era"]), codes(keys["resource_name"]), codes(keys["name"])))
    ).select(["era", "resource_type", "resource_name", "name"])
    ended, values = pairs(ends, keys, ("era", "era"), ("resource_name", "resource_name"))
    found = ends.take(pa.array(ended))
    for name in ("resource_type", "name"):
        found = found.append_column(name, take(keys[name], values))
    return found


def pairs(left: pa.Table, right: pa.Table, *columns: tuple[str, str]) -> tuple[Integers, Integers]:
    """Rows of two tables that agree in some columns, as indices; nulls never agree.

    Args:
        left, right: the tables.
        columns: pairs of names, of the left and of the right one.
    """
    lefts, rights = np.zeros(len(left), np.int64), np.zeros(len(right), np.int64)
    for name, other in columns:
        a, b = shared_codes(left[name], right[other])
        factor = int(max(a.max(initial=0), b.max(initial=0))) + 2
        lefts = np.where((a < 0) | (lefts < 0), -1, lefts * factor + a)
        rights = np.where((b < 0) | (rights < 0), -2, rights * factor + b)
    return matches(lefts, rights)


@gold(name="the feature", feature_level="its finalized level")
def features(canonical: Canonical) -> pa.Table:
    """One row a finalized level of a feature; kraft.version comes from its control record."""
    kraft = canonical.state("kraft_version")
    versions = _only(kraft, name=pa.scalar("kraft.version")).append_column("feature_level", kraft["kraft_version"])
    rows = stacked([_only(canonical.state("feature_level"), "name", "feature_level"), versions])
    return canonical.history(rows, ["name"], ["feature_level"], gone=equals(rows["feature_level"], 0))


@gold("client_quota", quota="the limit, in the unit of `key`")
def quotas(canonical: Canonical) -> pa.Table:
    """One row a value of a client quota."""
    rows = canonical.state("client_quota")
    at = rows.schema.get_field_index("entity")
    entity = pa.array([_sorted(one) for one in rows["entity"].to_pylist()], rows.schema.field(at).type)
    rows = rows.set_column(at, "entity", entity).rename_columns({"value": "quota"})
    return canonical.history(rows, ["entity", "key"], ["quota"], gone=equals(rows["remove"], True))


def _sorted(entity: Sequence[Row] | None) -> Sequence[Row] | None:
    def place(one: Row) -> tuple[str, bool, str]:
        name = one["entity_name"]
        return one["entity_type"], name is not None, name or ""

    return None if entity is None else sorted(entity, key=place)


@gold("user_scram_credential")
def scram_credentials(canonical: Canonical) -> pa.Table:
    """One row a SCRAM credential, without its secrets."""
    keys = ["name", "mechanism"]
    rows = _only(canonical.state("user_scram_credential"), *keys, "iterations")
    rows = stacked([rows, _only(canonical.state("remove_user_scram_credential"), *keys)])
    return canonical.history(rows, keys, ["iterations"], gone=~present(rows["iterations"]))


@gold("access_control_entry")
def acls(canonical: Canonical) -> pa.Table:
    """One row an access control entry."""
    columns = ["resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type"]
    rows = _only(canonical.state("access_control_entry"), "id", *columns)
    rows = stacked([rows, _only(canonical.state("remove_access_control_entry"), "id")])
    return canonical.history(rows, ["id"], columns, gone=~present(rows["principal"]))


@gold()
def delegation_tokens(canonical: Canonical) -> pa.Table:
    """One row a state of a delegation token."""
    columns = ["owner", "requester", "renewers", "issue_timestamp", "max_timestamp", "expiration_timestamp"]
    rows = _only(canonical.state("delegation_token"), "token_id", *columns)
    rows = stacked([rows, _only(canonical.state("remove_delegation_token"), "token_id")])
    return canonical.history(rows, ["token_id"], columns, gone=~present(rows["owner"]))


@gold("producer_ids")
def producer_ids(canonical: Canonical) -> pa.Table:
    """One row a block of producer ids."""
    rows = canonical.state("producer_ids")
    return canonical.history(rows, [], ["broker_id", "broker_epoch", "next_producer_id"])
