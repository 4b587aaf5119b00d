"""``quorum-state``: the epoch, leader and vote that a node must never forget (KIP-595, KIP-853).

One line of JSON. Version 0 while kraft.version is 0, version 1 from kraft.version 1 on; picked at each write from the
last kraft.version in the log, so a file may lag behind.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass

from kraftcore.core.files import Files
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import CorruptDataError, LocalError, StorageError

QUORUM_STATE = "quorum-state"
NONE_ID = -1  # no leader known, no vote given

_BYTES_MAX = 1 << 20  # a sane file has a few hundred bytes


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What a node remembers of elections.

    Attributes:
        leader_epoch: >= 0.
        leader_id: -1 while unknown.
        voted_id: the candidate that got this node's vote in ``leader_epoch``, -1 if none.
        voted_directory_id: of that candidate; the zero uuid if unknown. Not stored in version 0.
        voters: known voter ids; only stored in version 0.

    Raises:
        LocalError: a number out of range.
    """

    leader_epoch: int = 0
    leader_id: int = NONE_ID
    voted_id: int = NONE_ID
    voted_directory_id: Uuid = ZERO_UUID
    voters: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.leader_epoch < 1 << 31:
            raise LocalError(f"leader_epoch {self.leader_epoch} is not in 0 to 2147483647")
        for name, value in (("leader_id", self.leader_id), ("voted_id", self.voted_id)):
            if not NONE_ID <= value < 1 << 31:
                raise LocalError(f"{name} {value} is not in -1 to 2147483647")
        for voter in self.voters:
            if not 0 <= voter < 1 << 31:
                raise LocalError(f"voter id {voter} is not in 0 to 2147483647")

    @classmethod
    def decode(cls, data: bytes, *, path: str | None = None) -> ElectionState:
        """Read the file's first line. Unknown keys are ignored.

        Raises:
            CorruptDataError: not JSON, another ``data_version``, a missing key, or a value of the wrong type or range.
        """
        try:
            fields = json.loads(data.split(b"\n", 1)[0].decode())
        except (ValueError, RecursionError) as error:
            raise CorruptDataError(f"not a line of JSON: {error}", path=path) from None
        if not isinstance(fields, dict):
            raise CorruptDataError(f"holds a JSON {type(fields).__name__}, not an object", path=path)
        reader = _Fields(fields, path)
        version = reader.integer("data_version", 32)
        if version not in (0, 1):
            raise CorruptDataError(f"data_version {version} is unknown: kraftcore knows 0 and 1", path=path)
        epoch, leader, voted = (reader.integer(name, 32) for name in ("leaderEpoch", "leaderId", "votedId"))
        directory_id = ZERO_UUID
        voters: tuple[int, ...] = ()
        if version == 0:
            reader.text("clusterId")
            reader.integer("appliedOffset", 64)
            voters = reader.voters()
        else:
            try:
                directory_id = Uuid.from_string(reader.text("votedDirectoryId"))
            except LocalError as error:
                raise CorruptDataError(f"votedDirectoryId: {error}", path=path) from None
        try:
            return cls(epoch, leader, voted, directory_id, voters)
        except LocalError as error:
            raise CorruptDataError(str(error), path=path) from None

    def encode(self, version: int) -> bytes:
        """The file's content, byte for byte as Kafka writes it.

        Args:
            version: 0 (without the voted directory id) or 1 (without the voters).

        Raises:
            LocalError: another version.
        """
        common = {"leaderId": self.leader_id, "leaderEpoch": self.leader_epoch, "votedId": self.voted_id}
        fields: dict[str, object]
        if version == 0:
            voters = [{"voterId": voter} for voter in self.voters]
            fields = {"clusterId": "", **common, "appliedOffset": 0, "currentVoters": voters}
        elif version == 1:
            fields = {**common, "votedDirectoryId": str(self.voted_directory_id)}
        else:
            raise LocalError(f"quorum-state version {version} is unknown: kraftcore knows 0 and 1")
        return json.dumps({**fields, "data_version": version}, separators=(",", ":")).encode()


class _Fields:
    """Typed access to the JSON object."""

    def __init__(self, fields: dict[str, object], path: str | None) -> None:
        self.fields = fields
        self.path = path

    def require(self, name: str) -> object:
        if name not in self.fields:
            raise CorruptDataError(f"the key {name} is missing", path=self.path)
        return self.fields[name]

    def integer(self, name: str, bits: int) -> int:
        return self.check_integer(self.require(name), name, bits)

    def check_integer(self, value: object, name: str, bits: int) -> int:
        if type(value) is not int or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise CorruptDataError(f"{name} is {value!r:.60}, not a {bits}-bit integer", path=self.path)
        return value

    def text(self, name: str) -> str:
        value = self.require(name)
        if not isinstance(value, str):
            raise CorruptDataError(f"{name} is {value!r:.60}, not a string", path=self.path)
        return value

    def voters(self) -> tuple[int, ...]:
        value = self.require("currentVoters")
        if value is None:  # nullable in the schema
            return ()
        if not isinstance(value, list):
            raise CorruptDataError(f"currentVoters is {value!r:.60}, not an array", path=self.path)
        ids = []
        for voter in value:
            if not isinstance(voter, dict) or "voterId" not in voter:
                raise CorruptDataError(f"currentVoters holds {voter!r:.60}, want a voterId", path=self.path)
            ids.append(self.check_integer(voter["voterId"], "voterId", 32))
        return tuple(ids)


class QuorumStateFile:
    """The file of one node. Not cached: what ``read`` returns is on disk.

    Args:
        files: where it is.
        path: of the file, normally ``quorum-state`` in the metadata partition's folder.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def read(self) -> ElectionState | None:
        """The stored state; None if there is no file yet, which means epoch 0, no leader, no vote.

        Raises:
            CorruptDataError: see ``ElectionState.decode``. A node must not start then: it may have voted.
            StorageError: the file cannot be read.
        """
        try:
            size = self._files.stat(self.path).size
            if size > _BYTES_MAX:
                raise CorruptDataError(f"{size} bytes are too many for a quorum-state", path=self.path)
            data = self._files.read_file(self.path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return ElectionState.decode(data, path=self.path)

    def write(self, state: ElectionState, version: int) -> None:
        """Replace the file; durable when this returns.

        Args:
            state: what to remember.
            version: 0 or 1, from the last kraft.version in the log.

        Raises:
            LocalError: another version.
            StorageError: the old or the new state is on disk; do not act on the new one.
        """
        self._files.replace_file(self.path, state.encode(version))
