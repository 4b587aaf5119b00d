"""A simulated disk of which a path is slow for as long as a test wants."""

from __future__ import annotations

import threading
from random import Random

from kraftcore.core.disk.simulated import SimulatedDisk


class GatedDisk(SimulatedDisk):
    """Syncs below a path wait for ``open_gate``; those that the event loop's thread asks for are noted."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.path: str | None = None
        self.on_loop: list[str] = []
        self.reached, self.opened = threading.Event(), threading.Event()
        self.sync_latency_ms = self.wait

    def close_gate(self, path: str) -> None:
        self.path = path

    def open_gate(self) -> None:
        self.path = None
        self.opened.set()

    def wait(self, path: str) -> float:
        if self.path is not None and self.path in path:
            if threading.current_thread() is threading.main_thread():
                self.on_loop.append(path)
            else:
                self.reached.set()
                assert self.opened.wait(60)
        return 0.0

    def sync_folder(self, path: str) -> None:
        self.wait(path)
        super().sync_folder(path)

    def replace_file(self, path: str, data: bytes, *, name_waits: bool = False) -> None:
        self.wait(path)
        super().replace_file(path, data, name_waits=name_waits)
