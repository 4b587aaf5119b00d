"""Logins that are almost sound, at a controller: every message is answered or costs the sender its connection.

Half of them are by somebody who has no right to come. What may happen: an answer, or the end of the connection.
What may not: silence, the end of the process, an error that the server does not expect, memory that grows, and anybody
who is let in without a right password or token.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar

import oauth_kit as kit
from broken import Broken

from faults.frames import AT_ONCE, GROWTH_KIB, PATIENCE_S, Target, read_exactly
from kraftcore.errors import AuthenticationError
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.frames import decode_response, encode_request
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftcore.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kraftcore.protocol.registry import ApiKey
from kraftcore.security.sasl.mechanism_interface import ClientMechanism
from kraftcore.security.sasl.oauth_client import OAuthBearerClient
from kraftcore.security.sasl.plain_client import PlainClient
from kraftcore.security.sasl.scram_client import Password, ScramClient

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, SECRET = "alice", "secret"
PASSWORD, WRONG = Password(SECRET), Password("wrong")  # hashed once for all
KINDS = ("sound", "message", "bytes", "fields", "order", "size", "cut")
WEIGHTS = (2, 5, 4, 2, 3, 1, 1)
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AFTER = encode_request(DescribeClusterRequest(endpoint_type=2), 1, 77, "after")


class GuardedTarget(Target):
    """A ``kraftcore server`` whose listener has SASL."""

    SETTINGS: ClassVar[dict[str, object]] = {
        **Target.SETTINGS,
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{LOGIN_MODULE} required username="{USER}" '
        f'password="{SECRET}" user_{USER}="{SECRET}";',
        "connection.failed.authentication.delay.ms": 0,
        "max.connection.creation.rate": 1_000_000,
    }
    FORMAT = tuple(
        part for name in MECHANISMS[1:3] for part in ("--add-scram", f"{name}=[name={USER},password={SECRET}]")
    )

    def settings(self, folder: Path) -> dict[str, object]:
        keys = kit.write_keys(folder / "keys.json", kit.public_jwk("P-256"))
        return {**self.SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": keys}


@dataclass
class Report:
    """What came of the logins.

    Attributes:
        logins: tried.
        kinds: what was done to them, and what came: ``in``, ``refused``, or ``closed`` without a word.
        memory_kib: of the process, after each part.
    """

    logins: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    memory_kib: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        memory = " ".join(f"{kib / 1024:.1f}" for kib in self.memory_kib)
        return f"{self.logins} logins: {kinds}; MiB: {memory}"


class Login:
    """One login, message by message.

    Attributes:
        kind: what is done to it.
        may_come_in: whether it is by somebody with a right to.
        last: what was heard last: ``in``, ``refused`` or nothing.
        is_over: whether the frame sent last has another length than it says: nothing can follow it.
    """

    def __init__(self, rng: Random, token: str) -> None:
        self.kind = rng.choices(KINDS, WEIGHTS)[0]
        self.may_come_in = rng.random() < 0.5
        self.last = ""
        self.is_over = False
        self._rng = rng
        name = rng.choice(MECHANISMS)
        self._mechanism = self._client(name, token)
        self._challenge = b""
        self._steps = self._in_order(name)

    def _client(self, name: str, token: str) -> ClientMechanism:
        if name == "OAUTHBEARER":
            return OAuthBearerClient(token if self.may_come_in else token[:-6] + "AAAAAA")
        user = USER if self.may_come_in or self._rng.random() < 0.5 else "mallory"
        if name == "PLAIN":
            return PlainClient(user, SECRET if self.may_come_in else "wrong")
        return ScramClient(name, user, PASSWORD if self.may_come_in else WRONG)

    def _in_order(self, name: str) -> list[str]:
        rng = self._rng
        steps = [*["versions"] * (rng.random() < 0.5), f"handshake {name}", "first"]
        if name.startswith("SCRAM"):
            steps.append("answer")
        if self.kind == "order":
            for _ in range(rng.choice((1, 1, 2, 3))):
                at = rng.randrange(len(steps))
                match rng.randrange(4):
                    case 0:
                        steps.insert(at, rng.choice([*steps, "after", f"handshake {rng.choice(MECHANISMS)}"]))
                    case 1:
                        steps[at] = rng.choice(steps)
                    case 2:
                        rng.shuffle(steps)
                    case 3:
                        del steps[at]
                        steps = steps or ["after"]
        return [*steps, "after"]

    def frames(self) -> Iterator[bytes]:
        """Whole, with their sizes; what is heard between them goes to ``hear``."""
        rng = self._rng
        spoilt = rng.randrange(len(self._steps))
        for place, step in enumerate(self._steps):
            if self.last == "refused":
                return
            frame = self._frame(step, is_spoilt=place == spoilt)
            size = len(frame)
            if place == spoilt and self.kind == "size":
                size = rng.choice((-1, -(2**31), 2**31 - 1, 512 * 1024 + 1, 0, 3, size - 1, size // 2))
            whole = struct.pack(">i", size) + frame
            if place == spoilt and self.kind == "cut":
                whole = whole[: rng.randrange(len(whole))]
            self.is_over = place == spoilt and self.kind in ("size", "cut")
            yield whole
            if self.is_over:
                return

    def hear(self, frame: bytes) -> None:
        """The answer to the last message."""
        with suppress(Exception):  # of a spoilt request nobody knows what is answered
            (number,) = struct.unpack_from(">i", frame)
            if number == 77:
                answer = decode_response(frame, ApiKey.DESCRIBE_CLUSTER, 1)[1]
                assert isinstance(answer, DescribeClusterResponse)
                self.last = "refused" if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE else "in"
            elif number == 36:
                response = decode_response(frame, ApiKey.SASL_AUTHENTICATE, 2)[1]
                assert isinstance(response, SaslAuthenticateResponse)
                self._challenge = bytes(response.auth_bytes)
                self.last = "refused" if response.error_code else ""

    def _frame(self, step: str, *, is_spoilt: bool) -> bytes:
        what, _, name = step.partition(" ")
        rng, spoils = self._rng, self.kind if is_spoilt else ""
        if what == "after":
            frame = AFTER
        elif what == "versions":
            version = rng.choice((0, 4, 5, 99)) if spoils == "fields" else 4
            request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
            frame = struct.pack(">hh", 18, version) + encode_request(request, 4, 18, "hand")[4:]
        elif what == "handshake":
            if spoils == "fields":
                name = rng.choice(("", "plain", "GSSAPI", name * 1000, "é", name + " ", name.lower()))
            elif spoils == "message":
                name = _changed(rng, name.encode()).decode(errors="replace")
            frame = encode_request(SaslHandshakeRequest(mechanism=name), rng.choice((0, 1, 1, 1)), 17, "hand")
        else:
            data = self._token(what)
            if spoils == "fields":
                data = rng.choice((b"", b"\0", b"\x01", data * 2, bytes(100_000), rng.randbytes(30)))
            elif spoils == "message":
                data = _changed(rng, data)
            frame = encode_request(SaslAuthenticateRequest(auth_bytes=data), 2, 36, "hand")
        return _changed(rng, frame) if spoils == "bytes" else frame

    def _token(self, what: str) -> bytes:
        try:
            if what == "first":
                return self._mechanism.first()
            return self._mechanism.respond(self._challenge) or b""
        except (AuthenticationError, ValueError):  # out of order
            return b"c=biws,r=abc,p=AAAA"


def _changed(rng: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(6):
            case 0:
                del found[at:]
            case 1 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 2:
                found[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 3:
                del found[at : at + rng.randrange(1, 8)]
            case 4:
                found[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x7f\xff", b"\0\0\0\0"))
            case _:
                found[at : at + 2] = rng.choice(
                    (b",=", b"n,", b"\x01", b"\0", b"p=", b"m=x,", b"=2C", b"\xc3\xa9", b"..", b"==")
                )
    return bytes(found)


class Caller:
    """Tries logins, `AT_ONCE` at a time, and sees that each message is answered or ends its connection."""

    def __init__(self, target: Target, report: Report, rng: Random) -> None:
        self._target = target
        self._report = report
        self._rng = rng
        self._token = ""

    def try_some(self, count: int) -> None:
        """Raises: Broken: silence, or somebody is let in who must not."""
        self._token = kit.token(
            {"sub": USER, "iat": int(time.time()), "exp": int(time.time()) + 3600}, "P-256", "ES256"
        )
        logins = [Login(self._rng, self._token) for _ in range(count)]
        going = {login: (self._target.connect(), login.frames()) for login in logins}
        while going:
            sent: list[Login] = []
            for login, (connection, frames) in list(going.items()):
                frame = next(frames, None)
                if frame is None:
                    self._end(login, connection)
                    del going[login]
                    continue
                with suppress(ConnectionError):  # it may have ended: then there is nothing to read
                    connection.sendall(frame)
                    if login.is_over:
                        connection.shutdown(socket.SHUT_WR)
                sent.append(login)
            for login in sent:
                connection, _ = going[login]
                if not self._is_answered(login, connection):
                    self._end(login, connection)
                    del going[login]

    def _is_answered(self, login: Login, connection: socket.socket) -> bool:
        try:
            size = read_exactly(connection, 4)
            frame = None if size is None else read_exactly(connection, struct.unpack(">i", size)[0])
        except TimeoutError:
            self._target.check_alive()
            raise Broken(f"no answer to a login ({login.kind}) within {PATIENCE_S:.0f} s") from None
        except ConnectionError:
            return False
        if frame is None:
            return False
        login.hear(frame)
        if login.last == "in" and not login.may_come_in:
            raise Broken(f"somebody was let in with nothing ({login.kind})")
        return True

    def _end(self, login: Login, connection: socket.socket) -> None:
        connection.close()
        self._report.logins += 1
        self._report.kinds[f"{login.kind} {login.last or 'closed'}"] += 1


def run_handshakes(
    folder: Path, seed: int, count: int, parts: int, say: Callable[[Report], None] = lambda report: None
) -> Report:
    """Try logins.

    Args:
        folder: an empty one.
        seed: of the logins.
        count: how many in all.
        parts: memory is looked at after each.
        say: called after each.

    Raises:
        Broken: silence, an unexpected error, the end of the process, memory that grows by more than
            `GROWTH_KIB`, or somebody who is let in without a right to.
    """
    report, target = Report(), GuardedTarget(folder)
    caller = Caller(target, report, Random(seed))
    try:
        target.connect().close()
        for _ in range(parts):
            for start in range(0, count // parts, AT_ONCE):
                caller.try_some(min(AT_ONCE, count // parts - start))
            target.check_alive()
            report.memory_kib.append(target.memory_kib)
            say(report)
            if report.memory_kib[-1] > report.memory_kib[0] + GROWTH_KIB:
                raise Broken(f"memory grows: {report}")
        return report
    finally:
        target.close()
