"""``quorum-state``: the epoch, leader and vote that a node must never forget (KIP-595, KIP-853).

One line of JSON. Version 0 while kraft.version is 0, version 1 from kraft.version 1 on; picked at each write from the
last kraft.version in the log, so a file may lag behind.
"""

from __future__ import annotations

import errno
import json

from kraftcore.core.disk.files import Files
from kraftcore.core.log.recovery import QUORUM_STATE as QUORUM_STATE
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.protocol.election_state import ElectionState, ReplicaKey

_NONE_ID = -1  # no leader known, no vote given

_BYTES_MAX = 1 << 20  # an intact file has a few hundred bytes


def decode_election_state(data: bytes, *, path: str | None = None) -> ElectionState:
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
    epoch, leader_id, voted_id = (reader.integer(name, 32) for name in ("leaderEpoch", "leaderId", "votedId"))
    directory_id = ZERO_UUID
    voter_ids: tuple[int, ...] = ()
    if version == 0:
        reader.text("clusterId")
        reader.integer("appliedOffset", 64)
        voter_ids = reader.voters()
    else:
        try:
            directory_id = Uuid.from_string(reader.text("votedDirectoryId"))
        except LocalError as error:
            raise CorruptDataError(f"votedDirectoryId: {error}", path=path) from None
    try:
        return ElectionState(
            epoch,
            None if leader_id == _NONE_ID else leader_id,
            None if voted_id == _NONE_ID else ReplicaKey(voted_id, directory_id),
            version,
            voter_ids,
        )
    except LocalError as error:
        raise CorruptDataError(str(error), path=path) from None


def encode_election_state(state: ElectionState) -> bytes:
    """The file's content, byte for byte as Kafka writes it.

    Version 0 leaves out the directory id of the vote.

    Raises:
        LocalError: kraft.version above 1.
    """
    leader_id = _NONE_ID if state.leader_id is None else state.leader_id
    voted = ReplicaKey(_NONE_ID) if state.voted_key is None else state.voted_key
    common = {"leaderId": leader_id, "leaderEpoch": state.epoch, "votedId": voted.id}
    fields: dict[str, object]
    if state.kraft_version == 0:
        voters = [{"voterId": voter_id} for voter_id in state.voter_ids]
        fields = {"clusterId": "", **common, "appliedOffset": 0, "currentVoters": voters}
    elif state.kraft_version == 1:
        fields = {**common, "votedDirectoryId": str(voted.directory_id)}
    else:
        raise LocalError(f"no quorum-state version is known for kraft.version {state.kraft_version}, only for 0 and 1")
    return json.dumps({**fields, "data_version": state.kraft_version}, separators=(",", ":")).encode()


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
    """The file of one node. Not cached: ``read`` returns what is on disk.

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
            CorruptDataError: see `decode_election_state`. A node must not start then: it may have voted.
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
        return decode_election_state(data, path=self.path)

    def write(self, state: ElectionState) -> None:
        """Replace the file; durable when this returns.

        Raises:
            LocalError: kraft.version above 1.
            StorageError: the old or the new state is on disk; do not act on the new one.
        """
        self._files.replace_file(self.path, encode_election_state(state))
