"""A DCS of Patroni's: every member is a node of one quorum, and nothing else has to run.

The section ``kraftcore`` of Patroni's file holds settings of `kraftcore.NodeConfig`; ``member.py`` makes it known.
"""

import atexit
import json
import logging
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from keys import Key, Keys
from patroni.dcs import (
    AbstractDCS,
    Cluster,
    ClusterConfig,
    Failover,
    Leader,
    Member,
    Status,
    SyncState,
    TimelineHistory,
)
from patroni.exceptions import DCSError, PatroniFatalException
from patroni.postgresql.mpp import AbstractMPP

import kraftcore.blocking
from kraftcore import KraftError, NodeConfig, NodeStoppedError

PATRONIS = {"namespace", "name", "scope", "loop_wait", "patronictl", "ttl", "retry_timeout"}
"""What Patroni adds to the section."""
SHORT_S = 1
"""For what Patroni can do without this time, before the next renewal of the leader's key is due."""
GRACE_S = 0.02
LATE_S = 0.5
"""Between looks at a leader's key that should have ended: by the clock of the quorum's leader it has not yet."""
Wanted = dict[str, Any]
"""What the fields of a key have to be."""
NOBODY: Wanted = {"created": None}

logger = logging.getLogger(__name__)


class Kraftcore(AbstractDCS):
    """Each change is a record of the log, on the disks of a majority when the call returns.

    What cannot be had of a majority within ``retry_timeout`` raises `DCSError`, at which Patroni demotes its primary.
    """

    def __init__(self, config: dict[str, Any], mpp: AbstractMPP) -> None:
        super().__init__(config, mpp)
        self.set_ttl(config.get("ttl", 30))
        self.set_retry_timeout(config.get("retry_timeout", 10))
        self._keys = Keys(self._changed)
        life = ExitStack()
        settings = {"cluster_id": config["scope"], "create": "join"}
        settings |= {name: value for name, value in config.items() if name not in PATRONIS}
        if self._ctl:  # patronictl, beside the member whose directory it is
            settings |= _guest(life.enter_context(tempfile.TemporaryDirectory()))
        self._node = life.enter_context(kraftcore.blocking.open_node(NodeConfig(**settings), self._keys))
        atexit.register(life.close)
        if not self._ctl:  # Patroni asks again after 5 s where a member that starts asks too early
            with suppress(DCSError), _errors():
                self._node.with_timeout(self._ttl_s).wait_leader()

    # --- settings that change while it runs -------------------------------------------------------------------------

    def set_ttl(self, ttl: int) -> bool | None:
        self._ttl_s = ttl
        return None

    @property
    def ttl(self) -> int:
        return self._ttl_s

    def set_retry_timeout(self, retry_timeout: int) -> None:
        self._retry_timeout_s = retry_timeout

    # --- asking the quorum ------------------------------------------------------------------------------------------

    def _commit(
        self,
        verb: str,
        key: str = "",
        wanted: Wanted | None = None,
        timeout_s: float | None = None,
        **more: Any,
    ) -> int:
        """Have a majority agree to a record of `Keys`; returns its offset, or 0 if its condition does not hold.

        Raises:
            DCSError: nobody knows whether they will.
        """
        record = json.dumps({"verb": verb, "key": key, "if": wanted or {}, **more}).encode()
        with _errors():
            node = self._node.with_timeout(timeout_s or self._retry_timeout_s)
            result = node.append(record, forward=True).result
        if result is None:
            raise DCSError("the record came back inside a snapshot, without its result")
        return result

    def _try(self, verb: str, key: str, wanted: Wanted | None = None, **more: Any) -> int:
        """As ``_commit``, of what Patroni tries again by itself; 0 if it did not come about."""
        try:
            return self._commit(verb, key, wanted, **more)
        except DCSError as error:
            logger.warning("%s %s: %s", verb, key, error.value)
            return 0

    # --- what the cluster is ----------------------------------------------------------------------------------------

    def _load_cluster(self, path: str, loader: Callable[[str], Any]) -> Any:
        # This record makes what follows as new as a read barrier would, and ends the keys whose time is over.
        self._commit("tick")
        with _errors():
            return loader(path)

    def _below(self, path: str) -> dict[str, Key]:
        return self._node.with_timeout(self._retry_timeout_s).call(self._keys.below, path)

    def _postgresql_cluster_loader(self, path: str) -> Cluster:
        return self._cluster_of(self._below(path))

    def _mpp_cluster_loader(self, path: str) -> dict[int, Cluster]:
        groups: dict[int, dict[str, Key]] = defaultdict(dict)
        for key, found in self._below(path).items():
            group, _, rest = key.partition("/")
            if group.isdecimal():
                groups[int(group)][rest] = found
        return {group: self._cluster_of(found) for group, found in groups.items()}

    def _cluster_of(self, found: dict[str, Key]) -> Cluster:
        def value(key: str) -> str | None:
            return found[key].value if key in found else None

        def made(kind: Any, key: str) -> Any:
            return kind.from_node(found[key].changed, found[key].value) if key in found else None

        members = {}
        for key, each in found.items():
            if key.startswith(self._MEMBERS):
                name = key.removeprefix(self._MEMBERS)
                members[name] = Member.from_node(each.changed, name, None, each.value)
        leader = found.get(self._LEADER)
        return Cluster(
            initialize=value(self._INITIALIZE),
            config=made(ClusterConfig, self._CONFIG),
            leader=leader
            and Leader(leader.created, None, members.get(leader.value, Member(-1, leader.value, None, {}))),
            status=Status.from_node(value(self._STATUS)),
            members=list(members.values()),
            failover=made(Failover, self._FAILOVER),
            sync=made(SyncState, self._SYNC) or SyncState.empty(),
            history=made(TimelineHistory, self._HISTORY),
            failsafe=json.loads(value(self._FAILSAFE) or "null"),
        )

    # --- the leader's key -------------------------------------------------------------------------------------------

    def _lead(self, wanted: Wanted) -> bool:
        return bool(self._commit("set", self.leader_path, wanted, value=self._name, ttl_ms=round(self._ttl_s * 1000)))

    def attempt_to_acquire_leader(self) -> bool:
        return self._lead(NOBODY)

    def take_leader(self) -> bool:
        return self._lead({})

    def _update_leader(self, leader: Leader) -> bool:
        # Only the key that was seen: one that ended since, and was made anew, may have had another owner in between.
        return self._lead({"value": self._name, "created": leader.version})

    def _delete_leader(self, leader: Leader) -> bool:
        return bool(self._try("delete", self.leader_path, {"value": self._name}, timeout_s=SHORT_S))

    # --- the other keys ---------------------------------------------------------------------------------------------

    def initialize(self, create_new: bool = True, sysid: str = "") -> bool:
        return bool(self._try("set", self.initialize_path, NOBODY if create_new else {}, value=sysid))

    def cancel_initialization(self) -> bool:
        return bool(self._try("delete", self.initialize_path))

    def touch_member(self, data: dict[str, Any]) -> bool:
        value, ttl_ms = json.dumps(data, separators=(",", ":")), round(self._ttl_s * 1000)
        return bool(self._try("set", self.member_path, value=value, ttl_ms=ttl_ms, timeout_s=SHORT_S))

    def _write_status(self, value: str) -> bool:
        return bool(self._try("set", self.status_path, value=value, timeout_s=SHORT_S))

    def _write_leader_optime(self, last_lsn: str) -> bool:
        return bool(self._try("set", self.leader_optime_path, value=last_lsn, timeout_s=SHORT_S))

    def _write_failsafe(self, value: str) -> bool:
        return bool(self._try("set", self.failsafe_path, value=value, timeout_s=SHORT_S))

    def set_history_value(self, value: str) -> bool:
        return bool(self._try("set", self.history_path, value=value))

    def set_failover_value(self, value: str, version: Any | None = None) -> bool:
        return bool(self._try("set", self.failover_path, _unchanged(version), value=value))

    def set_config_value(self, value: str, version: Any | None = None) -> bool:
        return bool(self._try("set", self.config_path, _unchanged(version), value=value))

    def set_sync_state_value(self, value: str, version: Any | None = None) -> int | bool:
        return self._try("set", self.sync_path, _unchanged(version), value=value) or False

    def delete_sync_state(self, version: Any | None = None) -> bool:
        return bool(self._try("delete", self.sync_path, _unchanged(version)))

    def delete_cluster(self) -> bool:
        return bool(self._try("delete_all", self.client_path("")))

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _changed(self, key: str, before: Key | None, after: Key | None) -> None:
        """Called in the node's thread: end a wait, if the key is one at which Patroni should look at once."""
        if (before and before.value) == (after and after.value):
            return
        if key in (self.leader_path, self.config_path, self.failover_path, self.sync_path):
            self.event.set()

    def watch(self, leader_version: Any | None, timeout: float) -> bool:
        leader = self._keys.get(self.leader_path)
        ends_s = timeout
        if leader is not None and leader.value != self._name and leader.expires_ms is not None:
            # No record may come that ends the leader's key: be back when that is due, for Patroni to load the cluster.
            left_s = leader.expires_ms / 1000 - time.time() + GRACE_S
            ends_s = left_s if left_s > 0 else LATE_S
        try:
            return self.event.wait(min(timeout, ends_s)) or ends_s < timeout
        finally:
            self.event.clear()


@contextmanager
def _errors() -> Iterator[None]:
    """Ours, as Patroni's."""
    try:
        yield
    except NodeStoppedError as error:  # of a full disk, for example: begin anew, with a new process
        raise PatroniFatalException(f"{error}: {error.__cause__}") from error
    except (KraftError, TimeoutError) as error:
        raise DCSError(str(error)) from error


def _unchanged(version: Any | None) -> Wanted:
    return {} if version is None else {"changed": version}


def _guest(directory: str) -> dict[str, Any]:
    """A node that only looks on, and appends by the leader."""
    node_id = 1_000_000 + uuid.uuid4().int % 1_000_000_000
    return {"node_id": node_id, "directory": directory, "listeners": ["127.0.0.1:0"], "can_become_voter": False}
