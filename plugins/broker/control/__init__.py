"""Control requests: a controller of the ZooKeeper era tells this broker what to do, as Kafka 3.9.1 obeys it.

=====================  ===============================================================================================
``authority``          which controller is obeyed: its epoch, and the broker epoch it believes in
``leader_and_isr``     LeaderAndIsr v0-v7: lead and follow (KIP-516)
``stop_replica``       StopReplica v0-v4: replicate no more, delete (KIP-570)
``update_metadata``    UpdateMetadata v0-v8: what clients are told
``standalone_broker``  a process that obeys these requests, with listeners of its own
=====================  ===============================================================================================

One of them at a time, in the order in which they came.
"""
