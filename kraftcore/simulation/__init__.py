"""A whole quorum in one thread: real replicas, logs, snapshots and codec over a simulated disk, network and clock.

Everything that happens in a run is drawn from its seed, so every run can be had again. ``runs.run_seed`` runs one;
``kraftcore simulate`` is the command around it.

    options.py   what a seed draws: which faults, how often, how bad
    agenda.py    virtual time
    network.py   frames between hosts: lost, late, twice, in another order, cut off, refused
    host.py      one machine: a disk, and the process that drives a replica on it
    forming.py   a host with an empty disk that is to begin a quorum
    machine.py   state machines that all of them replicate
    workload.py  what the hosts are for: the port for it; plugins/controller/simulated is one
    counters.py  another one: clients that count
    world.py     hosts, clients and administrators; what goes wrong, and when it stops going wrong
    checks.py    what must never happen, judged from outside
    planted.py   mistakes to plant, to see whether the checks notice
    runs.py      runs by seed, and the shortest one that fails
    replay.py    what a node recorded, run again
    timeline.py  a run for people: text columns and a picture
"""
