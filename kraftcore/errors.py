"""Every error kraftcore raises on purpose, split by what the caller should do about it.

=========================  ===========================================================================================
class                      what to do
=========================  ===========================================================================================
``LocalError``             fix the call: an argument is out of range, or the object is in a state that forbids it
``WrongProcessError``      leave the call to the process that the error names, or open a node in this one
``RemoteProtocolError``    distrust the bytes or the peer that sent them; nothing of them was taken over
``RefusedError``           read Kafka's error name in it: the request does not fit the quorum's present state
``SequenceError``          take the number that the error names, or another client id; nothing was applied
``CorruptDataError``       bytes on disk are damaged: see the position; recover from a replica or a snapshot
``StorageError``           the disk or the file system failed; what was not acknowledged may be lost
``LockedError``            another process, which the error names, owns the directory: stop it, or use another one
``NotLeaderError``         ask the leader that the error names; nothing was appended
``OutcomeUnknownError``    it may be committed or lost: read back, or retry with the same client id and sequence
``ConflictError``          read anew and decide again: what a transaction relied on has changed; nothing was done
``LeaseLostError``         stop what the lock protected: the lease ended, another may hold it now
``OverloadedError``        wait for what is in flight, then try again; nothing was appended
``NodeStoppedError``       the node is gone: see its ``__cause__``; what was in flight has an unknown outcome
``SnapshotLaterError``     wait: the state machine cannot be summed up here, but will be where more is applied
``StateMachineError``      mend the state machine: the error names its method, the offset and what it raised
``TransportError``         give another address, or mend the TLS settings that the message names
``UnreachableError``       see that the named nodes run and can be reached, then call again
``AuthenticationError``    give other credentials, or mend the other side's: the message names the address and mechanism
``MissingDependencyError`` install the extra that the message names
``InvariantError``         a bug in kraftcore: stop, keep the data, report it
=========================  ===========================================================================================
"""

from __future__ import annotations

from kraftcore.namespace import listing

__all__ = [
    "AuthenticationError",
    "ClosedError",
    "ConflictError",
    "CorruptBatchError",
    "CorruptDataError",
    "DamagedLogError",
    "InvariantError",
    "KraftError",
    "LeaseLostError",
    "LocalError",
    "LockedError",
    "MetadataRecordError",
    "MissingDependencyError",
    "NodeStoppedError",
    "NotLeaderError",
    "OutcomeUnknownError",
    "OverloadedError",
    "OversizedBatchError",
    "RefusedError",
    "RemoteProtocolError",
    "SequenceError",
    "SnapshotLaterError",
    "StateMachineError",
    "StorageError",
    "TransportError",
    "UnreachableError",
    "UnsupportedVersionError",
    "WireError",
    "WrongProcessError",
]
__dir__ = listing(__all__)


class KraftError(Exception):
    """Base of all errors that kraftcore raises on purpose.

    They can be pickled, attributes included, as process pools send them.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # Not the base class's way alone: it makes them anew from their text, which is not what the classes take.
        return _unpickled, (type(self), super().__reduce__()[1], vars(self))


def _unpickled(kind: type[KraftError], args: tuple[object, ...], attributes: dict[str, object]) -> KraftError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class LocalError(KraftError, ValueError):
    """The caller asked for something impossible; nothing was changed."""


class ClosedError(LocalError):
    """The object was closed, or refuses work after an earlier failure that the message names."""


class WrongProcessError(LocalError):
    """An object is asked in another process than the one that it belongs to: in a child made by fork, or by pickling.

    Attributes:
        pid: the process that it belongs to.
    """

    def __init__(self, message: str, pid: int) -> None:
        self.pid = pid
        super().__init__(message)


class RemoteProtocolError(KraftError):
    """Bytes from a peer break the protocol; nothing of them was taken over."""


class WireError(RemoteProtocolError):
    """A frame or message body cannot be decoded.

    Attributes:
        message_name: the schema's name, for example ``FetchResponse``; None while only the frame is known.
        version: message version, or None.
        field: dotted path of the field, for example ``responses[0].partitions[2].records``, or None.
        position: byte position in the input at which decoding stopped.
    """

    def __init__(
        self,
        reason: str,
        *,
        message_name: str | None = None,
        version: int | None = None,
        field: str | None = None,
        position: int = 0,
    ) -> None:
        self.reason = reason
        self.message_name = message_name
        self.version = version
        self.field = field
        self.position = position
        where = message_name or "frame"
        if version is not None:
            where += f" v{version}"
        if field:
            where += f", field {field}"
        super().__init__(f"{where}: {reason} (byte {position})")


class UnsupportedVersionError(RemoteProtocolError):
    """A message version or feature level outside the supported range; the message names both."""


class MetadataRecordError(RemoteProtocolError):
    """A metadata record that does not fit the image: what it changes is not there, or a value means nothing.

    Attributes:
        record_name: the record's type, for example ``PartitionChangeRecord``.
        reason: why it cannot be applied.
    """

    def __init__(self, record: object, reason: str) -> None:
        self.record_name = record if isinstance(record, str) else type(record).__name__
        self.reason = reason
        super().__init__(f"{self.record_name} cannot be applied: {reason}")


class CorruptDataError(KraftError):
    """Bytes that were stored are not what was written.

    Attributes:
        position: byte position within the input or file, or -1 when it has no single place.
        path: the file, or None when the bytes came from memory.
    """

    def __init__(self, reason: str, *, position: int = -1, path: str | None = None) -> None:
        self.reason = reason
        self.position = position
        self.path = path
        place = "" if path is None else f"{path}: "
        at = "" if position < 0 else f" (byte {position})"
        super().__init__(f"{place}{reason}{at}")


class DamagedLogError(CorruptDataError):
    """Records of a log that had been stored durably are gone or cannot be read; nothing was cut.

    Attributes:
        offset: of the first of them.
        durable_offset: everything below it had been stored durably, as far as the folder says; None: it does not.
    """

    def __init__(self, reason: str, *, position: int, path: str, offset: int, durable_offset: int | None) -> None:
        super().__init__(reason, position=position, path=path)
        self.offset = offset
        self.durable_offset = durable_offset


class CorruptBatchError(CorruptDataError, RemoteProtocolError):
    """Bytes that should be a record batch are not one, or its checksum differs.

    Attributes:
        found: the offending value (length, count, checksum, ...), or None.
        wanted: the value or limit it was held against, or None.
    """

    def __init__(
        self,
        reason: str,
        *,
        position: int = -1,
        path: str | None = None,
        found: int | None = None,
        wanted: int | None = None,
    ) -> None:
        super().__init__(reason, position=position, path=path)
        self.found = found
        self.wanted = wanted


class OversizedBatchError(CorruptBatchError):
    """The records of a compressed batch come to more bytes than the caller allows; nothing else is known of them."""


class StorageError(KraftError, OSError):
    """The disk failed, or is full. Built like OSError: ``StorageError(errno, text, path)``."""


class LockedError(KraftError):
    """Another process owns the directory, or another object of this one.

    Attributes:
        pid: that process; None where the system does not tell.
    """

    def __init__(self, message: str, pid: int | None = None) -> None:
        self.pid = pid
        super().__init__(message)


class NotLeaderError(KraftError):
    """Only the leader can do this; nothing was done.

    Attributes:
        leader_id: the leader as far as this node knows, or None.
        leader_endpoint: ``NAME://host:port`` where it listens, or None.
    """

    def __init__(self, leader_id: int | None = None, leader_endpoint: str | None = None, reason: str = "") -> None:
        self.leader_id = leader_id
        self.leader_endpoint = leader_endpoint
        who = "no leader is known now" if leader_id is None else f"node {leader_id} leads"
        where = f" at {leader_endpoint}" if leader_endpoint else ""
        super().__init__(f"this node does not lead: {who}{where}{f' ({reason})' if reason else ''}")


class OutcomeUnknownError(KraftError):
    """A proposal, or a change of the quorum, was appended, and leadership or time ended before it was committed."""


class RefusedError(KraftError):
    """The quorum refused a request for a reason of its own.

    Attributes:
        error: Kafka's name of the error, for example ``DUPLICATE_VOTER``.
        message: the text that came with it; empty if there was none.
    """

    def __init__(self, error: str, message: str) -> None:
        self.error = error
        self.message = message
        super().__init__(f"{error}: {message}" if message else error)


class SequenceError(RefusedError):
    """A numbered proposal is neither its client's next one nor a retry of its last one; nothing was applied.

    The names are those of KIP-98: DUPLICATE_SEQUENCE_NUMBER: the number was used before, for something else;
    OUT_OF_ORDER_SEQUENCE_NUMBER: numbers are left out; INVALID_PRODUCER_EPOCH: the client goes on in a later epoch. The
    message says what is known of the client.

    Attributes:
        next_sequence: what the client's next proposal begins with; None where only the message tells it.
    """

    def __init__(self, error: str, message: str, next_sequence: int | None = None) -> None:
        self.next_sequence = next_sequence
        super().__init__(error, message)


class ConflictError(KraftError):
    """A condition of a transaction does not hold; nothing was changed."""


class LeaseLostError(KraftError):
    """A lock's lease ended before its holder released it, or it could not be renewed in time."""


class OverloadedError(KraftError):
    """Too much is in flight; nothing was appended."""


class NodeStoppedError(KraftError):
    """The node stopped, by request or because of its ``__cause__``."""


class SnapshotLaterError(KraftError):
    """A state machine's ``snapshot`` raises it where its state cannot be summed up, for something is half done.

    Nothing is wrong: it is asked again when more is applied.
    """


class StateMachineError(KraftError):
    """A method of the application's state machine raised (``__cause__``), or returned what it must not.

    Attributes:
        method: ``apply``, ``snapshot`` or ``restore``.
        offset: of the batch that was applied; else everything below it is in the snapshot.
    """

    def __init__(self, machine: object, method: str, offset: int, what: str) -> None:
        self.method = method
        self.offset = offset
        super().__init__(f"{type(machine).__name__}.{method} {what}")


class TransportError(KraftError, OSError):
    """A transport cannot listen, or was set up wrongly; the message names the address or setting."""


class UnreachableError(KraftError):
    """No node answered in time.

    Attributes:
        last_failure: what went wrong at the last try, with the address.
        outcome_unknown: the request was sent at least once, so it may have been carried out.
        findings: which nodes answer, what the cluster lacks, and what to do, a line each, for people; empty: nobody
            looked.
    """

    def __init__(
        self, message: str, *, last_failure: str, outcome_unknown: bool, findings: tuple[str, ...] = ()
    ) -> None:
        self.last_failure = last_failure
        self.outcome_unknown = outcome_unknown
        self.findings = findings
        super().__init__(message)


class AuthenticationError(KraftError):
    """Somebody did not prove who they are.

    Args:
        text: what the other side may read: nothing that tells a wrong password from an unknown user. Empty: the words
            that Kafka has for any wrong credentials.
        reason: for people on this side; None: the same.

    Attributes:
        text: as given.
    """

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text if reason is None else reason)
        self.text = text


class MissingDependencyError(KraftError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class InvariantError(KraftError):
    """A rule that must always hold does not: a bug in kraftcore, never the caller's fault."""
