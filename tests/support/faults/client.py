"""A client of a fault round: asks, waits, asks another node, and writes down what it saw."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import trio
from linearizability import Recorder

REPEATING_S = 15.0  # a numbered write is repeated for so long
KEY_S = 0.5  # then other keys: the search for an order stays small


class Outcomes:
    """What all clients of a round saw.

    Attributes:
        acknowledged: writes that were reported as committed.
        numbered: writes with a sequence: applied once at most.
        leader: the last one that was named.
        answered: operations that ended with an answer.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.recorder = Recorder()
        self.acknowledged: set[int] = set()
        self.numbered: set[int] = set()
        self.leader: int | None = None
        self.answered = 0
        self.counts = counts
        self._last = 0

    def next_number(self) -> int:
        """Names an operation; also what it writes."""
        self._last += 1
        return self._last


class Client:
    """One client, one operation at a time.

    Args:
        number: its id, > 0.
        ports: where the nodes listen for clients.
        rng: draws what it does.
        outcomes: gets what it saw.
    """

    def __init__(self, number: int, ports: dict[int, int], rng: Random, outcomes: Outcomes) -> None:
        self.number = number
        self._ports = ports
        self._rng = rng
        self._outcomes = outcomes
        self._streams: dict[int, trio.SocketStream] = {}
        self._client_id, self._sequence = number, 0
        self._seen: dict[str, Any] = {}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._operate()
                await trio.sleep(self._rng.expovariate(100))
        finally:
            self.close()

    async def _operate(self) -> None:
        rng, outcomes = self._rng, self._outcomes
        window = int(trio.current_time() / KEY_S)
        key = f"{rng.choice('rrc')}{window}"
        number = outcomes.next_number()
        if rng.random() < 0.35:
            name, arguments, ask = "get", (key,), ("get" if key[0] == "r" else "sum")
        elif key[0] == "c":
            name, arguments, ask = "add", (key, rng.randrange(1, 100)), "add"
        elif rng.random() < 0.4:
            name, arguments, ask = "cas", (key, self._seen.get(key), number), "cas"
        else:
            name, arguments, ask = "set", (key, number), "set"
        numbered = name != "get" and rng.random() < 0.5
        sequence = None
        if numbered:
            sequence = self._sequence
            self._sequence += 1
            outcomes.numbered.add(number)
        with outcomes.recorder.operation(name, *arguments, process=self.number) as found:
            answer = await self._until_known([number, self._client_id, sequence, ask, list(arguments)])
            if numbered and (answer is None or "done" not in answer):
                # Its number may be used or not, so that nobody knows the next one: go on as another client.
                self._client_id, self._sequence = rng.getrandbits(62), 0
            if answer is not None and "done" in answer:
                outcomes.acknowledged.add(number)
            if answer is not None and "ok" in answer:
                found.append(answer["ok"])
                outcomes.answered += 1
                self._seen[key] = answer["ok"] if name == "get" else arguments[-1]

    async def _until_known(self, request: list) -> dict | None:
        """The answer; None if nobody will ever know."""
        may_repeat = request[2] is not None or request[3] in ("get", "sum")
        to = self._outcomes.leader
        with trio.move_on_after(REPEATING_S):
            while True:
                if to is None or self._rng.random() < 0.2:
                    to = self._rng.choice(list(self._ports))
                answer = await self.ask(to, request)
                if answer is not None and "not leader" in answer:
                    to = self._outcomes.leader = answer["not leader"]
                    await trio.sleep(0.01)
                elif answer is not None and ("ok" in answer or "done" in answer):
                    return answer
                elif not may_repeat and (answer is None or "unknown" in answer):
                    return None
                else:
                    to = None
                    await trio.sleep(0.01)
        return None

    async def ask(self, node: int, request: list, limit_s: float | None = None) -> dict | None:
        """One attempt; None if nothing is known of its fate. A connection that is refused counts as ``not leader``."""
        stream = self._streams.pop(node, None)
        if stream is None:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", self._ports[node])
            except OSError:
                return {"not leader": None}
        data = b""
        try:
            with trio.move_on_after(self._rng.uniform(0.5, 3.0) if limit_s is None else limit_s):
                await stream.send_all(json.dumps(request).encode() + b"\n")
                while not data.endswith(b"\n"):
                    more = await stream.receive_some(1 << 16)
                    if not more:
                        break
                    data += more
        except (OSError, trio.BrokenResourceError):
            pass
        finally:
            if data.endswith(b"\n"):
                self._streams[node] = stream
            else:  # what comes later would be taken for the answer to another question
                stream.socket.close()
        return json.loads(data) if data.endswith(b"\n") else None

    def close(self) -> None:
        """Close its connections."""
        for stream in self._streams.values():
            stream.socket.close()
        self._streams.clear()
