"""Quotas: how many bytes a second clients and throttled replicas may move.

======================  ================================================================================================
``rates``               rates over the last samples, which quotas are compared with
``clients``             how much clients may write and fetch
``replication``         how much throttled replicas may copy (KIP-73)
======================  ================================================================================================
"""
