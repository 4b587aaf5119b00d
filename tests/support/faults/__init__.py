"""Rounds of faults against real node processes over real TCP, and the history that must be linearizable."""
