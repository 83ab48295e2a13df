"""From files to a release: checked, named by its content, written once."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from service.catalog import repository
from service.catalog.checks import check_folder
from service.catalog.content import CatalogContent
from service.catalog.files import read_folder
from service.catalog.findings import InvalidCatalog
from service.catalog.release import Release, ReleaseChanged
from service.catalog.repository import Session
from service.catalog.resolve import resolve_folder
from service.db.session import make_engine, team_session

ANY_STATE = "*"
"""Stands for whatever state a release is in (RFC 9110, 13.1.1)."""
NO_TEAM = ""
"""Releases belong to no team."""


@dataclass(frozen=True)
class Publication:
    """What publishing came to."""

    release: Release
    is_new: bool
    """False when this content had been published before, under the release's version."""

    def __str__(self) -> str:
        verb = "published" if self.is_new else "unchanged: this is"
        retired = ", which is retired" if self.release.retired_at else ""
        return f"{verb} catalog release {self.release.version}{retired}"


def read_checked(folder: Path) -> CatalogContent:
    """Read the folder and run every check.

    Raises:
        InvalidCatalog: With every fault.
    """
    entries = read_folder(folder)
    content = resolve_folder(entries)
    findings = check_folder(entries)
    if findings:
        raise InvalidCatalog(findings)
    return content


async def publish(
    session: Session, content: CatalogContent, *, now: datetime, notes: str = ""
) -> Publication:
    """Publish content, or find the release that has it already.

    Going back to the content of an older release publishes nothing: retire the newer one instead.
    """
    await repository.lock_publishing(session)
    digest = content.digest()
    existing = await repository.find_release_of_digest(session, digest)
    if existing is not None:
        return Publication(existing, is_new=False)
    version = await repository.next_version(session, now.date())
    release = Release(version=version, digest=digest, published_at=now, notes=notes)
    await repository.insert_release(session, release, content)
    return Publication(release, is_new=True)


def publish_folder(url: str, folder: Path, *, now: datetime, notes: str = "") -> Publication:
    """Read, check and publish a folder into the database at an address.

    Raises:
        InvalidCatalog: If any file is wrong; nothing is written.
    """
    content = read_checked(folder)

    async def run() -> Publication:
        async with team_session(make_engine(url, pooled=False), NO_TEAM) as session:
            return await publish(session, content, now=now, notes=notes)

    return asyncio.run(run())


async def retire(
    session: Session, version: str, *, seen: Collection[str], now: datetime
) -> Release:
    """Take a release out of "latest" and out of new plans; it stays readable, as its plans do.

    Args:
        session: Transaction in which it is done.
        version: The release.
        seen: Tags of the states that the caller has seen, or `*` for whatever state it is in.
        now: The time.

    Raises:
        UnknownRelease: There is none.
        ReleaseChanged: It is in a state that the caller has not seen.
    """
    release = await repository.find_release(session, version, lock=True)
    if ANY_STATE not in seen and release.state_tag not in seen:
        raise ReleaseChanged(version)
    if release.retired_at is not None:
        return release
    return await repository.retire_release(session, release, now)


def retire_at(url: str, version: str, *, now: datetime) -> Release:
    """Retire a release of the database at an address, in whatever state it is.

    Raises:
        UnknownRelease: There is none.
    """

    async def run() -> Release:
        async with team_session(make_engine(url, pooled=False), NO_TEAM) as session:
            return await retire(session, version, seen={ANY_STATE}, now=now)

    return asyncio.run(run())
