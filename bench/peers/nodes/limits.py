"""What the machine allows, measured beside the clusters: durable appends, and one round trip over loopback."""

from __future__ import annotations

import os
import socket
import statistics
import time
from pathlib import Path

APPEND_BYTES = 4096
MESSAGE_BYTES = 128


def fdatasync_s(folder: Path, seconds: float) -> float:
    """Median time of a 4 KiB append to a file and its fdatasync."""
    path = folder / "fdatasync"
    block = b"x" * APPEND_BYTES
    times: list[float] = []
    with path.open("wb", buffering=0) as file:
        deadline = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < deadline or not times:
            file.write(block)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    path.unlink()
    return statistics.median(times)


def batch_s(folder: Path, size: int, writers: int, seconds: float) -> float:
    """Time from sync to sync in each of several processes that append ``size`` bytes and sync, again and again."""
    block = os.urandom(size)
    children = []
    for number in range(writers):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                count = 0
                with (folder / f"batches-{number}").open("wb", buffering=0) as file:
                    begin = time.perf_counter()
                    while (spent := time.perf_counter() - begin) < seconds or not count:
                        file.write(block)
                        os.fdatasync(file.fileno())
                        count += 1
                os.write(writer, repr(spent / count).encode())
            finally:
                os._exit(0)  # whatever happened: the benchmark goes on in one process only
        os.close(writer)
        children.append((child, reader))
    times = []
    for number, (child, reader) in enumerate(children):
        times.append(float(os.read(reader, 100)))
        os.close(reader)
        os.waitpid(child, 0)
        (folder / f"batches-{number}").unlink()
    return statistics.mean(times)


def round_trip_s(seconds: float) -> float:
    """Median time of a small message to another process over TCP on loopback, and back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    child = os.fork()
    if child == 0:
        near.close()
        while data := far.recv(MESSAGE_BYTES):
            far.sendall(data)
        os._exit(0)
    far.close()
    message = b"x" * MESSAGE_BYTES
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < deadline or not times:
        near.sendall(message)
        near.recv(MESSAGE_BYTES)
        times.append(time.perf_counter() - begin)
    near.close()
    os.waitpid(child, 0)
    return statistics.median(times)
