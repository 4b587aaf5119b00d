"""TLS without a stream: the handshake, encryption and decryption as plain calls over memory buffers."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraftcore.errors import TransportError
from kraftcore.transports.tcp.strangers import NO_TLS, TLS, TLS_ALERT
from kraftcore.transports.tcp.subject import subject_of

_READ_BYTES = 64 * 1024


class TlsSettings(Protocol):
    """The TLS settings of a transport: any object with these attributes. See ``TlsFiles``."""

    @property
    def certificate(self) -> str | None: ...  # noqa: D102
    @property
    def key(self) -> str | None: ...  # noqa: D102
    @property
    def ca(self) -> str | None: ...  # noqa: D102
    @property
    def client_auth(self) -> str: ...  # noqa: D102
    @property
    def key_password(self) -> str | None: ...  # noqa: D102
    @property
    def check_host_name(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files, and the demands on peers.

    Attributes:
        certificate: our certificate with its chain; shown to clients, and to servers that ask (mutual TLS). None: this
            side only connects, without a certificate of its own.
        key: the certificate's private key; None when it is in the same file.
        ca: certificates of the authorities that peers' certificates must come from; None: the system's.
        client_auth: "none", "requested" (a certificate that is shown must be valid) or "required": Kafka's
            ssl.client.auth.
        key_password: of an encrypted key.
        check_host_name: whether a server's certificate must name the host that was connected to: Kafka's
            ssl.endpoint.identification.algorithm. The certificate must come from ``ca`` either way.
    """

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    client_auth: str = "none"
    key_password: str | None = None
    check_host_name: bool = True


Stamps = tuple[tuple[int, int, int] | None, ...]


def stamps_of(paths: Sequence[str]) -> Stamps:
    """Time of change, inode and size of files, through symbolic links; None for a missing file."""
    return tuple(map(_stamp_of, paths))


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsContexts:
    """The TLS contexts of both ends; ``reload`` reads the files again, for connections made from then on.

    TLS 1.2 at least. A client checks the server's certificate, and that it names the host it connected to unless
    ``check_host_name`` says otherwise.

    Attributes:
        stamps: of the files when they were read last, whether they worked or not.

    Raises:
        TransportError: a file cannot be read or does not fit the others, or ``client_auth`` is unknown.
    """

    stamps: Stamps

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self.reload()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are read."""
        settings = self._settings
        return tuple(path for path in (settings.certificate, settings.key, settings.ca) if path is not None)

    def reload(self) -> None:
        """Read the files again. When that fails the old ones stay in use.

        Raises:
            TransportError: see the class.
        """
        self.use(self.load())

    def use(self, loaded: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
        """Use the contexts that ``load`` returned, for connections made from now on."""
        self._client, self._server = loaded

    def load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Read the files and return contexts, which are not used yet.

        Raises:
            TransportError: see the class.
        """
        self.stamps = stamps_of(self.paths)  # before reading, so that later changes are noticed
        client = self._context(ssl.PROTOCOL_TLS_CLIENT, ssl.CERT_REQUIRED)
        client.check_hostname = self._settings.check_host_name
        verify = _CLIENT_AUTH.get(self._settings.client_auth)
        if verify is None:
            raise TransportError(
                f"TLS setting client_auth: {self._settings.client_auth!r} is none of {', '.join(_CLIENT_AUTH)}"
            )
        server = self._context(ssl.PROTOCOL_TLS_SERVER, verify)
        return client, server

    def _context(self, protocol: int, verify: ssl.VerifyMode) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.verify_mode = verify
        setting, path = "certificate", settings.certificate
        try:
            if path is not None:
                context.load_cert_chain(path, settings.key, settings.key_password or "")
            setting, path = "ca", settings.ca
            if path is not None:
                context.load_verify_locations(path)
            elif verify != ssl.CERT_NONE:
                context.load_default_certs()
        except OSError as error:  # ssl.SSLError is one
            beside = f" (key {settings.key})" if setting == "certificate" and settings.key else ""
            raise TransportError(f"TLS setting {setting}: cannot use {path}{beside}: {error}") from error
        return context

    def server_pipe(self) -> TlsPipe:
        """Make the TLS of an accepted connection."""
        return TlsPipe(self._server, None)

    def client_pipe(self, host: str) -> TlsPipe:
        """Make the TLS of a connection to ``host``."""
        return TlsPipe(self._client, host)

    def check_server(self) -> None:
        """Check that listeners can be opened.

        Raises:
            TransportError: there is no certificate.
        """
        if self._settings.certificate is None:
            raise TransportError("TLS setting certificate: a listener needs one")


_RECORD_HEAD_BYTES = 5
_RECORDS_AT_ONCE = 32  # that OpenSSL is given; so many without data in a row are refused, as it refuses empty ones


class NotTlsError(ssl.SSLError):
    """The other side speaks no TLS. Attributes: ``first``: the bytes that it sent first, five at least."""

    first: bytes


class TlsPipe:
    """One connection's TLS. ``server_host`` None: the server's end.

    OpenSSL reads on until there is data, and a change of keys (RFC 8446, section 4.6.3) takes long: a peer that sends
    nothing else would hold up all others. So OpenSSL gets few records at a time; as many without data are an error.

    Errors are ``ssl.SSLError`` and ``OSError`` of the socket.
    """

    def __init__(self, context: ssl.SSLContext, server_host: str | None) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._ahead = b""  # received, and not given to OpenSSL
        self._left_of_record = 0  # remaining bytes of a record whose beginning OpenSSL has
        self._without_data = 0  # records given to OpenSSL since it last had data
        self._is_over = False
        self._subject: str | None = None
        self._is_tls = False  # whether the other side is known to speak TLS
        self._context: ssl.SSLContext | None = context  # of a server until then
        if server_host is not None:
            self._begin(context, server_host)

    def _begin(self, context: ssl.SSLContext, server_host: str | None) -> None:
        self._context = None
        server = server_host is None
        self._object = context.wrap_bio(self._in, self._out, server_side=server, server_hostname=server_host)
        self._read: Callable[[int, memoryview], int] = self._object.read  # type: ignore[assignment]  # with a buffer

    def shake_hands(self) -> bool:
        """Go on with what has been fed; True when the handshake is done. Send ``outgoing`` either way."""
        if self._context is not None:
            return False
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                if not self._feed_some():
                    return False
            else:
                break
        self._without_data = 0
        self._read_subject()
        return True

    def feed(self, sock: socket.socket) -> None:
        """Read ciphertext once."""
        data = sock.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the other side closed the connection during the handshake")
        self._ahead += data
        if not self._is_tls and len(self._ahead) >= _RECORD_HEAD_BYTES:
            if not self._ahead.startswith(TLS if self._context is not None else (TLS, TLS_ALERT)):
                self._out.write(NO_TLS)
                error = NotTlsError("what it sends is not TLS")  # OpenSSL would raise an error, too, with fewer words
                error.first = self._ahead
                raise error
            self._is_tls = True
            if self._context is not None:
                self._begin(self._context, None)

    def _feed_some(self) -> bool:
        """Give OpenSSL the next few records; False: there are none."""
        data, end = self._ahead, len(self._ahead)
        at, records = self._left_of_record, 0
        while at + _RECORD_HEAD_BYTES <= end and records < _RECORDS_AT_ONCE:
            at += _RECORD_HEAD_BYTES + int.from_bytes(data[at + 3 : at + _RECORD_HEAD_BYTES])
            records += 1
        cut = min(at, end)
        self._ahead, self._left_of_record = data[cut:], at - cut
        self._without_data += records
        if cut:
            self._in.write(data[:cut])
        return cut > 0

    def read_into(self, sock: socket.socket, space: memoryview) -> int:
        """Decrypt into ``space``, as much as has come; returns the number of bytes, 0 when the other side closed."""
        got, size = 0, len(space)
        while got < size:
            try:
                count = self._read(size - got, space[got:])
            except ssl.SSLWantReadError:
                if got:
                    break
                if self._without_data > _RECORDS_AT_ONCE:
                    raise ssl.SSLError("it sends TLS records without data") from None
                if not self._feed_some():
                    data = sock.recv(_READ_BYTES)
                    if not data:
                        break
                    self._ahead += data
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            if not count:  # the other side has ended its data
                self._is_over = True
                break
            got += count
            self._without_data = 0
        return got

    def has_more(self) -> bool:
        """Whether decrypted or received bytes, or the end of the data, wait here."""
        is_here = len(self._ahead) >= _RECORD_HEAD_BYTES or self._in.pending > 0 or self._object.pending() > 0
        return self._is_over or is_here

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt; returns the ciphertext to send, with pending bytes of TLS itself."""
        self._object.write(data)
        return self._out.read()

    def outgoing(self) -> bytes:
        """Return bytes of TLS itself to send: handshake, alerts, new keys."""
        return self._out.read() if self._out.pending else b""

    def principal(self) -> str | None:
        """The subject of the peer's verified certificate, see `subject_of`; None without one."""
        return self._subject

    def _read_subject(self) -> None:
        certificate = self._object.getpeercert(binary_form=True)
        if certificate is None or self._object.context.verify_mode == ssl.CERT_NONE:
            return
        try:
            self._subject = subject_of(certificate)
        except ValueError as error:
            raise ssl.SSLError(f"the subject of its certificate cannot be read: {error}") from error
