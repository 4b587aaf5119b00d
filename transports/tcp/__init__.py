"""Kafka's framing over TCP, plain or TLS, on trio: ``TcpTransport``.

==============  ====================================================================
``transport``   ``TcpTransport``
``limits``      what peers may use up
``client``      connections to peers: requests, timeouts, reconnects
``server``      listeners and accepted connections
``connection``  what both have in common: frames in, frames out
``tls``         TLS as plain calls over memory buffers
``dial``        from a name and a port to a connected socket
``timer``       the one timer
``complaints``  log lines, rate-limited
==============  ====================================================================
"""

from kraftcore.namespace import listing
from kraftcore.transports.tcp.limits import Limits
from kraftcore.transports.tcp.tls import TlsFiles, TlsSettings
from kraftcore.transports.tcp.transport import TcpTransport

__all__ = ["Limits", "TcpTransport", "TlsFiles", "TlsSettings"]
__dir__ = listing(__all__)
