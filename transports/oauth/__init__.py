"""What OAUTHBEARER needs from the outside: the keys of who issues tokens, and one's own tokens.

=========  ==========================================================================
``fetch``  one HTTP request, in a thread
``keys``   a JSON Web Key Set, from a file or an HTTP server, read again when it changes
``login``  one's own token, from a file or by client credentials, while it is valid
=========  ==========================================================================
"""

from kraftcore.transports.oauth.keys import EndpointKeys, FileKeys, open_keys
from kraftcore.transports.oauth.login import TokenLogin

__all__ = ["EndpointKeys", "FileKeys", "TokenLogin", "open_keys"]
