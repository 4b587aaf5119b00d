"""A request that a test hands to a handler: it notes how it is answered."""

from __future__ import annotations

from kraftcore.node.registry import Asker, RequestContext


class NotedRequest(RequestContext):
    """A request whose answers are kept.

    Args:
        version: of the request.
        peer, listener, who: see `Asker`.
        client_id: of the asker.

    Attributes:
        answers: responses, in order.
        closed: how often the connection was broken.
    """

    def __init__(self, version=0, peer="somebody", listener="CONTROLLER", client_id=None, **who):
        super().__init__(Asker(listener, peer, **who), version, client_id)
        self.answers, self.closed = [], 0

    def answer(self, response):
        self.answers.append(response)

    def close(self):
        self.closed += 1
