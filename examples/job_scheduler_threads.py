"""The jobs of job_scheduler.py in threads, each done exactly once. Run it three times, and kill any of them:

python job_scheduler_threads.py NUMBER [FIRST_PORT [HOW_MANY_JOBS]]
"""

import sys
import threading
import time
from contextlib import suppress

from job_scheduler import LEASE_MS, STEPS, configuration, say

import kraftcore.blocking
from kraftcore import ConflictError, LeaseLostError, NodeStoppedError
from kraftcore.blocking import recipes


def schedule(node: kraftcore.blocking.Node, name: str, count: int) -> None:
    """As long as we are elected: add jobs."""
    election = recipes.Election(node, "scheduler", lease_ms=LEASE_MS, info=name)
    jobs = recipes.Dict(node, "jobs")
    while True:
        try:
            with election.hold() as term:
                say(f"scheduler with token {term.token}")
                for number in range(jobs.size(), count):
                    transaction = recipes.Transaction(node).check_lock(election, term.token)
                    transaction.set(jobs, f"job-{number}", {"steps": STEPS}).commit()
                while term.is_valid:  # a thread cannot be cancelled, so it looks
                    time.sleep(0.1)
        except (LeaseLostError, ConflictError) as error:
            say(f"no scheduler any more: {error}")
        except NodeStoppedError:  # the program ends
            return


def work(node: kraftcore.blocking.Node, name: str) -> None:
    """Do whatever job nobody is at."""
    jobs, results = recipes.Dict(node, "jobs"), recipes.Dict(node, "results")
    while True:
        for job in jobs.items():
            if results.peek(job) is not None:
                continue
            lock = recipes.Lock(node, f"lock of {job}", lease_ms=LEASE_MS, info=name)
            lease = lock.try_acquire()
            if lease is None:
                continue
            try:
                do(job, lease)
                transaction = recipes.Transaction(node).check_lock(lock, lease.token)
                transaction.check(results, job, recipes.ABSENT).set(results, job, {"by": name, "token": lease.token})
                transaction.commit()
                say(f"done {job} with token {lease.token}")
            except (LeaseLostError, ConflictError) as error:
                say(f"gave up {job}: {error}")
            finally:
                lease.release()
        time.sleep(0.1)


def do(job: str, lease: recipes.Lease) -> None:
    say(f"begin {job} with token {lease.token}")
    for _ in range(STEPS):
        time.sleep(0.05)  # the work
        lease.renew()


def main(number: int, first_port: int = 9191, count: int = 10) -> None:
    config = configuration(number, first_port)
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as node:
        threading.Thread(target=schedule, args=(node, f"node {number}", count)).start()
        work(node, f"node {number}")


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
with suppress(KeyboardInterrupt):
    main(*map(int, sys.argv[1:]))
