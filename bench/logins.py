"""Whether the time of a refusal tells a wrong password from a user nobody knows. In one process, without sockets.

    python -m bench.logins                   # a table; about a minute of a quiet core
    python -m bench.logins --count 1000 --json

For each mechanism logins of three kinds take turns in random order: two users with a wrong password, and one that is
not known. ``auc`` is how often a refusal of this kind took longer than one of the first, of all pairs: 0.5 tells
nothing, 0 or 1 everything. "wrong, other user" is the same question where there is nothing to tell: what the method
itself makes of it. What a server adds beyond this (the network, ``connection.failed.authentication.delay.ms``) hides
more.
"""

# ruff: noqa: E402 (only now may anything import kraftcore)
from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Callable

from bench.paths import measure_the_installed_package

measure_the_installed_package()

from kraftcore.errors import AuthenticationError
from kraftcore.security.sasl.credentials import Passwords
from kraftcore.security.sasl.mechanism_interface import ServerMechanism
from kraftcore.security.sasl.plain_server import PlainServer
from kraftcore.security.sasl.scram_client import Password, ScramClient
from kraftcore.security.sasl.scram_server import ScramServer

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {f"user-{number:03}": f"password-{number}" for number in range(100)}
SECRET = b"of the node"
KINDS = {"wrong": "user-007", "wrong, other user": "user-042", "unknown": "user-xyz"}


def servers() -> dict[str, Callable[[], ServerMechanism]]:
    known = Passwords.of(USERS, SCRAM, SECRET)
    found: dict[str, Callable[[], ServerMechanism]] = {
        name: lambda name=name: ScramServer(name, known, SECRET)
        for name in SCRAM  # type: ignore[misc]
    }
    return {"PLAIN": lambda: PlainServer(USERS, SECRET), **found}


def refusal_ns(mechanism: str, server: ServerMechanism, user: str, password: Password) -> int:
    """How long the server thinks about a login that it refuses, all messages together."""
    if mechanism == "PLAIN":
        message = f"\0{user}\0not it".encode()
        begin = time.perf_counter_ns()
        try:
            server.respond(message)
        except AuthenticationError:
            return time.perf_counter_ns() - begin
        raise AssertionError("it was let in")
    client = ScramClient(mechanism, user, password)
    message = client.first()
    begin = time.perf_counter_ns()
    challenge = server.respond(message)
    taken = time.perf_counter_ns() - begin
    proof = client.respond(challenge)
    assert proof is not None
    begin = time.perf_counter_ns()
    try:
        server.respond(proof)
    except AuthenticationError:
        return taken + time.perf_counter_ns() - begin
    raise AssertionError("it was let in")


def auc(ones: list[int], others: list[int]) -> float:
    """The part of all pairs in which the first took longer; equal ones count half."""
    ranked = sorted([(value, 0) for value in ones] + [(value, 1) for value in others])
    total, place = 0.0, 0
    while place < len(ranked):
        end = place
        while end < len(ranked) and ranked[end][0] == ranked[place][0]:
            end += 1
        rank = (place + end + 1) / 2
        total += rank * sum(1 for _, which in ranked[place:end] if which == 0)
        place = end
    return (total - len(ones) * (len(ones) + 1) / 2) / (len(ones) * len(others))


def measure(mechanism: str, make: Callable[[], ServerMechanism], count: int) -> dict[str, dict[str, float]]:
    draw = random.Random(1)
    password = Password("not it")  # hashes once for each salt: that is the client's time
    times: dict[str, list[int]] = {kind: [] for kind in KINDS}
    order = [kind for kind in KINDS for _ in range(count)]
    draw.shuffle(order)
    for _ in range(20):
        for user in KINDS.values():
            refusal_ns(mechanism, make(), user, password)
    gc.disable()
    try:
        for kind in order:
            times[kind].append(refusal_ns(mechanism, make(), KINDS[kind], password))
    finally:
        gc.enable()
    wrong = times["wrong"]
    return {
        kind: {"median_us": statistics.median(found) / 1000, "auc": auc(found, wrong)} for kind, found in times.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="logins of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print(f"{'':16}{'':20}{'median us':>10}{'auc':>8}")
    for mechanism, make in servers().items():
        for kind, found in measure(mechanism, make, options.count).items():
            if options.json:
                print(json.dumps({"mechanism": mechanism, "kind": kind, **found}), flush=True)
            else:
                print(f"{mechanism:16}{kind:20}{found['median_us']:10.2f}{found['auc']:8.3f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
