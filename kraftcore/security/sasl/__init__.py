"""SASL: who proves what to whom, as plain calls over the bytes that the two sides exchange (KIP-12, KIP-43, KIP-368).

============== ====================================================================================================
``mechanism``   what a mechanism is, on either side
============== ====================================================================================================

Nothing here reads a socket, a file or a clock.
"""
