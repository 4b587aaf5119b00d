"""KRaft you can embed: a durable, replicated, ordered log in a Python process, byte-compatible with Apache Kafka.

Everything that a program needs to open a node is here; what else is public stands in docs/api.md.

============================================================  ==========================================================
``open_node`` ``Node``                                        a node, on trio; ``aio`` and ``blocking`` have the same
``attach`` ``open_or_attach``                                 a node that another process of this host has open
``NodeConfig`` ``TlsConfig`` ``SaslConfig`` ``SaslLogin``     how it is set up, who may come in, and as whom it goes out
``StateMachine`` ``RecordBatch`` ``SnapshotSink``             what the application brings, and what it is given
``Appended`` ``AppendedMany`` ``AppendFuture``                what becomes of records
``Status`` ``ReplicaStatus`` ``Role``                         what a node says of itself
``NodeEvent`` and its members                                 what it tells when it happens
``Uuid`` ``ReplicaKey`` ``Endpoint`` ``Voter`` ``VoterSet``   who is who, and where
``KraftError`` and all in ``kraftcore.errors``                what can go wrong, by what to do about it
============================================================  ==========================================================
"""

from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if PathFinder.find_spec("uuid", [f"{folder}/core" for folder in __path__]) is None:
    raise ImportError(
        f"{__path__[0]} is the source of kraftcore and not compiled; Python found it before the installed package. Run "
        "Python in another folder (or python -P, or pytest for python -m pytest), or compile here: pip install -e ."
    )

from kraftcore import errors as errors
from kraftcore.errors import *  # noqa: F403  # all of them, and now: they need nothing else
from kraftcore.namespace import listing, loader, names_of

__version__ = "0.1.0"

# Loaded when first asked for: who only reads a log needs neither trio nor the consensus.
_HOMES = {
    "kraftcore": ("admin", "aio", "blocking", "metadata", "observer", "recipes", "testing"),
    "kraftcore.config": (
        *("ConfigError", "NodeConfig", "SaslConfig", "SaslLogin", "SecurityProtocol"),
        *("TlsConfig", "TokenRequest", "TokenRules", "TokenValidation", "make_login"),
    ),
    "kraftcore.core.allocator": ("keep_freed_memory",),
    "kraftcore.core.batch": ("Record", "RecordBatch", "TimestampType", "build_batch", "iter_batches"),
    "kraftcore.core.uuid": ("Uuid",),
    "kraftcore.executor.proposals": ("Appended", "AppendedMany"),
    "kraftcore.node": ("Node", "attach", "open_node", "open_or_attach"),
    "kraftcore.node.events": (
        *("Committed", "Elected", "LeaderChanged", "LeadershipEnded", "LeadershipReady", "Measured", "Missed"),
        *("NodeEvent", "Noted", "RoleChanged", "SnapshotRestored", "SnapshotTaken", "Stopped", "VotersChanged"),
    ),
    "kraftcore.node.health": ("Health",),
    "kraftcore.node.logins": ("LoginCounts",),
    "kraftcore.node.status": ("ReplicaStatus", "Status"),
    "kraftcore.node.subscription": ("Subscription",),
    "kraftcore.node.waiting": ("AppendFuture",),
    "kraftcore.observer": ("observe",),
    "kraftcore.protocol.election_state": ("ReplicaKey",),
    "kraftcore.raft.quorum": ("Endpoint", "VersionRange", "Voter", "VoterSet"),
    "kraftcore.raft.roles": ("Role",),
    "kraftcore.state_machine": ("SnapshotSink", "StateMachine"),
}
if TYPE_CHECKING:
    from kraftcore import admin as admin
    from kraftcore import aio as aio
    from kraftcore import blocking as blocking
    from kraftcore import metadata as metadata
    from kraftcore import observer as observer
    from kraftcore import recipes as recipes
    from kraftcore import testing as testing
    from kraftcore.config import ConfigError as ConfigError
    from kraftcore.config import NodeConfig as NodeConfig
    from kraftcore.config import SaslConfig as SaslConfig
    from kraftcore.config import SaslLogin as SaslLogin
    from kraftcore.config import SecurityProtocol as SecurityProtocol
    from kraftcore.config import TlsConfig as TlsConfig
    from kraftcore.config import TokenRequest as TokenRequest
    from kraftcore.config import TokenRules as TokenRules
    from kraftcore.config import TokenValidation as TokenValidation
    from kraftcore.config import make_login as make_login
    from kraftcore.core.allocator import keep_freed_memory as keep_freed_memory
    from kraftcore.core.batch import Record as Record
    from kraftcore.core.batch import RecordBatch as RecordBatch
    from kraftcore.core.batch import TimestampType as TimestampType
    from kraftcore.core.batch import build_batch as build_batch
    from kraftcore.core.batch import iter_batches as iter_batches
    from kraftcore.core.uuid import Uuid as Uuid
    from kraftcore.executor.proposals import Appended as Appended
    from kraftcore.executor.proposals import AppendedMany as AppendedMany
    from kraftcore.node import Node as Node
    from kraftcore.node import attach as attach
    from kraftcore.node import open_node as open_node
    from kraftcore.node import open_or_attach as open_or_attach
    from kraftcore.node.events import Committed as Committed
    from kraftcore.node.events import Elected as Elected
    from kraftcore.node.events import LeaderChanged as LeaderChanged
    from kraftcore.node.events import LeadershipEnded as LeadershipEnded
    from kraftcore.node.events import LeadershipReady as LeadershipReady
    from kraftcore.node.events import Measured as Measured
    from kraftcore.node.events import Missed as Missed
    from kraftcore.node.events import NodeEvent as NodeEvent
    from kraftcore.node.events import Noted as Noted
    from kraftcore.node.events import RoleChanged as RoleChanged
    from kraftcore.node.events import SnapshotRestored as SnapshotRestored
    from kraftcore.node.events import SnapshotTaken as SnapshotTaken
    from kraftcore.node.events import Stopped as Stopped
    from kraftcore.node.events import VotersChanged as VotersChanged
    from kraftcore.node.health import Health as Health
    from kraftcore.node.logins import LoginCounts as LoginCounts
    from kraftcore.node.status import ReplicaStatus as ReplicaStatus
    from kraftcore.node.status import Status as Status
    from kraftcore.node.subscription import Subscription as Subscription
    from kraftcore.node.waiting import AppendFuture as AppendFuture
    from kraftcore.observer import observe as observe
    from kraftcore.protocol.election_state import ReplicaKey as ReplicaKey
    from kraftcore.raft.quorum import Endpoint as Endpoint
    from kraftcore.raft.quorum import VersionRange as VersionRange
    from kraftcore.raft.quorum import Voter as Voter
    from kraftcore.raft.quorum import VoterSet as VoterSet
    from kraftcore.raft.roles import Role as Role
    from kraftcore.state_machine import SnapshotSink as SnapshotSink
    from kraftcore.state_machine import StateMachine as StateMachine
else:
    __all__ = names_of(_HOMES, "__version__", "errors", *errors.__all__)
    __dir__ = listing(__all__)
    __getattr__ = loader(__name__, _HOMES)
