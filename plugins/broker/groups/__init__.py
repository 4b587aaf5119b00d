"""Consumer groups of the classic protocol: who is in them, what each member reads, how far it came.

================  ====================================================================================================
``shard``         the groups of one partition of ``__consumer_offsets``: events in, effects out
``group``         one group; ``membership``: who joins and leaves; ``offsets``: what was committed
``effects``       what a shard wants done, and its timers
``records``       its records as bytes; ``schemas``: their layout; ``loading``: a partition read from its beginning
``topic``         ``__consumer_offsets`` itself
``coordinator``   a broker's shards, on trio
``requests``      what clients ask; ``handlers``: in which versions; ``settings``
================  ====================================================================================================
"""
