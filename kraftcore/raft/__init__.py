"""The consensus, sans-IO: events in, effects out.

No task, socket, file, clock or global random is touched here, so that a whole quorum can be run by seed. A driver (a
node, or the simulator) hands events in and carries the effects out. Begin to read at ``replica``.
"""
