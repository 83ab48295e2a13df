"""A published release, and the refusal of one that does not exist."""

from datetime import datetime

from service.core.errors import CoreError
from service.core.snapshot import ReleaseRef
from service.core.value import LongText

LATEST = "latest"


class Release(ReleaseRef):
    """A published state of the catalog. Its content never changes."""

    published_at: datetime
    """When it was published."""
    retired_at: datetime | None = None
    """When it was taken out of "latest"; null while it is not. A retired release stays readable."""
    notes: LongText = ""
    """What changed since the release before."""

    @property
    def ref(self) -> ReleaseRef:
        """Its version and digest alone."""
        return ReleaseRef(version=self.version, digest=self.digest)


class UnknownRelease(CoreError):
    """A catalog release that was never published, or "latest" when none was."""

    def __init__(self, choice: str, *, pointer: str = "") -> None:
        message = (
            "no catalog release is published yet; run `gpuplan catalog publish`"
            if choice == LATEST
            else f"there is no catalog release {choice!r}"
        )
        super().__init__(message, pointer=pointer)
        self.choice = choice
