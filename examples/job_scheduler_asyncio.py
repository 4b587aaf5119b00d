"""The jobs of job_scheduler.py in asyncio, each done exactly once. Run it three times, and kill any of them:

python job_scheduler_asyncio.py NUMBER [FIRST_PORT [HOW_MANY_JOBS]]
"""

import asyncio
import sys
from contextlib import suppress

from job_scheduler import LEASE_MS, STEPS, configuration, say

import kraftcore.aio
from kraftcore import ConflictError, LeaseLostError
from kraftcore.aio import recipes


async def schedule(node: kraftcore.aio.Node, name: str, count: int) -> None:
    """As long as we are elected: add jobs."""
    election = recipes.Election(node, "scheduler", lease_ms=LEASE_MS, info=name)
    jobs = recipes.Dict(node, "jobs")
    while True:
        try:
            async with election.hold() as term:
                say(f"scheduler with token {term.token}")
                for number in range(await jobs.size(), count):
                    transaction = recipes.Transaction(node).check_lock(election, term.token)
                    await transaction.set(jobs, f"job-{number}", {"steps": STEPS}).commit()
                await asyncio.get_running_loop().create_future()  # for ever, or until the lease is lost
        except (LeaseLostError, ConflictError) as error:
            say(f"no scheduler any more: {error}")


async def work(node: kraftcore.aio.Node, name: str) -> None:
    """Do whatever job nobody is at."""
    jobs, results = recipes.Dict(node, "jobs"), recipes.Dict(node, "results")
    while True:
        for job in await jobs.items():
            if results.peek(job) is not None:
                continue
            lock = recipes.Lock(node, f"lock of {job}", lease_ms=LEASE_MS, info=name)
            lease = await lock.try_acquire()
            if lease is None:
                continue
            try:
                await do(job, lease)
                transaction = recipes.Transaction(node).check_lock(lock, lease.token)
                transaction.check(results, job, recipes.ABSENT).set(results, job, {"by": name, "token": lease.token})
                await transaction.commit()
                say(f"done {job} with token {lease.token}")
            except (LeaseLostError, ConflictError) as error:
                say(f"gave up {job}: {error}")
            finally:
                await lease.release()
        await asyncio.sleep(0.1)


async def do(job: str, lease: recipes.Lease) -> None:
    say(f"begin {job} with token {lease.token}")
    for _ in range(STEPS):
        await asyncio.sleep(0.05)  # the work
        await lease.renew()


async def main(number: int, first_port: int = 9191, count: int = 10) -> None:
    config = configuration(number, first_port)
    async with kraftcore.aio.open_node(config, recipes.RecipeMachine()) as node, asyncio.TaskGroup() as tasks:
        tasks.create_task(schedule(node, f"node {number}", count))
        tasks.create_task(work(node, f"node {number}"))


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
with suppress(KeyboardInterrupt):
    asyncio.run(main(*map(int, sys.argv[1:])))
