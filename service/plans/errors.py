"""What the store of plans refuses; each message is a sentence that a caller can act on."""

from uuid import UUID


class PlanError(Exception):
    """A request that cannot be answered; knows nothing of HTTP."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PlanNotFound(PlanError):
    """The team has no such plan."""

    def __init__(self, plan_id: UUID) -> None:
        super().__init__(f"there is no plan {plan_id}")
        self.plan_id = plan_id


class InvalidCursor(PlanError):
    """A cursor that no list has given out."""

    def __init__(self) -> None:
        super().__init__("the cursor is not one that this list gave; start without a cursor")


class InvalidIdempotencyKey(PlanError):
    """A key of the wrong form."""


class IdempotencyKeyReused(PlanError):
    """The key belongs to another request of the last 24 hours."""


class RequestInFlight(PlanError):
    """Another request with the same key is being answered."""

    def __init__(self) -> None:
        super().__init__(
            "a request with this idempotency key is still being answered; send it again later"
        )


class TooMuchAtOnce(PlanError):
    """More is asked at once than is worked on."""

    def __init__(self) -> None:
        super().__init__("as many estimates are waiting as may wait; send the request again later")


class TookTooLong(PlanError):
    """An estimate was not done in time."""

    def __init__(self, limit_s: float, asked_less: str | None = None) -> None:
        less = asked_less or "fewer workloads or months, or give layouts and speeds"
        super().__init__(f"the estimate was not done in {limit_s:g} s; ask for {less}")
        self.limit_s = limit_s


class CannotCompare(PlanError):
    """Plans that cannot stand side by side."""
