"""What a drill, or a round of faults, ends with when a promise was not kept."""

from __future__ import annotations


class Broken(Exception):
    """A promise was not kept; the text says which."""
