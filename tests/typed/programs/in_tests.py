"""The Counter's tests: a quorum to break, and a Kafka."""

from counter import Counter

from kraftcore import Node
from kraftcore.testing import Cluster, KafkaCluster, in_thread


async def check() -> None:
    async with Cluster(3, Counter, election_timeout_ms=500) as cluster:
        leader: Node[Counter] = await cluster.wait_leader()
        total: int = (await leader.append(b"+1")).result
        await cluster.kill(leader)
        heir = await cluster.wait_leader()
        assert heir.state_machine.total == total == cluster.machine(heir).total
        await cluster.assert_all_equal(state=lambda machine: machine.total)
        await cluster.assert_all_equal(state=lambda machine: machine.totl)  # refused
        heir.state_machine.totl  # refused
    Cluster(3, Counter())  # refused
    Cluster(3, Counter, election_timeout=500)  # refused
    Cluster(3, Counter, election_timeout_ms="500")  # refused


with in_thread(KafkaCluster(3, properties={"min.insync.replicas": 2})) as kafka:
    kafka.create_topic("greetings", 3, timeout_s=10)
    broker: int = kafka.wait_leader("greetings")
    address: str = kafka.look(kafka.cluster.address, broker)
    kafka.call(kafka.cluster.wait_isr, "greetings", 3)
    kafka.call(kafka.cluster.wait_isr, 3)  # refused
    kafka.wait_leader("greetings", timeout=3)  # refused
    kafka.look(kafka.cluster.address, "1")  # refused
KafkaCluster(3, controller=1)  # refused
