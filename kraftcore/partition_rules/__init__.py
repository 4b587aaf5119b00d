"""The rules by which a controller changes partitions, compiled: what an election or a new ISR writes.

The metadata image is state, and says how records change it; which records are written is decided here.

``partition_change``    the record of a change, from what is wanted: replicas, ISR, leader, epochs, directories
``isr_change``          the checks of an ISR that a leader proposes
``leader_choice``       who becomes leader of a partition
``elect_leaders``       ElectLeaders without a list: elections in all partitions that need one
"""
