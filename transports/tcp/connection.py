"""One TCP connection, either end: frames in, frames out.

``write`` hands the kernel as much as it takes at once; the rest is sent by a writer task, which ends when nothing is
left. One task a connection reads, or that of ``Readers`` on its behalf, and hands out all frames that have arrived
before it waits again; if there was more than one, the responses written meanwhile are sent together afterwards.

TLS goes through memory buffers (``TlsPipe``), so that both hold for it, too.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from struct import Struct

import trio
from trio.lowlevel import notify_closing, wait_readable, wait_writable

from kraftcore.core.wire.frame import FrameInParts
from kraftcore.errors import LocalError
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.nursery import uninterrupted
from kraftcore.ports.transport import Address, Parts
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp.limits import Limits
from kraftcore.transports.tcp.readers import READS_IN_A_ROW, Readers
from kraftcore.transports.tcp.strangers import stranger_to_frames, stranger_to_tls
from kraftcore.transports.tcp.timer import Timer
from kraftcore.transports.tcp.tls import NotTlsError, TlsPipe

Buffers = list[bytes | bytearray | memoryview]

_SIZE = Struct(">i")
_pack_size = _SIZE.pack
_unpack_size = _SIZE.unpack_from

_BUFFER_BYTES = 64 * 1024  # read at once; longer frames are gathered beside the buffer
_FIRST_BUFFER_BYTES = 4096  # while an accepted connection has sent no more
_JOIN_BYTES = 16 * 1024  # up to here one copy is cheaper than gathering
_CORK_BYTES = 64 * 1024
_GATHER = 256  # buffers in one system call (Linux allows 1024)

_BROKEN_BY_PEER = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ENOTCONN}


def failure_of(error: OSError) -> Failure:
    """The failure of waiting requests after an error on an established connection."""
    if error.errno in _BROKEN_BY_PEER:
        return Failure.RESET
    return Failure.TIMED_OUT if error.errno == errno.ETIMEDOUT else Failure.OTHER


@dataclass(slots=True)
class Shared:
    """The state that all connections of one transport share.

    Attributes:
        readers: waits for accepted connections; None: each waits by itself.
        connections: all open connections, oldest first.
        partial: by connection, bytes of its unfinished long frame, in the order in which the frames began.
        partial_bytes: sum of ``partial``.
        unsent: by accepted connection, bytes of responses that were not taken yet; first the connection that has taken
            nothing for the longest time.
        unsent_bytes: sum of ``unsent``.
        errors: why the last connection to an address came to nothing; addresses with one that stands are not in it.
    """

    limits: Limits
    timer: Timer
    complain: Complaints
    nursery: trio.Nursery
    readers: Readers | None
    connections: dict[Connection, None]
    partial: dict[Connection, int]
    unsent: dict[Connection, int]
    partial_bytes: int = 0
    unsent_bytes: int = 0
    errors: dict[Address, str] = field(default_factory=dict)


class Connection:
    """One end of a TCP connection. Subclasses implement ``on_frame`` and ``on_broken``.

    Attributes:
        is_open: False as soon as the connection is broken, by either side.
        peer: the other side's address, for people.
        host: the other side's address without the port, for a process that connected to this one.
        arrivals: how often something was read.
    """

    min_frame_bytes = 8
    is_server = False

    def __init__(self, shared: Shared, sock: socket.socket, peer: str, tls: TlsPipe | None) -> None:
        self.is_open = True
        self.peer = self.host = peer
        self.arrivals = 0
        shared.connections[self] = None
        self._shared = shared
        self._sock = sock
        self._fd = sock.fileno()
        self._tls = tls
        self._max_frame_bytes = self._max_taken_bytes = shared.limits.max_frame_bytes
        self._buffer = memoryview(bytearray(_FIRST_BUFFER_BYTES if self.is_server else _BUFFER_BYTES))
        self._end = 0  # bytes in the buffer
        self._long: FrameInParts | None = None  # the frame under way, if the buffer is too small for it
        self._is_established = False
        self._outbox: deque[memoryview] = deque()
        self._outbox_bytes = 0
        self._is_given_up = False
        self._ending: tuple[Failure, str, str] | None = None  # break it with this when the outbox is empty
        self._cork: Buffers | None = None
        self._cork_bytes = 0
        self._frame_began = inf
        self._frame_due = inf
        self._write_due = inf
        self._idle_due = 0.0
        self._arrivals_swept = -1

    # ---- for subclasses

    def on_frame(self, frame: bytes) -> None:
        """Take a whole frame."""
        raise NotImplementedError

    def on_broken(self, failure: Failure, why: str) -> None:
        """Called once. The socket is closed already; ``why`` is for people."""
        raise NotImplementedError

    def must_pause(self) -> bool:
        """Whether to stop reading until ``resume`` is called."""
        return False

    async def paused(self) -> None:
        """Wait until reading may go on."""

    def on_drained(self) -> None:
        """Note that the other side took queued bytes."""

    def is_busy(self) -> bool:
        """Whether a request waits for its response, so that the connection is not idle though nothing comes."""
        return False

    # ---- reading

    async def read(self) -> None:
        """Read until the connection is broken."""
        fd, take = self._fd, self._take
        readers = self._shared.readers if self.is_server else None
        more = self._tls is not None  # data may have come with the end of the handshake
        while self.is_open:
            self._go_on()  # with bytes left when reading had to pause; the pause may be over before this task runs
            if not self.is_open:
                return  # type: ignore[unreachable]
            if self.must_pause():
                await self._pause_reading()
                continue
            try:
                if more:  # bytes in our own buffer do not make the socket readable
                    await trio.lowlevel.checkpoint()
                elif readers is not None and readers.pay:
                    more = await readers.wait(fd, take, self.must_pause)
                    continue
                else:
                    await wait_readable(fd)
            except trio.ClosedResourceError:
                return
            for _ in range(READS_IN_A_ROW):
                more = self.is_open and take()
                if not more or self.must_pause():
                    break

    def _go_on(self) -> None:
        """Hand out the buffered frames, unless reading is to pause."""
        if self._long is not None:
            self._hand_out_long(self._long)
        elif self._end:
            self._hand_out()

    async def _pause_reading(self) -> None:
        """Wait until reading may go on. The deadline of a frame under way is extended by that time."""
        timer = self._shared.timer
        began, due, self._frame_due = timer.now(), self._frame_due, inf
        await self.paused()
        pause_s = timer.now() - began
        self._frame_began += pause_s
        self._frame_due = due + pause_s
        timer.by(self._frame_due)

    async def shake_hands(self) -> None:
        """Make the TLS handshake before ``read``, if there is TLS."""
        self.advance_handshake()
        while self.is_open and not self._is_established:
            try:
                await wait_readable(self._fd)
            except trio.ClosedResourceError:
                return
            self.advance_handshake()

    def advance_handshake(self) -> None:
        """Go on with the handshake as far as the received bytes allow."""
        if self._is_established:
            return
        tls = self._tls
        if tls is not None:
            try:
                with suppress(BlockingIOError, InterruptedError):
                    tls.feed(self._sock)
                done = tls.shake_hands()
                self._push_tls(tls)
            except OSError as error:  # ssl.SSLError is one
                self._push_tls(tls)  # the alert
                found = stranger_to_tls(error.first) if isinstance(error, NotTlsError) else None
                why = f"TLS handshake failed: {found or error}"
                self.break_(Failure.OTHER, why, self._kind_of(found, "TLS"))
                return
            if not done:
                return
        self._is_established = True
        self.on_established()

    def on_established(self) -> None:
        """Note that frames may be written."""

    def _take(self) -> bool:
        """Read once and hand out every whole frame. Returns whether more may have arrived."""
        end, long = self._end, self._long
        tls = self._tls
        try:
            if long is not None:
                room = long.room
                got = long.fill(self._sock.recv_into if tls is None else partial(tls.read_into, self._sock))
            else:
                space = self._buffer[end:] if end else self._buffer
                room = len(space)
                got = self._sock.recv_into(space) if tls is None else tls.read_into(self._sock, space)
            more = got == room
            if tls is not None:
                more = tls.has_more()
                self._push_tls(tls)
        except (BlockingIOError, InterruptedError):
            if tls is not None:
                self._push_tls(tls)
            return False
        except OSError as error:
            self.break_(failure_of(error), f"connection broke: {error}")
            return False
        except MemoryError:
            self.break_(Failure.OTHER, "there is no memory for its frame", "memory")
            return False
        if not got:
            found = stranger_to_frames(bytes(self._buffer[: self._end])) if 0 < self._end < _SIZE.size else None
            failure = Failure.RESET if found is None else Failure.OTHER
            self.break_(failure, found or "the other side closed the connection", self._kind_of(found, ""))
            return False
        self.arrivals += 1
        if long is not None:
            self._gather(long, got)
        else:
            self._end = end + got
            self._hand_out()
        return more

    def _hand_out(self) -> None:
        buffer, end, start = self._buffer, self._end, 0
        while end - start >= 4:
            (size,) = _unpack_size(buffer, start)
            if not self.min_frame_bytes <= size <= self._max_taken_bytes:
                if not self.must_pause():
                    self._refuse_size(size)
                break
            stop = start + 4 + size
            if stop > end or self.must_pause():
                break
            frame = bytes(buffer[start + 4 : stop])
            if stop != end and self._cork is None:
                self._cork = []
            start = stop
            self.on_frame(frame)
            if not self.is_open:
                return
        if self._cork is not None:
            self._uncork()
        if not self.is_open:
            return
        if start == end:
            self._end = 0
            if self._long is None:
                self._frame_began = self._frame_due = inf
        else:
            self._keep(start, end)

    def _gather(self, long: FrameInParts, got: int) -> None:
        """Count ``got`` more bytes of the long frame, and hand it out when it is whole."""
        shared = self._shared
        shared.partial[self] += got  # keeps its place in the order
        shared.partial_bytes += got
        self._hand_out_long(long)
        while shared.partial_bytes > shared.limits.receive_memory_bytes:
            slowest = next(iter(shared.partial))
            slowest.break_(Failure.OTHER, "memory for frames under way ran out and its frame began first", "memory")

    def _hand_out_long(self, long: FrameInParts) -> None:
        """Hand a long frame out if it is whole, unless reading is to pause by now."""
        if long.filled < long.size or self.must_pause():
            return
        shared = self._shared
        shared.partial_bytes -= shared.partial.pop(self)
        self._long = None
        self._frame_began = self._frame_due = inf
        self.on_frame(long.take())

    def _refuse_size(self, size: int) -> None:
        found = stranger_to_frames(_SIZE.pack(size))
        allowed = f"{self.min_frame_bytes} to {self._max_taken_bytes} are allowed (max_frame_bytes)"
        text = found or f"a frame of {size} bytes was announced; {allowed}"
        self.refuse(text, self._kind_of(found, "garbage"))

    def _kind_of(self, stranger: str | None, otherwise: str) -> str:
        """The kind of a complaint; a stranger's protocol is reported once for each host, and then has no kind."""
        if stranger is None:
            return otherwise
        return "stranger" if self._shared.complain.is_first(f"{self.host}: {stranger}") else ""

    def _keep(self, start: int, end: int) -> None:
        """Keep bytes ``start`` to ``end``: part of a frame, or more when reading is to pause."""
        rest = end - start
        buffer = self._buffer
        if start:
            buffer[:rest] = buffer[start:end]
        self._end = rest
        if self.must_pause():
            self._frame_began = self._frame_due = inf
            return
        size = _unpack_size(buffer)[0] if rest >= 4 else 0
        shared = self._shared
        if start or self._frame_began == inf:
            self._frame_began = shared.timer.now()
        limits = shared.limits
        self._frame_due = self._frame_began + limits.frame_timeout_ms / 1000 + size / limits.min_bytes_per_second
        shared.timer.by(self._frame_due)
        if 4 + size > _BUFFER_BYTES:
            self._long = FrameInParts(buffer[4:rest], size)
            self._end = 0
            shared.partial[self] = rest
            shared.partial_bytes += rest
        elif rest == len(buffer):
            self._buffer = memoryview(bytearray(_BUFFER_BYTES))
            self._buffer[:rest] = buffer

    # ---- writing

    def write(self, parts: Parts) -> None:
        """Send a frame, or queue the bytes that the kernel does not take. A broken connection is told later, not here.

        Raises:
            LocalError: the frame is longer than ``max_frame_bytes``; nothing was sent.
        """
        size = 0
        for part in parts:
            size += len(part)
        if size > self._max_frame_bytes:
            raise LocalError(f"a frame of {size} bytes exceeds max_frame_bytes ({self._max_frame_bytes})")
        cork = self._cork
        if cork is None:
            self._push([_pack_size(size), *parts], size + 4)
            return
        cork.append(_pack_size(size))
        cork.extend(parts)
        self._cork_bytes += size + 4
        if self._cork_bytes > _CORK_BYTES:
            self._uncork()
            self._cork = []

    def _uncork(self) -> None:
        cork, size = self._cork, self._cork_bytes
        self._cork, self._cork_bytes = None, 0
        if cork:
            self._push(cork, size)

    def _push(self, buffers: Buffers, size: int) -> None:
        tls = self._tls
        if tls is not None:
            try:
                data = tls.encrypt(b"".join(buffers))
            except OSError as error:
                self._shared.timer.later(self.break_, failure_of(error), f"connection broke: {error}")
                return
            buffers, size = [data], len(data)
        self._push_raw(buffers, size)

    def _push_tls(self, tls: TlsPipe) -> None:
        data = tls.outgoing()
        if data:
            self._push_raw([data], len(data))

    def _push_raw(self, buffers: Buffers, size: int) -> None:
        if not self.is_open or self._is_given_up:
            return
        if not self._outbox:
            if size <= _JOIN_BYTES or len(buffers) > _GATHER:
                buffers = [b"".join(buffers)]
            try:
                sent = self._sock.send(buffers[0]) if len(buffers) == 1 else self._sock.sendmsg(buffers)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._shared.timer.later(self.break_, failure_of(error), f"connection broke: {error}")
                return
            if sent == size:
                return
            self._write_due = self._shared.timer.now() + self._shared.limits.frame_timeout_ms / 1000
            self._shared.timer.by(self._write_due)
            self._shared.nursery.start_soon(self._drain)
            size -= sent
            buffers = _without(buffers, sent)
        elif self.is_server and self._outbox_bytes + size > self._shared.limits.connection_memory_bytes:
            self._shared.timer.later(self.break_, Failure.TIMED_OUT, "it does not read its responses", "slow reader")
            return
        self._outbox.extend(memoryview(each) for each in buffers if len(each))  # an empty one would never be gone
        self._outbox_bytes += size
        if self.is_server:
            self.hold(size)

    def hold(self, change: int) -> None:
        """Count ``change`` more or fewer unsent bytes; if all connections have too many, break the slowest one."""
        shared = self._shared
        if self not in shared.connections or self._is_given_up:
            return
        held = shared.unsent.get(self, 0) + change
        if change < 0:
            shared.unsent.pop(self, None)  # the other side took bytes: to the end of the order
        if held:
            shared.unsent[self] = held
        shared.unsent_bytes += change
        while shared.unsent_bytes > shared.limits.send_memory_bytes:
            next(iter(shared.unsent)).give_up()

    def give_up(self) -> None:
        """Drop the unsent responses, whose memory is needed, and break the connection soon."""
        self._is_given_up = True
        self._outbox.clear()
        self._outbox_bytes = 0
        self._shared.unsent_bytes -= self._shared.unsent.pop(self, 0)
        why = "memory for responses ran out, and it has taken nothing of its own for the longest time"
        self._shared.timer.later(self.break_, Failure.OTHER, why, "memory")

    @uninterrupted
    async def _drain(self) -> None:
        """The writer task."""
        outbox = self._outbox
        while self.is_open and outbox:
            try:
                await wait_writable(self._fd)
                if not self.is_open:
                    return  # type: ignore[unreachable]  # it was broken meanwhile
                sent = self._sock.sendmsg(list(islice(outbox, _GATHER)))
            except (BlockingIOError, InterruptedError):
                continue
            except trio.ClosedResourceError:
                return
            except OSError as error:
                self.break_(failure_of(error), f"connection broke: {error}")
                return
            self._outbox_bytes -= sent
            if self.is_server:
                self.hold(-sent)
            self._write_due = self._shared.timer.now() + self._shared.limits.frame_timeout_ms / 1000
            while sent:
                first = outbox[0]
                if sent < len(first):
                    outbox[0] = first[sent:]
                    break
                sent -= len(first)
                outbox.popleft()
            self.on_drained()
        self._write_due = inf
        if self._ending is not None:
            self.break_(*self._ending)

    # ---- time and end

    def sweep(self, now: float) -> float:
        """Break the connection if one of its deadlines has passed; returns the next deadline."""
        if now >= self._frame_due:
            self.break_(Failure.TIMED_OUT, "a frame began and did not arrive in time", "slow sender")
            return inf
        if now >= self._write_due:
            self.break_(Failure.TIMED_OUT, "it does not read", "slow reader")
            return inf
        idle_s = self._shared.limits.idle_timeout_ms / 1000 * (1 if self.is_server else 0.9)
        if self.arrivals != self._arrivals_swept or self.is_busy():
            self._arrivals_swept = self.arrivals
            self._idle_due = now + idle_s
        elif now >= self._idle_due:
            self.break_(Failure.OTHER, "idle")
            return inf
        return min(self._frame_due, self._write_due, self._idle_due)

    def refuse(self, why: str, kind: str) -> None:
        """Break the connection, on which something else than a frame came; see ``break_``."""
        self.break_(Failure.OTHER, why, kind)

    def end(self, failure: Failure, why: str, kind: str = "") -> None:
        """Do as ``break_`` once the other side has taken everything that was written."""
        if self._cork is not None:
            self._uncork()
        if self._outbox:
            self._ending = (failure, why, kind)
        else:
            self.break_(failure, why, kind)

    def break_(self, failure: Failure, why: str, kind: str = "") -> None:
        """Close the socket and tell the subclass; further calls do nothing.

        Args:
            failure: of the requests that wait.
            why: the reason, for people.
            kind: if given, ``why`` is logged, rate-limited by kind.
        """
        if not self.is_open:
            return
        self.is_open = False
        shared = self._shared
        shared.connections.pop(self, None)
        shared.partial_bytes -= shared.partial.pop(self, 0)
        shared.unsent_bytes -= shared.unsent.pop(self, 0)
        if self.is_server and shared.readers is not None:
            shared.readers.closing(self._fd)
        notify_closing(self._fd)
        self._sock.close()
        self._buffer = memoryview(b"")
        self._end = 0
        self._long = None
        self._outbox.clear()
        if kind:
            shared.complain(kind, f"{'connection from' if self.is_server else 'connection to'} {self.peer}: {why}")
        self.on_broken(failure, why)


def _without(buffers: Buffers, sent: int) -> Buffers:
    """The rest of ``buffers`` after their first ``sent`` bytes."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
