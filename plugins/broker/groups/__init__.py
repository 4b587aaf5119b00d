"""Consumer groups of the classic protocol: their members, assignments and committed offsets.

================  ====================================================================================================
``shard``         the groups of one partition of ``__consumer_offsets``: events in, effects out
``group``         one group; ``membership``: who joins and leaves; ``offsets``: what was committed
``effects``       the writes and answers of a shard, and its timers
``records``       its records as bytes; ``schemas``: their layout; ``loading``: a partition read from its beginning
``topic``         ``__consumer_offsets`` itself
``coordinator``   a broker's shards, on trio
``requests``      the requests of clients; ``handlers``: their versions; ``settings``
================  ====================================================================================================
"""
