"""Partitions as a workload of the simulator: ``kraftcore simulate --workload partitions``.

Brokers run the partitions, fetching, ISR changes and request handlers of production on simulated disks and a simulated
network, under the controllers of ``plugins/controller/simulated``; producers and consumers are scripted. The promises
of replication are checked after every event.

    workload.py      brokers and clients in a world of controllers, and what goes wrong with them
    brokers.py       a broker: its processes, its disk, who talks to it
    cleaning.py      what Kafka's cleaner leaves of a broker's logs
    process.py       one process of a broker: the parts of production, put together
    requests.py      what a broker remembers of requests that it answers
    disk_turns.py    whose turn it is to change a broker's logs
    kafka_leader.py  what a leader of Kafka's does and kraftcore's does not: transactions
    clients.py       producers, consumers, administrators
    rules.py         what must hold
    truth.py         what is committed of each partition, as seen from outside
    planted.py       mistakes to plant, to see whether the rules notice
"""
