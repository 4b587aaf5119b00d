"""Transports move encoded frames between nodes; installed as ``kraftcore.transports``.

A transport knows frames and endpoints, never raft: the arrows point from here to ``kraftcore.protocol`` only.
"""
