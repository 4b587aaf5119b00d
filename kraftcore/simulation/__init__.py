"""A whole quorum in one thread: real replicas, logs, snapshots and codec over a simulated disk, network and clock.

Everything that happens in a run is drawn from its seed, so every run can be repeated. ``runs.run_seed`` runs a seed;
``kraftcore simulate`` is the command for it.

    options.py   the faults that a seed draws, with their rates and severity
    agenda.py    virtual time
    network.py   frames between hosts: lost, late, twice, in another order, cut off, refused
    host.py      one machine: a disk, and the process that drives a replica on it
    forming.py   a host with an empty disk that is to begin a quorum
    machine.py   state machines that the hosts replicate
    workload.py  the base class of workloads; plugins/controller/simulated has one
    counters.py  the workload of clients that count
    world.py     hosts, clients and administrators; their faults, and the healing at the end
    checks.py    the rules that are checked, by logs and messages
    planted.py   mistakes to plant, to see whether the checks notice
    runs.py      runs by seed, and the shortest one that fails
    replay.py    a node's recording, run again
    timeline.py  a run for people: text columns and a picture
"""
