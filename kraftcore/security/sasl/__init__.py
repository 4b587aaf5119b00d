"""SASL: who proves what to whom, as plain calls over the bytes that the two sides exchange (KIP-12, KIP-43, KIP-368).

==================== ==============================================================================================
``mechanisms``        the table of them: name, what makes either side
``mechanism``         what a mechanism is, on either side
``credentials``       what the accepting side knows of those who may come
``plain_server``      PLAIN, accepting
``scram_messages``    the messages of SCRAM, as a server reads and writes them
``scram_server``      SCRAM-SHA-256 and -512, accepting
``server_session``    one accepted connection: handshake, tokens, the session's end, authenticating again
==================== ==============================================================================================

Nothing here reads a socket, a file or a clock.
"""
