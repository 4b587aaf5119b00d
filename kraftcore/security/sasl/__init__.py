"""SASL: who proves what to whom, as plain calls over the bytes that the two sides exchange (KIP-12, KIP-43, KIP-368).

=======================  ===========================================================================================
``mechanism_table``      the SASL mechanisms: name, Kafka's login module, what makes the client's and the server's side
``mechanism_interface``  what the client's and the server's side of a mechanism have to do
``client_session``       one connection that this side opened: handshake, tokens, authenticating again
``server_session``       one accepted connection: handshake, tokens, the session's end, authenticating again
``credentials``          what a server knows of the users who may log in
``plain_*``              PLAIN: client and server
``scram_*``              SCRAM-SHA-256 and -512: client, server, and the messages between them
``oauth_*``              OAUTHBEARER: client, server, messages, tokens, and the keys that sign tokens
=======================  ===========================================================================================

Nothing here reads a socket, a file or a clock.
"""
