"""What looks at a quorum from outside, or takes part in a node."""

from kraftcore import (
    LocalError,
    NodeConfig,
    NotLeaderError,
    OutcomeUnknownError,
    StateMachine,
    admin,
    observe,
    open_node,
)
from kraftcore.node.plugin import Plugin, PluginNode
from kraftcore.observer import ObservedRecord


class Watching(Plugin):
    name = "watching"

    async def run(self, node: PluginNode) -> None:
        async for event in node.events():
            print(event, node.leading_epoch)


async def operate() -> None:
    async with admin.connect(bootstrap_controllers=["127.0.0.1:9093"]) as client:
        quorum = await client.describe_quorum()
        leader: int = quorum.leader_id
        await client.remove_voter(leader, quorum.voters[0].key.directory_id)
        await client.remove_voter("3", quorum.voters[0].key.directory_id)  # refused
    async with observe(["127.0.0.1:9093"]) as observer:
        async for record in observer.records(types=["TopicRecord"]):
            if isinstance(record, ObservedRecord):
                print(record.offset, observer.progress.high_watermark)
            record.offset  # refused
    admin.connect(bootstrap_controller=["127.0.0.1:9093"])  # refused


async def embed(config: NodeConfig, machine: StateMachine) -> None:
    async with open_node(config, machine, plugins=[Watching()]) as node:
        try:
            await node.append(b"x", client_id="me", sequence=1)
        except (NotLeaderError, OutcomeUnknownError) as error:
            print(error)
        except LocalError:
            raise
    open_node(config, machine, plugins=[Watching])  # refused
