"""The Counter in a program with threads."""

from concurrent.futures import Future

from counter import Counter

import kraftcore.blocking
from kraftcore import Appended, NodeConfig, VotersChanged


def add(node: kraftcore.blocking.Node[Counter], value: int) -> int:
    return node.append(b"%d" % value).result + node.state_machine.total


config = NodeConfig(node_id=1, directory="counter", listeners=["127.0.0.1:0"], create="standalone")
with kraftcore.blocking.open_node(config, Counter()) as node:
    leader: int = node.with_timeout(5).wait_leader()
    total: int = add(node, leader)
    future: Future[Appended[int]] = node.append_nowait(b"+1")
    total += future.result().result
    total += node.call(lambda: node.state_machine.total)
    later: Future[int] = node.submit(node.trio_node.read_barrier)
    many = node.append_many([b"+1"])
    for change in node.events(VotersChanged):
        if isinstance(change, VotersChanged):
            print(change.voters.ids, many.results, later.result())
    node.call(node.trio_node.wait_applied, "3")  # refused
    wrong: str = node.call(lambda: node.state_machine.total)  # refused
    node.submit(node.trio_node.read_barrier).result().upper()  # refused
    node.append(b"+1").result.upper()  # refused
    node.wait_leadr()  # refused
    print(total, wrong)
with kraftcore.blocking.open_or_attach(config, Counter) as either:
    print(add(either, 1))
with kraftcore.blocking.attach("counter", Counter()) as attached:
    print(add(attached, 1))
kraftcore.blocking.open_or_attach(config, Counter())  # refused
