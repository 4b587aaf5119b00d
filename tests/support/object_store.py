"""An object store: moto's S3 server in a process of its own, and the jars with which Spark reaches it as ``s3a://``."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from kafka_lab import HOST, free_port, is_listening, wait_for
from kafka_tools import CACHE, COPY_JARS, RESOLVE_TIMEOUT_S, digest_of, locked, make_folder
from pyarrow import fs

_POM = Path(__file__).parent / "s3a" / "pom.xml"
_OF_SPARK = ("netty-", "slf4j-", "commons-", "httpclient-4", "httpcore-4")
BUCKET = "fleets"
_CHANGING = ("PUT", "POST", "DELETE")
KEY, SECRET, REGION = "key", "secret", "us-east-1"


def jars() -> list[Path]:
    """Hadoop's S3A and what it needs that Spark has not got."""
    found = CACHE / f"s3a-{digest_of([_POM])}"
    with locked(CACHE / "lock"):
        if not found.is_dir():
            command = ["mvn", "-q", "-B", "-f", str(_POM), COPY_JARS, "-DoutputDirectory={}", "-DincludeScope=runtime"]
            make_folder(found, command, "{}", RESOLVE_TIMEOUT_S)
    return sorted(jar for jar in found.glob("*.jar") if not jar.name.startswith(_OF_SPARK))


class Between(ThreadingHTTPServer):
    """A proxy before a store. It may cut its callers off, as if they had been killed, or lose the store's answer.

    Args:
        address: where it listens.
        store: the store's address.

    Attributes:
        changes: requests so far that change something in the store.
        last: the number of the change from which on every caller is refused; None: nobody is.
        denies: whether nobody may change anything.
        loses: says of a change, by method and path, whether its answer is lost; each is asked about once.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], store: str) -> None:
        super().__init__(address, _Handler)
        self.store = store
        self.endpoint = f"http://{HOST}:{self.server_port}"
        self.changes = 0
        self.last: int | None = None
        self.denies = False
        self.loses: Callable[[str, str], bool] = lambda *_: False
        self._lock = Lock()
        self._lost: set[str] = set()

    def handle_error(self, *_: Any) -> None:
        """A caller that hangs up is none of ours."""

    def admits(self, method: str) -> bool:
        """Whether the store gets this request."""
        with self._lock:
            self.changes += method in _CHANGING
            may = not self.denies or method not in _CHANGING
            return may and (self.last is None or self.changes <= self.last)

    def answers(self, method: str, path: str) -> bool:
        """Whether the caller gets the store's answer."""
        with self._lock:
            if method not in _CHANGING or path in self._lost or not self.loses(method, path):
                return True
            self._lost.add(path)
            return False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Between

    def handle_one(self) -> None:
        body = self._body()
        if not self.server.admits(self.command):
            self._send(403, [], b"<Error><Code>AccessDenied</Code><Message>cut off</Message></Error>")
            return
        store = HTTPConnection(self.server.store)
        store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection"):
                store.putheader(name, value)
        store.endheaders(body)
        found = store.getresponse()
        data = found.read()
        store.close()
        if self.server.answers(self.command, self.path):
            self._send(found.status, found.getheaders(), data)
        else:
            self.close_connection = True

    def _body(self) -> bytes:
        # As it came: pyarrow sends chunks.
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found, size = b"", 1
        while size:
            line = self.rfile.readline()
            size = int(line.partition(b";")[0], 16)
            found += line + self.rfile.read(size)
            while (line := self.rfile.readline()).strip():
                found += line
            found += line
        return found

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response_only(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class ObjectStore:
    """A running store with one bucket.

    Args:
        port: where it listens.
        log: what it writes, a line a request.
    """

    def __init__(self, port: int, log: Path) -> None:
        self._log = log
        self.endpoint = f"http://{HOST}:{port}"
        self.files = fs.S3FileSystem(
            endpoint_override=f"{HOST}:{port}", scheme="http", access_key=KEY, secret_key=SECRET, region=REGION,
            allow_bucket_creation=True,
        )  # fmt: skip
        self.files.create_dir(BUCKET)

    @property
    def environment(self) -> dict[str, str]:
        """With which pyarrow reads ``s3://``."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    @contextmanager
    def between(self) -> Iterator[Between]:
        """A proxy before this store, until the block ends."""
        with Between((HOST, 0), self.endpoint.rpartition("/")[2]) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()

    @property
    def hadoop(self) -> dict[str, str]:
        """Hadoop's settings with which Spark reaches it."""
        return {
            "fs.s3a.endpoint": self.endpoint, "fs.s3a.endpoint.region": REGION, "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false", "fs.s3a.access.key": KEY, "fs.s3a.secret.key": SECRET,
        }  # fmt: skip

    def requests(self) -> list[tuple[str, str]]:
        """All that it was asked for so far: method, and path with query."""
        return re.findall(r"([A-Z]+) (/\S*) HTTP/1", self._log.read_text())

    def upload(self, folder: Path, name: str) -> None:
        """Put a folder's files there, in place of those of the same names."""
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            with self.files.open_output_stream(f"{BUCKET}/{name}/{path.relative_to(folder)}") as stream:
                stream.write(path.read_bytes())

    def names(self, folder: str) -> list[str]:
        """All files below a folder, relative to it."""
        root = f"{BUCKET}/{folder}"
        found = self.files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        return sorted(one.path.removeprefix(f"{root}/") for one in found if one.is_file)

    def read(self, name: str) -> bytes:
        """A file's content."""
        with self.files.open_input_file(f"{BUCKET}/{name}") as file:
            return bytes(file.read())

    def rows(self, tables: str) -> dict[str, list[dict[str, Any]]]:
        """The rows of all tables that have any; read without our code."""
        options = {**self.environment, "AWS_ALLOW_HTTP": "true"}
        found: dict[str, list[dict[str, Any]]] = {}
        for name in sorted({one.partition("/")[0] for one in self.names(tables) if "/_delta_log/" in one}):
            log = DeltaTable(f"s3://{BUCKET}/{tables}/{name}", storage_options=options)
            for file in log.file_uris():
                if name != "kraftcore_runs":
                    data = self.read(file.removeprefix(f"s3://{BUCKET}/"))
                    found.setdefault(name, []).extend(pq.read_table(pa.BufferReader(data)).to_pylist())
        return found


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store that is empty but for a bucket, until the block ends."""
    port = free_port()
    command = [sys.executable, "-P", "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with (
        tempfile.NamedTemporaryFile(prefix="store-", suffix=".log") as log,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as server,
    ):

        def listens() -> bool:
            if server.poll() is not None:
                raise RuntimeError(f"the store ended with {server.returncode}: {Path(log.name).read_text()[-2000:]}")
            return is_listening(port)

        try:
            wait_for("the store to listen", listens)
            yield ObjectStore(port, Path(log.name))
        finally:
            server.kill()
