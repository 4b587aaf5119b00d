"""A pool of processes that attach to the node of the process which made the pool.

    python pool.py

Needs `pip install 'kraftcore[recipes]'`.
"""

import multiprocessing
from contextlib import ExitStack

import kraftcore.blocking
from kraftcore import NodeConfig
from kraftcore.blocking import recipes

CONFIG = NodeConfig(node_id=1, directory="values", listeners=["127.0.0.1:0"], create="standalone", attachable=True)
opened = ExitStack()


def begin() -> None:
    """In each process of the pool; without anything but the directory."""
    global total
    node = opened.enter_context(kraftcore.blocking.attach(CONFIG.directory, recipes.RecipeMachine()))
    total = recipes.Counter(node, "total")


def count(word: str) -> int:
    return total.add(len(word))


def main() -> None:
    with (
        kraftcore.blocking.open_node(CONFIG, recipes.RecipeMachine()) as owner,
        multiprocessing.get_context("spawn").Pool(4, begin) as pool,
    ):
        owner.wait_leader()
        words = ["word" + "s" * number for number in range(12)]
        print(f"{len(pool.map(count, words, chunksize=1))} words, the last one made it {max(pool.map(count, words))}")
        pool.close()
        pool.join()


if __name__ == "__main__":
    main()
