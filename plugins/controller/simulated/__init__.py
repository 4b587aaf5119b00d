"""The controller as a workload of the simulator: ``kraftcore simulate --workload controller``.

The `Service` that nodes run, on simulated hosts; scripted brokers and administrators talk to it over the simulated
network, and its promises are checked after every event.

    workload.py  hosts with a controller each: timers, requests, leadership
    clients.py   how brokers and administrators reach the host that they take for the active controller
    brokers.py   brokers: registration, heartbeats, shutdowns, failures, ISRs
    admins.py    administrators: topics, configurations, elections, reassignments, features
    rules.py     the rules that are checked
    planted.py   mistakes to plant, to see whether the rules notice
"""
