"""A side-car that keeps a quorum's voters as wanted, Kafka's or ours.

    async with kraftcore.admin.connect(bootstrap_controllers=["127.0.0.1:9093"]) as client:
        watcher = Watcher(client, ["127.0.0.1:9093"])
        print(decide(await watcher.look(), watcher.now_ms(), Policy(voters=3)))

or, all of it: ``kraftcore autopilot run --bootstrap-controller 127.0.0.1:9093 --apply``.

============  ==========================================================
``model``     what is known, what is wanted, what is decided
``deciding``  a pure function from the first two to the third
``watching``  asks the quorum, and remembers when who was last seen
``piloting``  looks, decides, acts, tells, and again
============  ==========================================================
"""

from kraftcore.namespace import listing
from kraftcore.plugins.autopilot.deciding import decide
from kraftcore.plugins.autopilot.model import Action, Decision, Policy, Replica, State
from kraftcore.plugins.autopilot.piloting import Pilot, Round
from kraftcore.plugins.autopilot.watching import Watcher

__all__ = ["Action", "Decision", "Pilot", "Policy", "Replica", "Round", "State", "Watcher", "decide"]
__dir__ = listing(__all__)
