"""A published release, and the refusal of one that does not exist."""

from datetime import datetime
from hashlib import sha256

from service.catalog.content import KINDS
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

    @property
    def state_tag(self) -> str:
        """Strong tag of its state, which retirement alone changes."""
        state = f"{self.version} {self.digest} {self.retired_at} {' '.join(KINDS)}"
        return f'"{sha256(state.encode()).hexdigest()[:32]}"'


class RetiredRelease(CoreError):
    """A release that is named for a new plan and was taken out of use."""

    def __init__(self, release: Release, *, pointer: str = "") -> None:
        super().__init__(
            f"catalog release {release.version} was retired on {release.retired_at:%Y-%m-%d}; "
            f"plans that use it stay, new ones take another or {LATEST!r}",
            pointer=pointer,
        )


class ReleaseChanged(CoreError):
    """A release that is not in the state that the request names."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"catalog release {version!r} has changed since it was read; read it again and decide "
            "anew"
        )


class UnknownRelease(CoreError):
    """A catalog release that was never published, or "latest" when none was."""

    def __init__(self, choice: str, *, pointer: str = "") -> None:
        message = (
            "no catalog release is published yet, or each is retired; run `gpuplan catalog publish`"
            if choice == LATEST
            else f"there is no catalog release {choice!r}"
        )
        super().__init__(message, pointer=pointer)
        self.choice = choice
