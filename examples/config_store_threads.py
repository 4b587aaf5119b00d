"""The settings of config_store.py in threads. Run it three times, with 1, 2 and 3 for NUMBER, and type the same:

python config_store_threads.py NUMBER [FIRST_PORT]
"""

import signal
import sys
import threading

from config_store import configuration

import kraftcore.blocking
from kraftcore import LocalError, NodeConfig
from kraftcore.blocking import recipes


def say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)  # in one piece: two threads print


def show_changes(settings: recipes.Dict[str, str]) -> None:
    """In a thread of its own, until the node ends."""
    with settings.watch() as changes:
        say(f"now: {settings.peek_items()}")
        for change in changes:
            say(f"change: {change.key} = {change.value} (version {change.version})")


def answer(settings: recipes.Dict[str, str], line: str) -> object:
    match line.split():
        case ["set", key, value]:
            return f"version {settings.set(key, value)}"
        case ["set", key, value, "if", version]:
            found = settings.set_if(key, value, int(version))
            return "it has another version" if found is None else f"version {found}"
        case ["get", key]:
            return settings.get_versioned(key)
        case ["delete", key]:
            return settings.delete(key)
        case ["all"]:
            return settings.items()
    raise LocalError("say: set KEY VALUE [if VERSION], get KEY, delete KEY, or all")


def main(config: NodeConfig) -> None:
    with kraftcore.blocking.open_node(config, recipes.RecipeMachine()) as node:
        settings = recipes.Dict(node, "settings")
        node.read_barrier()
        threading.Thread(target=show_changes, args=(settings,)).start()
        for line in sys.stdin:
            try:
                say(f"answer: {answer(settings, line)}")
            except (LocalError, ValueError) as error:
                say(f"error: {error}")


if sys.argv[1:2] not in (["1"], ["2"], ["3"]):
    sys.exit(__doc__)
signal.signal(signal.SIGINT, signal.SIG_DFL)
main(configuration(*map(int, sys.argv[1:])))
