"""Plugins watch a node or take part in it; installed as ``kraftcore.plugins``.

They are found by the entry point group ``kraftcore.plugins``, or passed in; the engine never imports them.
"""
