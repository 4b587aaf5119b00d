"""Kafka's framing over TCP, plain or TLS, on trio: ``TcpTransport``.

================  ====================================================================
``transport``     ``TcpTransport``
``limits``        bounds on the resources that peers may use
``client``        connections to peers: requests, timeouts, reconnects
``server``        listeners and accepted connections
``connection``    the base class of both ends: frames in, frames out
``tls``           TLS as plain calls over memory buffers
``dial``          connects a socket to a name and a port
``socket_files``  Unix sockets: their files, whatever the length of the path
``timer``         the transport's only timer
``complaints``    log lines, rate-limited
================  ====================================================================
"""

from kraftcore.namespace import listing
from kraftcore.transports.tcp.limits import Limits
from kraftcore.transports.tcp.tls import TlsFiles, TlsSettings
from kraftcore.transports.tcp.transport import TcpTransport

__all__ = ["Limits", "TcpTransport", "TlsFiles", "TlsSettings"]
__dir__ = listing(__all__)
