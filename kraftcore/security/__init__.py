"""Who may do what.

============  =======================================================================================================
``acl``       what access control entries are made of, and the filters that find them
``index``     entries by resource, so that a question takes microseconds however many there are
``authorizer`` the decision, as Kafka's StandardAuthorizer makes it (KIP-801)
============  =======================================================================================================

Nothing here reads a socket or a clock: a caller is a principal such as ``User:alice`` and the address it comes from.
Connections without authentication are ``User:ANONYMOUS``.
"""

from kraftcore.security.authorizer import Authorizer, Verdict

__all__ = ["Authorizer", "Verdict"]
