"""The compiled core: bytes in, bytes out. No sockets, no tasks, no clocks.

Import what you need from the module that holds it (``kraftcore.core.batch``, ``kraftcore.core.log``, ...).
"""
