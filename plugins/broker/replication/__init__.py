"""Replication between brokers: followers fetch, and leaders have the controller change the ISR.

======================  ================================================================================================
``follower_fetch``           a follower's side: what is asked of leaders, and what is done with their answers
``leader_session``      the fetch session of a follower with its leader (KIP-227)
``fetch_schedule``            which leader is asked for what, and when; ``fetch_tasks`` runs the fetching on trio
``isr_requests``        AlterPartition: what is asked of the controller; ``isr_changes`` sends the requests on trio
======================  ================================================================================================
"""
