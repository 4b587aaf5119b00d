"""State machines for tests."""

from __future__ import annotations

from kraftcore.state_machine import StateMachine


class Values(StateMachine):
    """Keeps every value; a record's result is how many there are with it."""

    def __init__(self):
        self.values = []

    def apply(self, batch):
        results = []
        for value in batch.values():
            self.values.append(value)
            results.append(len(self.values))
        return results

    def snapshot(self, sink):
        sink.append(self.values)

    def restore(self, values):
        self.values = list(values)


class Faulty(Values):
    """Raises when it meets the record ``boom``."""

    def apply(self, batch):
        if b"boom" in batch.values():
            raise ZeroDivisionError("boom")
        return super().apply(batch)
