"""Who somebody is, and who may do what.

==============  =====================================================================================================
``sasl``        what a SASL mechanism is, and those there are
``principals``  how a certificate or a SASL identity becomes a principal such as ``User:alice``
``acl``         what access control entries are made of, and the filters that find them
``index``       entries by resource, so that a question takes microseconds however many there are
``authorizer``  the decision: what an application may bring, and Kafka's StandardAuthorizer (KIP-801)
==============  =====================================================================================================

Nothing here reads a socket or a clock: a caller is a principal and the address it comes from. Connections without
authentication are ``User:ANONYMOUS``.
"""
