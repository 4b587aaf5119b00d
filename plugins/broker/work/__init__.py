"""Work that must not hold up the event loop: done in steps, in turns, later, or by threads.

======================  ================================================================================================
``disk_steps``          changes that wait for a disk, as generators; ``disk_threads`` has threads do the waiting
``heavy_steps``         work that would take the processor for long, as generators; ``heavy_threads`` has a thread do it
``turns``               requests that name very many things, answered piece by piece
``tasks``               answers that take a task of their own
``deadlines``           what happens at a time unless something else comes first
======================  ================================================================================================
"""
