"""Requests on their way to a decision and back: authorization, decision and answer."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from kraftcore.errors import LocalError, NodeStoppedError, NotLeaderError, OutcomeUnknownError, RemoteProtocolError
from kraftcore.node.registry import RequestContext, requester
from kraftcore.plugins.controller.access import Gate
from kraftcore.plugins.controller.caller import caller_of
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Refusal
from kraftcore.plugins.controller.life import Life, Step
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.schema import Request, Response

NO_CONTROLLER: Final = "No controller appears to be active."


def not_controller_text(leader_id: int | None) -> str:
    """Kafka's words when this node is not the active controller."""
    return NO_CONTROLLER if leader_id is None else f"The active controller appears to be node {leader_id}."


class RequestStep(Step):
    """The step that decides about a request, and answers it.

    Args:
        life: gives the context, and takes the records.
        gate: authorizes.
        api: decides about this kind of request.
        request: its body.
        context: names the asker, and takes the answer.
    """

    def __init__(self, life: Life, gate: Gate, api: Api, request: Request, context: RequestContext) -> None:
        super().__init__(life)
        self.is_linearizable = type(request) is not BrokerHeartbeatRequest  # whose answer promises nothing
        self._gate = gate
        self._api = api
        self._request = request
        self._from = context
        self._is_checked = False
        self._refusal: Refusal | None = None
        self._caller = caller_of(context.asker)

    def context(self, next_offset: int) -> Context:
        """Make the decision's context, with the asker's permissions."""
        asker = self._gate.asker(requester(self._request, self._from))
        return self._life.context(next_offset, self._caller, asker)

    def make(self, context: Context) -> ControllerResult:
        """See `Step`."""
        self._check()
        return self._api.decide(context, self._request, self._from.version)

    def is_refused(self) -> bool:
        """Check whether the asker may send this request; True: it may not, and was told so."""
        try:
            self._check()
        except Refusal as refused:
            self.refuse(refused.code, refused.text)
            return True
        return False

    def _check(self) -> None:
        """Authorize the request, once, however often it is decided about."""
        if not self._is_checked:
            self._is_checked = True
            try:
                self._gate.check(self._request, self._from)
            except Refusal as refused:
                self._refusal = refused
        if self._refusal is not None:
            raise self._refusal

    def try_out(self) -> ControllerResult | None:
        """Decide now without appending anything; None if the request would be refused."""
        try:
            return self.make(self.context(self._life.machine.offset))
        except Exception:  # raised again, and handled, when the request is decided in its turn
            return None

    def answer_at_once(self) -> None:
        """Answer from the records committed here, without waiting for a commit: any controller may."""
        try:
            decision = self.make(self.context(self._life.machine.offset))
        except Exception as error:
            self.failed(error)
        else:
            self.answer(decision.answer)

    def committed(self) -> None:
        """See `kraftcore.executor.decisions.Decision`."""
        if self.made is not None:
            self.answer(self.made.answer)

    def failed(self, error: Exception) -> None:
        """See `kraftcore.executor.decisions.Decision`."""
        super().failed(error)
        match error:
            case Refusal():
                self.refuse(error.code, error.text)
            case NotLeaderError() | OutcomeUnknownError():
                self.refuse(ErrorCode.NOT_CONTROLLER, not_controller_text(getattr(error, "leader_id", None)))
            case NodeStoppedError() | RemoteProtocolError():
                self._from.close()
            case LocalError():
                self.refuse(ErrorCode.POLICY_VIOLATION, str(error))
            case _:
                self._life.on_bug(f"deciding about a {type(self._request).__name__} failed", error)
                self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message)

    def answer(self, response: Response | None) -> None:
        """Send a response; if it cannot be encoded, break only the asker's connection."""
        try:
            self._from.answer(response)
        except Exception as error:
            self._life.on_bug(f"the answer to a {type(self._request).__name__} cannot be sent", error)
            with suppress(LocalError):  # raised if it was answered already
                self._from.close()

    def refuse(self, error: ErrorCode, message: str | None) -> None:
        """Answer with an error for the whole request."""
        self.answer(self._api.refuse(self._request, self._from.version, error, message))
