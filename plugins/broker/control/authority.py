"""The controller epoch and broker epoch that a control request must have to be obeyed."""

from __future__ import annotations

from kraftcore.protocol.error_codes import ErrorCode

_UNKNOWN = -1


class Authority:
    """The newest controller that this broker heard of, and the broker's own incarnation.

    Args:
        broker_epoch: the epoch of this run of the broker, > 0.

    Attributes:
        broker_epoch: as given.
        controller_epoch: the epoch of the newest controller.
    """

    def __init__(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.controller_epoch = 0

    def check(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Check whether a request is obeyed, and note its controller as the newest if so.

        Args:
            controller_epoch: the sender's.
            broker_epoch: the broker epoch that the request is meant for; -1: the request does not say.

        Returns:
            NONE, STALE_BROKER_EPOCH (it was meant for an earlier run of this broker) or STALE_CONTROLLER_EPOCH.
        """
        if broker_epoch != _UNKNOWN and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE
