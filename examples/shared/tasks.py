"""Celery's tasks in several worker processes, which share one node: each letter is counted once.

    celery -A tasks worker --concurrency 4
    python -c "import tasks; print(tasks.count.delay('letters').get())"

The broker is a folder here; any other does. Needs `pip install 'kraftcore[recipes]' celery`.
"""

from contextlib import ExitStack
from pathlib import Path

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

import kraftcore.blocking
from kraftcore import NodeConfig
from kraftcore.blocking import recipes

CONFIG = NodeConfig(node_id=1, directory="values", listeners=["127.0.0.1:0"], create="standalone")
FOLDER = Path("broker").resolve()
FOLDER.mkdir(exist_ok=True)

app = Celery("tasks", broker="filesystem://", backend=f"file://{FOLDER}")
app.conf.broker_transport_options = {
    **{each: str(FOLDER) for each in ("data_folder_in", "data_folder_out", "processed_folder", "control_folder")},
    "polling_interval": 0.1,
}
opened = ExitStack()
here: dict[str, recipes.Counter] = {}


@worker_process_init.connect
def open_node(**_: object) -> None:
    """In each worker process, after the fork."""
    node = opened.enter_context(kraftcore.blocking.open_or_attach(CONFIG, recipes.RecipeMachine))
    here["total"] = recipes.Counter(node, "total")


@worker_process_shutdown.connect
def close_node(**_: object) -> None:
    opened.close()


@app.task
def count(word: str) -> int:
    return here["total"].add(len(word))
