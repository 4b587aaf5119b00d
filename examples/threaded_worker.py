"""Threads that share a queue with the threads of other processes; a node in each process, in a thread of its own.

Run it three times, with 1, 2 and 3 for NUMBER, and type words; Ctrl-D or Ctrl-C ends it:

    python threaded_worker.py NUMBER [FIRST_PORT]

Needs `pip install 'kraftcore[recipes]'`.
"""

import sys
import threading
from contextlib import suppress

import kraftcore.blocking
from kraftcore import NodeConfig, NodeStoppedError
from kraftcore.blocking import recipes

THREADS = 4


def work(node: kraftcore.blocking.Node[recipes.RecipeMachine]) -> None:
    words, letters = recipes.Queue(node, "words"), recipes.Counter(node, "letters")
    try:
        while True:
            word = words.get()  # waits for one; nobody else gets it
            total = letters.add(len(word))
            line = f"{threading.current_thread().name} took {word!r}; {total} letters so far\n"
            print(line, end="", flush=True)  # with its end, or another thread's line comes between
    except NodeStoppedError:
        return


def main(number: int, first_port: int = 9191) -> None:
    servers = {other: f"127.0.0.1:{first_port + other - 1}" for other in (1, 2, 3)}
    config = NodeConfig(
        node_id=number,
        directory=f"words-{number}",
        cluster_id="words",
        listeners=[servers[number]],
        voters=[f"{other}@{server}" for other, server in servers.items()],
        create="join",
    )
    threads = []
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as node:
        words = recipes.Queue(node, "words")
        for each in range(THREADS):
            threads.append(threading.Thread(target=work, args=(node,), name=f"thread {each}"))
            threads[-1].start()
        for line in sys.stdin:
            for word in line.split():
                words.put(word)
    for thread in threads:
        thread.join()


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
with suppress(KeyboardInterrupt):
    main(*map(int, sys.argv[1:]))
