"""docs/security.md: a reader who types its commands in order gets what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka_lab import free_port
from project import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
PATIENCE_S = 120
SERVER = "kraftcore server start c1.properties\n"


@pytest.fixture
def page(tmp_path) -> str:
    """The page with ports that are free, its files written."""
    text = PAGE
    for number, port in ((number, free_port()) for number in (9093, 9094)):
        text = re.sub(rf"127\.0\.0\.1:{number}\b", f"127.0.0.1:{port}", text)
    files = re.findall(r"```properties\n# (\S+)\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == ["c1.properties", "admin.properties", "alice.properties", "ops.properties"]
    for name, content in files:
        (tmp_path / name).write_text(content)
    return text


def shell(block: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_every_command_of_the_page(page, tmp_path):
    log = tmp_path / "server.log"
    server: subprocess.Popen[bytes] | None = None
    refused = 0
    try:
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
            if block == SERVER:
                command = [str(Path(sys.executable).parent / "kraftcore"), *block.split()[1:]]
                with log.open("wb") as output:
                    server = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
                deadline = time.monotonic() + PATIENCE_S
                while "leader leaderId=1" not in log.read_text():
                    assert server.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.05)
                continue
            done = shell(block, tmp_path)
            told = f"{block}\n{done.stdout}\n{done.stderr}\n{log.read_text() if server else ''}"
            wanted = re.match(r"# refused: (.*)\n", block)
            if wanted is None:
                assert done.returncode == 0, told
            else:
                assert done.returncode != 0, told
                assert wanted[1] in done.stdout + done.stderr, told
                refused += 1
        assert server is not None
        assert refused == 2
        quoted = re.search(r"`(Principal = User:alice is Denied .*? DefaultDeny)`", page, re.DOTALL)
        assert quoted is not None
        assert quoted[1].replace("\n", " ") in log.read_text()
    finally:
        if server is not None:
            server.terminate()
            server.wait(PATIENCE_S)
    assert server.returncode == 0, log.read_text()
    assert "admin-secret" not in log.read_text()
