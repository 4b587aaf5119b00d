"""The consensus, sans-IO: events in, effects out.

No task, socket, file, clock or global random is touched here; the driver (a node, or the simulator) carries effects
out.
"""
