"""Scripts from seeds. A step is {"api", "version", "body", "note"}, or {"op": "restart"} and {"op": "snapshot"}.

The generator keeps a rough model (which brokers and topics ought to exist) only to draw arguments that mean something.
What it cannot know, it names symbolically; see resolve.py. About a third of the steps are meant to be refused; their
note starts with "bad".
"""

import random

from twin.steps.access import AccessSteps
from twin.steps.cluster import ClusterSteps
from twin.steps.configs import ConfigSteps
from twin.steps.draws import BROKERS
from twin.steps.partitions import PartitionSteps
from twin.steps.topics import TopicSteps

RELEASES = ["3.7-IV0", "3.7-IV2", "3.8-IV0", "3.9-IV0", "4.0-IV1", "4.1-IV0", "4.2-IV1"]
WEIGHTS = {
    "register": 7,
    "heartbeat": 17,
    "alter_partition": 20,
    "create_topics": 10,
    "delete_topics": 4,
    "create_partitions": 4,
    "elect_leaders": 6,
    "starve": 3,
    "reassign": 8,
    "list_reassignments": 2,
    "incremental_alter_configs": 8,
    "alter_configs": 3,
    "create_acls": 5,
    "delete_acls": 3,
    "describe_acls": 4,
    "client_quotas": 4,
    "scram": 4,
    "describe_scram": 1,
    "features": 4,
    "unregister": 2,
    "assign_dirs": 4,
    "producer_ids": 2,
    "describe_cluster": 1,
    "api_versions": 1,
    "describe_quorum": 1,
    "describe_configs": 2,
    "tokens": 1,
    "controller_registration": 1,
    "voters": 1,
}


class Generator(PartitionSteps, TopicSteps, ConfigSteps, AccessSteps, ClusterSteps):
    def script(self, steps):
        for b in BROKERS[:4]:
            self.register_good(b)
            self.heartbeat_good(b, "unfence")
        due = self.rng.randint(30, 60)
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        while len(self.steps) < steps:
            if len(self.steps) >= due:
                op = self.pick("restart", "restart", "snapshot")
                self.steps.append(
                    {"op": op, "note": "kill -9 and start" if op == "restart" else "snapshot, and start from it"}
                )
                self.rename()
                due = len(self.steps) + self.rng.randint(35, 70)
            elif len(self.usable()) < 3 and self.chance(0.5):
                self.revive()
            elif len(self.topics) < 3 and self.chance(0.3):
                self.create_topics(False)
            else:
                getattr(self, self.rng.choices(names, weights)[0])(self.chance(self.bad_rate))
        if self.steps[steps:] and self.steps[steps].get("glue"):  # not to end between a pair
            self.steps[steps - 1] = {"op": "restart", "note": "kill -9 and start"}
        return self.steps[:steps]


def generate(seed, steps, authorizer=True):
    """The script of a seed. Every third starts from an older metadata.version and may upgrade on the way."""
    draw = random.Random(f"head {seed}")
    properties = {"metadata.log.max.record.bytes.between.snapshots": draw.choice([20971520, 6000, 2500])}
    if authorizer:
        properties.update(
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        )
    g = Generator(seed)
    script = {"format": 1, "seed": seed, "properties": properties}
    if seed % 3 == 0:
        script["release"], g.old = draw.choice(RELEASES), True
    return {**script, "steps": g.script(steps)}
