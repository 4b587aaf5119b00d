"""Carries out the effects of a replica, in the same order for nodes, simulator and scenarios.

Everything here is synchronous and reads no clock: its caller (trio, virtual time, a scenario) hands in events and the
time, implements the ports, and calls again when ``due_ms`` is reached or a turn is wanted.

    driver.py        events into a replica; its effects to disk, network and application, in order
    executor.py      a driver with a state machine: proposals, decisions, applying, leadership
    proposals.py     from a proposal to its result
    decisions.py     records that depend on where they will stand in the log
    applier.py       committed records into the state machine, and back from snapshots
    sessions.py      which retried proposals were applied already
    numbering.py     numbers for proposals that may be asked for more than once
    snapshotting.py  when a snapshot is due, and what goes into it
"""
