"""TLS and mutual TLS: who the other side is, files that change, and sides that do not agree."""

from __future__ import annotations

import contextlib
import ssl
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.x509 import load_pem_x509_certificate
from transport_rig import LOOPBACK, SentRequest, ask, echo, eof, in_trio, request_frame, until

from kraftcore.errors import LocalError, TransportError
from kraftcore.ports.transport import Address
from kraftcore.protocol.failure import Failure
from kraftcore.transports.tcp import TcpTransport, TlsFiles
from kraftcore.transports.tcp.tls import TlsContexts

ANYWHERE = Address("localhost", 0)
END = "-----END CERTIFICATE-----\n"

pytestmark = pytest.mark.usefixtures("together")


@contextlib.asynccontextmanager
async def serving(tls, **settings):
    """A server, its address, its log, and the principals it saw."""
    lines, principals = [], []

    def serve(frame, origin, reply):
        principals.append(origin.subject)
        echo(frame, origin, reply)

    async with TcpTransport(tls=tls, log=lines.append, **settings) as server:
        yield server, await server.listen("L", ANYWHERE, serve), lines, principals


async def ask_with(tls, at, body=b"", **settings):
    async with TcpTransport(tls=tls, log=lambda line: None, **settings) as client:
        return await ask(client, at, body)


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
@in_trio
async def test_who_asks(certificates, client_auth):
    ca = certificates.ca
    node = TlsFiles(certificates.issue("node-1", "localhost", unit="voters"), None, ca)
    odd = TlsFiles(certificates.issue('a, "b"+c\\d', "localhost", unit="#unit "), None, ca)
    async with serving(certificates.files("server", client_auth)) as (_, at, lines, principals):
        assert await ask_with(node, at, b"x") == b"x"
        assert await ask_with(odd, at, b"y") == b"y"
        nobody = await ask_with(TlsFiles(ca=ca), at, b"z")
        if client_auth == "required":
            assert nobody in {Failure.OTHER, Failure.RESET}
            assert len(lines) == 1
            assert "TLS handshake failed" in lines[0]
        else:
            assert nobody == b"z"
    if client_auth == "none":
        assert principals == [None, None, None]
        return
    assert principals[0].startswith("CN=node-1,OU=voters,O=trustme")
    assert principals[:2] == [subject_of(node), subject_of(odd)]
    assert principals[2:] == ([None] if client_auth == "requested" else [])


def subject_of(files):
    """By another implementation."""
    return load_pem_x509_certificate(Path(files.certificate).read_bytes()).subject.rfc4514_string()


@in_trio
async def test_certificates_of_another_authority(certificates, tmp_path):
    stranger = trustme.CA()
    stranger.cert_pem.write_to_path(str(tmp_path / "strange-ca.pem"))
    stranger.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "strange.pem"))
    strange = TlsFiles(str(tmp_path / "strange.pem"), None, certificates.ca)
    trusting = TlsFiles(str(tmp_path / "strange.pem"), None, str(tmp_path / "strange-ca.pem"))
    async with serving(certificates.files(client_auth="requested")) as (server, at, lines, principals):
        assert await ask_with(strange, at) in {Failure.OTHER, Failure.RESET}
        assert await ask_with(trusting, at) is Failure.OTHER
        assert principals == []
        assert await ask_with(certificates.files("good"), at) == b""
        await until(lambda: server.connections[0] == 0)
    assert len(lines) == 2


@in_trio
async def test_the_certificate_must_name_the_host(certificates):
    files = TlsFiles(certificates.issue("elsewhere", "elsewhere.example"), None, certificates.ca)
    async with serving(files) as (_, at, _, _):
        lines = []
        async with TcpTransport(tls=files, log=lines.append) as client:
            assert await ask(client, at) is Failure.OTHER
    assert len(lines) == 1
    assert "not valid for 'localhost'" in lines[0]


@in_trio
async def test_the_host_name_and_only_that_need_not_be_checked(certificates, tmp_path):
    elsewhere = certificates.issue("elsewhere", "elsewhere.example")
    lax = TlsFiles(elsewhere, None, certificates.ca, check_host_name=False)
    stranger = trustme.CA()
    stranger.cert_pem.write_to_path(str(tmp_path / "strange-ca.pem"))
    other_authority = TlsFiles(ca=str(tmp_path / "strange-ca.pem"), check_host_name=False)
    async with serving(TlsFiles(elsewhere, None, certificates.ca)) as (_, at, _, _):
        assert await ask_with(lax, at, b"x") == b"x"
        assert await ask_with(other_authority, at) is Failure.OTHER


@in_trio
async def test_plain_to_tls(certificates):
    async with serving(certificates.files()) as (server, at, lines, _):
        plain_lines = []
        async with TcpTransport(log=plain_lines.append) as plain:
            for _ in range(2):  # and is told of once
                assert await ask(plain, at) in {Failure.OTHER, Failure.RESET}
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000, bytes(5000)):
            stream = await trio.open_tcp_stream("127.0.0.1", at.port)
            await stream.send_all(garbage)
            told = await eof(stream)
            assert told == b"\x15\x03"  # no whole alert, which clients of Kafka would take for the length of a frame
            await stream.aclose()
        assert await ask_with(certificates.files("good"), at, b"well") == b"well"
        await until(lambda: server.connections[0] == 0)
    assert len(lines) == 4
    assert all("TLS handshake failed" in line for line in lines)
    assert "it speaks without TLS, which this side wants: set tls" in lines[0]
    assert "it speaks HTTP" in lines[1]
    assert all("what it sends is not TLS" in line for line in lines[2:])
    (line,) = plain_lines
    assert "it answers with a TLS alert: it expects TLS, which this side does not use: set tls" in line


@in_trio
async def test_a_handshake_in_small_pieces(certificates):
    """Whether it is TLS shows in the first five bytes: not before they are here, wherever they are cut."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    async with serving(certificates.files()) as (server, at, lines, _):
        for cut in (1, 4, 5, 6):
            stream = await trio.open_tcp_stream("127.0.0.1", at.port)
            await stream.send_all(hello[:cut])
            await trio.sleep(0.02)
            await stream.send_all(hello[cut:])
            assert (await stream.receive_some(5)).startswith(b"\x16\x03"), "the server's hello"
            await stream.aclose()
        assert not any("not TLS" in line for line in lines)
        stream = await trio.open_tcp_stream("127.0.0.1", at.port)
        await stream.send_all(b"\x16\x02\x00")
        await trio.sleep(0.02)
        await stream.send_all(b"\x00\x00")
        await eof(stream)
        await stream.aclose()
        await until(lambda: server.connections[0] == 0)
    assert "what it sends is not TLS" in lines[-1]


@in_trio
async def test_tls_to_plain(certificates):
    lines = []
    async with TcpTransport(log=lines.append) as server, TcpTransport() as plain:
        at = await server.listen("L", ANYWHERE, echo)
        assert await ask_with(certificates.files(), at) is Failure.OTHER
        assert await ask(plain, at, b"well") == b"well"
    assert len(lines) == 1
    assert "it speaks TLS, this side does not" in lines[0]


@in_trio
async def test_tls_to_another_server(certificates):
    async def answer(stream):
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    lines = []
    async with trio.open_nursery() as nursery, TcpTransport(tls=certificates.files(), log=lines.append) as client:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        at = Address(*listener.socket.getsockname())
        assert await ask(client, at) is Failure.OTHER
        nursery.cancel_scope.cancel()
    assert lines == [
        f"connection to {at}: TLS handshake failed: it speaks HTTP: no node listens at this address: correct it"
    ]


@in_trio
async def test_handshakes_take_bounded_time(certificates):
    async with serving(certificates.files(), handshake_timeout_ms=50) as (_, at, lines, _):
        stream = await trio.open_tcp_stream("127.0.0.1", at.port)
        assert await eof(stream) == b""
        await stream.aclose()
    assert len(lines) == 1
    assert "no request came in time" in lines[0]

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        at = Address("localhost", listener.socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, lambda stream: trio.sleep_forever(), [listener])
        assert await ask_with(certificates.files(), at, handshake_timeout_ms=50) is Failure.OTHER
        nursery.cancel_scope.cancel()


@in_trio
async def test_reloading(certificates, tmp_path):
    path = Path(certificates.issue("first", "localhost"))
    files = TlsFiles(str(path), None, certificates.ca, "required")
    client_path = Path(certificates.issue("client-1", "localhost"))
    async with (
        serving(files) as (server, at, _, principals),
        TcpTransport(tls=TlsFiles(str(client_path), None, certificates.ca), log=lambda line: None) as client,
    ):
        assert await served_name(at, certificates) == "first"
        assert await ask(client, at) == b""
        path.write_text(Path(certificates.issue("second", "localhost")).read_text())
        client_path.write_text(Path(certificates.issue("client-2", "localhost")).read_text())
        assert await served_name(at, certificates) == "first"
        server.reload_tls()
        client.reload_tls()
        assert await served_name(at, certificates) == "second"
        assert await ask(client, at) == b""  # still on the old connection
        assert len({principal.partition(",")[0] for principal in principals}) == 1
        assert await ask(client, at._replace(lane=1)) == b""  # on a new one
        assert principals[-1].startswith("CN=client-2,")

        path.write_text("no certificate")
        with pytest.raises(TransportError, match="certificate"):
            server.reload_tls()
        assert await served_name(at, certificates) == "second"
        assert await ask(client, at) == b""


@in_trio
async def test_files_that_change_are_read_again_without_being_told(certificates, tmp_path):
    """Also through a symbolic link that is moved; what does not work is said once, and then works when it is mended."""
    names = ("first", "second", "third")
    pems = {name: Path(certificates.issue(name, "localhost")).read_text() for name in names}
    folder = tmp_path / "mounted"
    folder.mkdir()
    for name, text in pems.items():
        (folder / name).write_text(text)
    ca = folder / "ca.pem"  # asking who serves writes the other one anew
    ca.write_text(Path(certificates.ca).read_text())
    link = folder / "server.pem"
    link.symlink_to(folder / "first")
    lines = []
    server = TcpTransport(tls=TlsFiles(str(link), None, str(ca)), log=lines.append, tls_reload_ms=20)

    async def until(name):
        with trio.fail_after(60):
            while await served_name(at, certificates) != name:
                await trio.sleep(0.02)

    async with server:
        at = await server.listen("L", ANYWHERE, lambda frame, origin, reply: reply(None))
        assert await served_name(at, certificates) == "first"
        (folder / "first").write_text(pems["second"])
        await until("second")
        moved = folder / "moved"
        moved.symlink_to(folder / "third")
        moved.rename(link)
        await until("third")
        (folder / "third").write_text("no certificate")
        with trio.fail_after(60):
            while not lines:
                await trio.sleep(0.02)
        stamps = server._tls.stamps
        assert await served_name(at, certificates) == "third"
        link.unlink()
        with trio.fail_after(60):
            while len(lines) < 2:
                await trio.sleep(0.02)
        assert server._tls.stamps != stamps
        assert all(line.startswith("TLS files changed and do not work, the ones read before stay") for line in lines)
        assert [str(link) in line for line in lines] == [True, True]
        link.write_text(pems["first"])
        await until("first")
    assert len(lines) == 2


async def served_name(at, certificates):
    """Common name of the certificate that a listener shows."""
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.issue("looker", "localhost"))
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", at.port), context, server_hostname="localhost")
    await stream.do_handshake()
    names = [name for part in stream.getpeercert()["subject"] for name in part]
    await trio.aclose_forcefully(stream)
    return dict(names)["commonName"]


@in_trio
async def test_a_foreign_tls_client(certificates):
    """Another implementation of the stream side: records of any size, and a proper goodbye."""
    context = ssl.create_default_context(cafile=certificates.ca)
    async with serving(certificates.files()) as (server, at, lines, _):
        raw = await trio.open_tcp_stream("127.0.0.1", at.port)
        stream = trio.SSLStream(raw, context, server_hostname="localhost", https_compatible=True)
        body = bytes(range(256)) * 400
        frame = request_frame(9, body)
        sent = len(frame).to_bytes(4) + frame
        for start in range(0, len(sent), 1000):
            await stream.send_all(sent[start : start + 1000])
        got = b""
        while len(got) < 8 + len(body):
            got += await stream.receive_some()
        assert got[8:] == body
        await stream.aclose()
        await until(lambda: server.connections[0] == 0)
    assert lines == []


@in_trio
async def test_who_says_that_no_more_comes(certificates):
    """As Java's clients do at their end, before they close: the server lets go of them, and serves others."""
    context = ssl.create_default_context(cafile=certificates.ca)
    async with serving(certificates.files("server")) as (server, at, _, _):
        raw = await trio.open_tcp_stream("localhost", at.port)
        sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(received, sent, server_hostname="localhost")

        async def call(action, *arguments):
            while True:
                try:
                    return action(*arguments)
                except ssl.SSLWantReadError:
                    await raw.send_all(sent.read())
                    received.write(await raw.receive_some())

        await call(tls.do_handshake)
        frame = request_frame(1)
        await call(tls.write, len(frame).to_bytes(4) + frame)
        assert await call(tls.read, 100) == (4).to_bytes(4) + frame[4:8]
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.unwrap()
        await raw.send_all(sent.read())
        assert await ask_with(TlsFiles(ca=certificates.ca), at, b"x") == b"x"
        await eof(raw)
        await raw.aclose()
        await until(lambda: server.connections[0] == 0)


@in_trio
async def test_bytes_after_the_handshake_that_are_no_tls(certificates):
    context = ssl.create_default_context(cafile=certificates.ca)
    async with serving(certificates.files()) as (server, at, _lines, _):
        raw = await trio.open_tcp_stream("127.0.0.1", at.port)
        stream = trio.SSLStream(raw, context, server_hostname="localhost")
        await stream.do_handshake()
        await raw.send_all(bytes(1000))
        await eof(raw)
        await raw.aclose()
        await until(lambda: server.connections[0] == 0)
        assert await ask_with(certificates.files("good"), at) == b""


def test_files_that_do_not_work(certificates, tmp_path):
    good, ca = certificates.issue("good", "localhost"), certificates.ca
    (tmp_path / "junk.pem").write_text("junk")
    junk, missing = str(tmp_path / "junk.pem"), str(tmp_path / "missing.pem")
    for files, text in (
        (TlsFiles(missing, None, ca), f"certificate: cannot use {missing}"),
        (TlsFiles(junk, None, ca), f"certificate: cannot use {junk}"),
        (TlsFiles(good, junk, ca), f"certificate: cannot use {good} .key {junk}."),
        (TlsFiles(good, None, junk), f"ca: cannot use {junk}"),
        (TlsFiles(good, None, ca, "always"), "client_auth: 'always' is none of none, requested, required"),
    ):
        with pytest.raises(TransportError, match=text):
            TcpTransport(tls=files)


def test_without_files():
    TlsContexts(TlsFiles())

    @in_trio
    async def listen():
        async with TcpTransport(tls=TlsFiles()) as transport:
            with pytest.raises(TransportError, match="certificate: a listener needs one"):
                await transport.listen("L", LOOPBACK, echo)
        async with TcpTransport() as transport:
            with pytest.raises(LocalError, match="no TLS"):
                transport.reload_tls()

    listen()


@in_trio
async def test_long_frames_cross(certificates):
    """Both directions at once, more than any buffer in between holds."""
    long = bytes(range(256)) * 4 * 4096
    tls = certificates.files()
    async with serving(tls) as (_, at, _, _), TcpTransport(tls=tls) as client:
        asked = [SentRequest(client, at, long) for _ in range(8)]
        assert {await one.result() for one in asked} == {long}


@in_trio
async def test_listeners_of_one_transport_that_differ(certificates, tmp_path):
    """A plain one beside an encrypted one; each speaks its own protocol only."""
    lines, listeners = [], []

    def serve(frame, origin, reply):
        listeners.append(origin.listener)
        echo(frame, origin, reply)

    secure = certificates.files("server")
    trusting = TlsFiles(ca=certificates.ca)
    async with (
        TcpTransport(listener_tls={"SECURE": secure}, log=lines.append) as plain_first,
        TcpTransport(tls=secure, listener_tls={"PLAIN": None}, log=lines.append) as secure_first,
    ):
        for server in (plain_first, secure_first):
            plain_at = await server.listen("PLAIN", ANYWHERE, serve)
            secure_at = await server.listen("SECURE", ANYWHERE, serve)
            assert await ask_with(None, plain_at, b"x") == b"x"
            assert await ask_with(trusting, secure_at, b"y") == b"y"
            assert await ask_with(trusting, plain_at) in {Failure.OTHER, Failure.RESET}
            assert await ask_with(None, secure_at) in {Failure.OTHER, Failure.RESET}
        # What it connects to itself is as its default says.
        assert await ask(secure_first, secure_at, b"z") == b"z"
        assert await ask(plain_first, plain_at, b"z") == b"z"
    assert listeners == ["PLAIN", "SECURE"] * 2 + ["SECURE", "PLAIN"]


@in_trio
async def test_certificates_of_several_listeners_are_read_again_all_or_none(certificates, tmp_path):
    copies = [tmp_path / "a.pem", tmp_path / "b.pem"]
    first, second = (Path(certificates.issue(name, "localhost")).read_bytes() for name in ("first", "second"))
    for copy in copies:
        copy.write_bytes(first)
    files = [TlsFiles(str(copy), None, certificates.ca) for copy in copies]

    async def shown(at):
        return ssl.PEM_cert_to_DER_cert(await trio.to_thread.run_sync(ssl.get_server_certificate, tuple(at[:2])))

    def der(pem):
        return ssl.PEM_cert_to_DER_cert(pem[pem.index(b"-----BEGIN CERT") :].decode().partition("-----END")[0] + END)

    async with TcpTransport(tls=files[0], listener_tls={"B": files[1]}, log=lambda line: None) as server:
        places = [await server.listen(name, LOOPBACK, echo) for name in ("A", "B")]
        copies[0].write_bytes(second)
        copies[1].write_text("no certificate")
        with pytest.raises(TransportError, match="b.pem"):
            server.reload_tls()
        assert [await shown(at) for at in places] == [der(first)] * 2
        copies[1].write_bytes(second)
        server.reload_tls()
        assert [await shown(at) for at in places] == [der(second)] * 2


@in_trio
async def test_a_peer_that_says_goodbye_before_it_leaves_holds_up_nobody(certificates):
    """With TLS's close_notify, as Java's clients and servers do."""
    files = certificates.files("server")
    context = ssl.create_default_context(cafile=certificates.ca)
    async with serving(files) as (_, at, _lines, _principals):
        stream = await trio.open_ssl_over_tcp_stream("localhost", at.port, ssl_context=context)
        frame = request_frame(7, b"x")
        await stream.send_all(len(frame).to_bytes(4) + frame)
        assert await stream.receive_some() == (5).to_bytes(4) + frame[4:8] + b"x"
        await stream.aclose()
        assert await ask_with(TlsFiles(ca=certificates.ca), at, b"y") == b"y"


@in_trio
async def test_a_server_that_says_goodbye_behind_its_answer_is_heard(certificates):
    files = certificates.files("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate)

    async def answer_once(stream):
        request = await stream.receive_some()
        await stream.send_all((5).to_bytes(4) + request[8:12] + b"z")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer_once, listeners)
        port = listeners[0].transport_listener.socket.getsockname()[1]
        assert await ask_with(TlsFiles(ca=certificates.ca), Address("127.0.0.1", port)) == b"z"
        nursery.cancel_scope.cancel()


class Records:
    """What a client says behind its handshake, in records of TLS 1.3 that are made here (RFC 8446, 5.2 and 7.2)."""

    def __init__(self, secret):
        self._use(secret)

    def _use(self, secret):
        self._secret, self._numbers = secret, count()
        self._key, self._iv = AESGCM(self._derive("key", 32)), self._derive("iv", 12)

    def _derive(self, label, size):
        name = b"tls13 " + label.encode()
        return HKDFExpand(SHA384(), size, size.to_bytes(2) + bytes([len(name)]) + name + b"\0").derive(self._secret)

    def _record(self, content, kind):
        head = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2)
        nonce = (int.from_bytes(self._iv) ^ next(self._numbers)).to_bytes(12)
        return head + self._key.encrypt(nonce, content + bytes([kind]), head)

    def data(self, content):
        return self._record(content, 23)

    def new_keys(self):
        said = self._record(b"\x18\0\0\x01\0", 22)
        self._use(self._derive("traffic upd", 48))
        return said


@pytest.mark.parametrize("last_of_handshake_in_same_bytes", [False, True])
@in_trio
async def test_new_keys_without_end_hold_up_nobody(certificates, tmp_path, last_of_handshake_in_same_bytes):
    """OpenSSL goes on as long as there is no data: seconds for a megabyte of changes of keys."""
    context = ssl.create_default_context(cafile=certificates.ca)
    context.keylog_filename = str(tmp_path / "keys")
    async with serving(certificates.files("server"), handshake_timeout_ms=60_000) as (server, at, _, _):
        raw = await trio.open_tcp_stream("localhost", at.port)
        sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(received, sent, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await raw.send_all(sent.read())
                received.write(await raw.receive_some())
        assert tls.cipher()[0] == "TLS_AES_256_GCM_SHA384"
        lines = (tmp_path / "keys").read_text().splitlines()
        records = Records(bytes.fromhex(next(x.split()[2] for x in lines if x.startswith("CLIENT_TRAFFIC_SECRET_0"))))
        frame = request_frame(1)
        asked = [records.new_keys() + records.data(len(frame).to_bytes(4) + frame) for _ in range(100)]
        last = sent.read()
        if last_of_handshake_in_same_bytes:
            asked.insert(0, last)
        else:
            await raw.send_all(last)
        await raw.send_all(b"".join(asked))
        answers = 0
        while answers < 100:
            received.write(await raw.receive_some())
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    answers += len(tls.read(8)) // 8
        await raw.send_all(b"".join(records.new_keys() for _ in range(100)))
        await eof(raw)
        await raw.aclose()
        await until(lambda: server.connections[0] == 0)
        assert await ask_with(TlsFiles(ca=certificates.ca), at, b"x") == b"x"
