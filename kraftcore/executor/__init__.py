"""The executor: a replica with a log, a state machine and callers, without I/O of its own and without a clock.

Nodes, simulator and scenarios must carry a replica's effects out in the same order, or what the simulator finds says
nothing about nodes. So this order is here, once. Everything is synchronous: the caller (trio, virtual time, a scenario)
hands in events and the time, implements the ports, and calls again when ``due_ms`` is reached or a turn is wanted.

    driver.py             events into a replica; its effects to disk, network and application, in order
    executor.py           a driver with a state machine: proposals, decisions, applying, leadership
    proposals.py          from a proposal to its result
    decisions.py          records that depend on the offset they get
    waiting_queue.py      what the queues of proposals and of decisions share
    applier.py            committed records into the state machine, and the state machine from snapshots
    sessions.py           which retried proposals were applied already
    client_numbers.py     numbers for proposals that may be sent more than once
    snapshot_contents.py  what goes into a snapshot
    recording.py          events and effects as lines of text, to be replayed
"""
