"""Jobs that are done exactly once, by whichever process is there: leases, and fencing tokens against the paused.

Run it three times, with 1, 2 and 3 for NUMBER; kill any of them in the middle of a job, or all, and start them again:

    python job_scheduler.py NUMBER [FIRST_PORT [HOW_MANY_JOBS]]

One of them is the scheduler, elected, and adds jobs. All of them work. A job belongs to whoever has its lock; if that
process dies, the lease ends and another begins the job anew. A process that was paused may come back and believe that
the job is still its own: what it writes carries the lock's token, and is refused, for the lock has another one by then.

Needs `pip install 'kraftcore[recipes]'`.
"""

import sys
from functools import partial

import trio

from kraftcore import ConflictError, LeaseLostError, Node, NodeConfig, open_node, recipes

LEASE_MS = 1500
STEPS = 4


def say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # in one piece, for programs with threads


async def schedule(node: Node, name: str, count: int) -> None:
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
                await trio.sleep_forever()
        except (LeaseLostError, ConflictError) as error:
            say(f"no scheduler any more: {error}")


async def work(node: Node, name: str) -> None:
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
        await trio.sleep(0.1)


async def do(job: str, lease: recipes.Lease) -> None:
    say(f"begin {job} with token {lease.token}")
    for _ in range(STEPS):
        await trio.sleep(0.05)  # the work
        await lease.renew()


def configuration(number: int, first_port: int) -> NodeConfig:
    servers = {other: f"127.0.0.1:{first_port + other - 1}" for other in (1, 2, 3)}
    return NodeConfig(
        node_id=number,
        directory=f"jobs-{number}",
        cluster_id="jobs",
        listeners=[servers[number]],
        voters=[f"{other}@{server}" for other, server in servers.items()],
        create="join",
    )


async def main(number: int, first_port: int = 9191, count: int = 10) -> None:
    config = configuration(number, first_port)
    async with open_node(config, recipes.RecipeMachine()) as node, trio.open_nursery() as nursery:
        nursery.start_soon(schedule, node, f"node {number}", count)
        nursery.start_soon(work, node, f"node {number}")


if __name__ == "__main__":
    if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
        sys.exit(__doc__)
    try:
        trio.run(partial(main, *map(int, sys.argv[1:])))
    except* KeyboardInterrupt:
        pass
