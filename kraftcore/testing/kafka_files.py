"""What the nodes of a Kafka for tests are started with: addresses, properties files, formatted directories."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from kraftcore.config.addresses import parse_endpoint
from kraftcore.config.errors import ConfigError
from kraftcore.config.security import SecurityProtocol
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError, LocalError, StorageError, TransportError
from kraftcore.ownership import Owned, belongs_here, close_socket_in_children, no_forks
from kraftcore.ports.transport import Address
from kraftcore.storage.format import InitialVoter, format_directory, plan_format
from kraftcore.storage.meta_properties import META_PROPERTIES, load_folders
from kraftcore.storage.properties import format_properties, parse_properties, read_properties
from kraftcore.testing.client_access import ClientAccess

CLIENTS = "CLIENT"
"""The listener that clients are served on."""
QUICK = {
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "kraftcore.fast.fencing.ms": "100",
    "offsets.topic.num.partitions": "5",
    "replica.fetch.backoff.ms": "50",
    "replica.fetch.wait.max.ms": "200",
}
"""Properties in which nodes differ from Kafka's defaults: what tests wait for is shorter."""
SET_HERE = frozenset(
    {
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "process.roles",
    }
)
"""Properties that nobody else sets."""
_BETWEEN, _CONTROLLERS = "BROKER", "CONTROLLER"
_HOST = "127.0.0.1"
_BROKER_PORT, _CONTROLLER_PORT = 9092, 9093  # in memory
_FIRST_CONTROLLER = 101
_FILE = re.compile(r"((broker|controller)-([0-9]{1,3}))\.properties", re.ASCII)


class Place(NamedTuple):
    """A place for a node.

    Attributes:
        node_id: its ``node.id``.
        name: of its directory, of its properties file, and of its host in memory.
        is_broker: or it is a controller.
    """

    node_id: int
    name: str
    is_broker: bool


class KafkaFiles(Owned):
    """The nodes of a cluster as files; ``with`` gives back at the end what it took.

    Broker ids are 1 to N, controllers' ids begin at 101. While the block runs the system gives the nodes' ports to
    nobody who asks for any; who names that of a node that does not listen, with SO_REUSEADDR, may get it.

    Args:
        brokers: how many, 1 to 100.
        controllers: how many, >= 1.
        directory: where all is kept; it may hold an earlier cluster of the same size. None: in a temporary folder that
            goes with the block.
        properties: further settings of all nodes, by Kafka's names; none of ``SET_HERE``.
        node_properties: further settings of single nodes, by id; they win.
        first_port: where broker 1 listens for clients, the others on those above; 0: any that are free.
        access: how clients come in.
        by_tcp: nodes talk by TCP, brokers on the listener for clients unless clients log in or come by TLS, and may be
            processes of their own. Controllers keep the ports that they had first: they find each other by what the
            metadata log says. Else nodes talk in memory, where a name is a host.

    Attributes:
        directory: where the files are, an absolute path; empty before ``prepare``, if they are temporary.
        places: one a node, by id, brokers first.

    Raises:
        LocalError: there cannot be so many, there is no such node, ``first_port`` leaves no room for them, or a
            property is one that is set here.
    """

    def __init__(
        self,
        brokers: int,
        controllers: int,
        *,
        directory: str | os.PathLike[str] | None,
        properties: Mapping[str, object],
        node_properties: Mapping[int, Mapping[str, object]],
        first_port: int,
        access: ClientAccess,
        by_tcp: bool,
    ) -> None:
        if brokers < 1 or controllers < 1:
            raise LocalError(f"a cluster of {brokers} brokers and {controllers} controllers: use at least 1 of each")
        if brokers >= _FIRST_CONTROLLER:
            raise LocalError(f"a cluster of {brokers} brokers: use at most {_FIRST_CONTROLLER - 1}")
        if first_port and not 0 < first_port <= 65536 - brokers:
            raise LocalError(f"first_port {first_port} leaves no room for {brokers} brokers up to port 65535")
        self._is_temporary = directory is None
        self.directory = "" if directory is None else os.path.abspath(directory)
        self._first_port = first_port
        self._access = access
        self._by_tcp = by_tcp
        self._holders: dict[int, socket.socket] = {}
        self._between: dict[int, socket.socket] = {}  # of brokers that have a listener of their own for other nodes
        of_brokers, of_controllers = range(1, brokers + 1), range(_FIRST_CONTROLLER, _FIRST_CONTROLLER + controllers)
        self.places = {
            **{each: Place(each, f"broker-{each}", True) for each in of_brokers},
            **{each: Place(each, f"controller-{each}", False) for each in of_controllers},
        }
        self._given = _texts(properties)
        self._given_to = {self.place(node_id).node_id: _texts(told) for node_id, told in node_properties.items()}
        for told in (self._given, *self._given_to.values()):
            for key in sorted(SET_HERE & set(told)):
                raise LocalError(f"{key} cannot be given: the cluster sets it itself, for each node")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not belongs_here(self):
            return
        self.close_ports()
        if self._is_temporary and self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def close_ports(self) -> None:
        """Let go of the ports, in this process."""
        for holder in (*self._holders.values(), *self._between.values()):
            holder.close()

    def place(self, node_id: int) -> Place:
        """A node's place.

        Raises:
            LocalError: there is no such node.
        """
        try:
            return self.places[node_id]
        except KeyError:
            raise LocalError(f"there is no node {node_id!r}: there are {', '.join(map(str, self.places))}") from None

    def folder(self, node_id: int) -> str:
        """A node's directory."""
        return os.path.join(self.directory, self.places[node_id].name)

    def file(self, node_id: int) -> str:
        """A node's properties file."""
        return f"{self.folder(node_id)}.properties"

    def client_address(self, broker_id: int) -> str:
        """``host:port`` where a broker listens for clients.

        Raises:
            LocalError: it is no broker.
            TransportError: ``first_port`` leads to a port that somebody else has.
        """
        if not self.place(broker_id).is_broker:
            raise LocalError(f"node {broker_id} is a controller: clients connect to brokers")
        return f"{_HOST}:{self._broker_port(broker_id)}"

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: all brokers."""
        return ",".join(self.client_address(each.node_id) for each in self.places.values() if each.is_broker)

    @property
    def bootstrap_controllers(self) -> tuple[str, ...]:
        """Where controllers listen; by TCP, once all is prepared."""
        return tuple(str(self._controller_address(each)) for each in self._controllers)

    @property
    def _controllers(self) -> list[Place]:
        return [place for place in self.places.values() if not place.is_broker]

    def prepare(self) -> None:
        """Write the properties, and format what is not formatted.

        Raises:
            LocalError: the directory holds a cluster whose nodes talk in the other way, or are others.
            TransportError: a port that it has to be is taken.
            StorageError: something cannot be written.
        """
        try:
            if self._is_temporary:
                self.directory = tempfile.mkdtemp(prefix="kraftcore-kafka-")
            if self._is_formatted():
                self._check_size()
                self._check_users()
            self._access.prepare(self.directory)
            self._hold_ports()
            self._write_properties()
        except KraftError:
            raise
        except OSError as error:
            raise StorageError(error.errno, error.strerror, error.filename or self.directory) from error
        files = OsFiles()
        folders = load_folders(files, [self.folder(node_id) for node_id in self.places])
        found = {each.cluster_id for each in folders.properties.values() if each.cluster_id is not None}
        cluster_id = next(iter(found), None) or str(Uuid.random())
        addresses = [(each.node_id, self._controller_address(each)) for each in self._controllers]
        voters = [InitialVoter(node_id, to.host, to.port, Uuid.random()) for node_id, to in addresses]
        credentials = self._access.credentials if folders.unformatted else []
        for place in self.places.values():
            folder = self.folder(place.node_id)
            if folder in folders.unformatted:
                first = None if place.is_broker else voters
                plan = plan_format(node_id=place.node_id, cluster_id=cluster_id, voters=first, scram=credentials)
                format_directory(files, folder, plan)

    @property
    def given_nodes(self) -> list[int]:
        """Ids of the nodes that somebody gave properties for, brokers first."""
        return list(self.places) if self._given else [each for each in self.places if each in self._given_to]

    @contextmanager
    def naming_properties(self) -> Iterator[None]:
        """While properties are read: what is wrong with a given one is told of it, not of the file that it is in.

        Raises:
            ConfigError: as whoever reads raised it, or without the place.
        """
        try:
            yield
        except ConfigError as error:
            key = self._given_at(error.where or "")
            if key is None:
                raise
            text = error.reason if key in error.reason else f"{key}: {error.reason}"
            raise ConfigError(text, error.settings) from None

    def _given_at(self, where: str) -> str | None:
        """The given property that stands in a line of a file; None: none does."""
        path, _, line = where.rpartition(":")
        for node_id in self.places:
            if path == self.file(node_id):
                found = {str(number): key for number, key, _ in read_properties(OsFiles().read_file(path), path=path)}
                key = found.get(line)
                return key if key in {**self._given, **self._given_to.get(node_id, {})} else None
        return None

    def _earlier(self) -> list[re.Match[str]]:
        """The properties files that are there."""
        names = sorted(os.listdir(self.directory)) if os.path.isdir(self.directory) else []
        return [match for match in map(_FILE.fullmatch, names) if match]

    def _is_formatted(self) -> bool:
        """Whether a cluster is there that was formatted to its end: a first start may have been broken off."""
        controllers = [match for match in self._earlier() if match[2] == "controller"]
        last = max(controllers, key=lambda each: int(each[3]), default=None)
        return last is not None and os.path.exists(os.path.join(self.directory, last[1], META_PROPERTIES))

    def _check_size(self) -> None:
        """What was made with other nodes does not go on: voters and replicas are what the metadata log says."""
        found = self._earlier()
        if {match[1] for match in found} != {place.name for place in self.places.values()}:
            old = Counter(match[2] for match in found)
            new = Counter("broker" if place.is_broker else "controller" for place in self.places.values())
            raise LocalError(
                f"{self.directory} holds a cluster of {old['broker']} brokers and {old['controller']} controllers, not "
                f"of {new['broker']} and {new['controller']}: go on with as many as there are, or take another "
                f"directory"
            )

    def _check_users(self) -> None:
        """What was made with other users does not go on: their credentials are what the metadata log says."""
        key = self._access.users_key
        if self._earlier_properties(self.places[1]).get(key) != self._access.properties.get(key):
            raise LocalError(
                f"{self.directory} was made with other users, or other passwords: go on with the same ones, or take "
                f"another directory"
            )

    def _write_properties(self) -> None:
        texts = {node_id: format_properties(self._properties(node_id)) for node_id in self.places}
        for node_id, text in texts.items():
            os.makedirs(self.folder(node_id), exist_ok=True)
            with open(self.file(node_id), "wb", opener=partial(os.open, mode=0o600)) as target:  # it may hold passwords
                target.write(text)

    def _properties(self, node_id: int) -> dict[str, str]:
        place = self.places[node_id]
        size = len(self.places) - len(self._controllers)
        found = {
            "node.id": str(node_id),
            "process.roles": "broker" if place.is_broker else "controller",
            "controller.quorum.bootstrap.servers": ",".join(self.bootstrap_controllers),
            "controller.listener.names": _CONTROLLERS,
            "listener.security.protocol.map": (
                f"{_CONTROLLERS}:PLAINTEXT,{_BETWEEN}:PLAINTEXT,{CLIENTS}:{self._access.protocol.name}"
            ),
            "log.dirs": self.folder(node_id),
            "default.replication.factor": str(min(3, size)),
            "offsets.topic.replication.factor": str(min(3, size)),
            **QUICK,
        }
        if not place.is_broker:
            found["listeners"] = f"{_CONTROLLERS}://{self._controller_address(place)}"
        else:
            found["listeners"] = f"{CLIENTS}://{self.client_address(node_id)}"
            found["inter.broker.listener.name"] = CLIENTS
            if self._has_between:
                found["listeners"] = f"{_BETWEEN}://{self._address_between(place)},{found['listeners']}"
                found["inter.broker.listener.name"] = _BETWEEN
            found.update(self._access.properties)
        return {**found, **self._given, **self._given_to.get(node_id, {})}

    # --- addresses ----------------------------------------------------------------------------------------------------

    @property
    def _has_between(self) -> bool:
        """Whether nodes reach brokers on another listener than clients."""
        return not self._by_tcp or self._access.protocol is not SecurityProtocol.PLAINTEXT

    def _address_between(self, place: Place) -> Address:
        if not self._by_tcp:
            return Address(place.name, _BROKER_PORT)
        return Address(_HOST, self._between[place.node_id].getsockname()[1])

    def _controller_address(self, place: Place) -> Address:
        if not self._by_tcp:
            return Address(place.name, _CONTROLLER_PORT)
        return Address(_HOST, self._port(place.node_id))

    def _broker_port(self, node_id: int) -> int:
        if node_id not in self._holders:
            self._hold(node_id, self._wanted_port(self.places[node_id]))
        return self._port(node_id)

    def _port(self, node_id: int) -> int:
        port: int = self._holders[node_id].getsockname()[1]
        return port

    def _hold_ports(self) -> None:
        for place in self._controllers:
            self._check_way(place)
        wanted = {
            each.node_id: self._wanted_port(each) for each in self.places.values() if each.is_broker or self._by_tcp
        }
        for node_id in sorted(wanted, key=lambda each: wanted[each] == 0):  # a free one may be what another has to get
            if node_id not in self._holders:
                self._hold(node_id, wanted[node_id])
        if self._by_tcp and self._has_between:
            for place in self.places.values():
                if place.is_broker:
                    self._hold(place.node_id, 0, self._between)

    def _hold(self, node_id: int, port: int, holders: dict[int, socket.socket] | None = None) -> None:
        """Take a port for a node, the same as long as the cluster lives; 0: any."""
        # Bound and not listened on: the system gives the port to nobody who asks for any, and the node can bind it as
        # well, as can whoever else sets SO_REUSEADDR. A socket that listened would accept what a dead node's refuses.
        with no_forks:
            holder = close_socket_in_children(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((_HOST, port))
        except OSError as error:
            holder.close()
            raise TransportError(f"node {node_id} cannot listen on {_HOST}:{port}: {error}") from error
        (self._holders if holders is None else holders)[node_id] = holder

    def _wanted_port(self, place: Place) -> int:
        """Where a node has to listen; 0: anywhere."""
        if place.is_broker:
            return self._first_port + place.node_id - 1 if self._first_port else 0
        earlier = self._earlier_address(place)
        return 0 if earlier is None else earlier.port

    def _check_way(self, place: Place) -> None:
        """The metadata log has a controller's address: it cannot go on where others would not look for it."""
        earlier = self._earlier_address(place)
        if earlier is not None and (earlier.host == _HOST) is not self._by_tcp:
            raise LocalError(
                f"{self.directory} was made {'without' if self._by_tcp else 'with'} kraftcore up --processes, and "
                f"controller {place.node_id} is known to listen at {earlier}: go on in the same way, or take another "
                f"directory"
            )

    def _earlier_address(self, place: Place) -> Address | None:
        """Where a controller listened before, by its properties file; None: there was none."""
        listener = self._earlier_properties(place).get("listeners")
        if listener is None:
            return None
        found = parse_endpoint(listener)
        return Address(found.host, found.port)

    def _earlier_properties(self, place: Place) -> dict[str, str]:
        """What a node's properties file says; nothing if there is none."""
        files, path = OsFiles(), self.file(place.node_id)
        return parse_properties(files.read_file(path), path=path) if files.exists(path) else {}


def _texts(properties: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in properties.items()}
