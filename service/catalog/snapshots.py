"""Snapshots of published releases, each parsed once a process."""

import asyncio
from collections import OrderedDict
from datetime import date
from typing import Any, Generic, TypeVar

from service.catalog import repository
from service.catalog.content import CatalogContent, Kind, from_document
from service.catalog.release import Release, RetiredRelease
from service.catalog.repository import Session
from service.core.snapshot import CatalogSnapshot

KeyT = TypeVar("KeyT")
HeldT = TypeVar("HeldT")

MAX_RELEASES = 4
MAX_SNAPSHOTS = 64


class _Newest(Generic[KeyT, HeldT]):
    """The last few values that were asked for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[KeyT, HeldT] = OrderedDict()

    def get(self, key: KeyT) -> HeldT | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: KeyT, value: HeldT) -> None:
        self._values[key] = value
        while len(self._values) > self._limit:
            self._values.popitem(last=False)


class SnapshotCache:
    """Content by digest and snapshots by digest and day: both never change, so none grows stale."""

    def __init__(self) -> None:
        self._contents: _Newest[str, CatalogContent] = _Newest(MAX_RELEASES)
        self._reading: dict[str, asyncio.Lock] = {}
        self._snapshots: _Newest[tuple[str, date], CatalogSnapshot] = _Newest(MAX_SNAPSHOTS)

    async def load(
        self,
        session: Session,
        choice: str,
        as_of_date: date,
        *,
        pointer: str = "/catalog_release",
        for_new_plan: bool = False,
    ) -> CatalogSnapshot:
        """The snapshot of a version or of "latest" as it holds on one day.

        Raises:
            UnknownRelease: There is no such release; the pointer is the field of a plan request.
            RetiredRelease: It is retired, and a new plan would rest on it.
        """
        release = await repository.find_release(session, choice, pointer=pointer)
        if for_new_plan and release.retired_at is not None:
            raise RetiredRelease(release, pointer=pointer)
        snapshot = self._snapshots.get((release.digest, as_of_date))
        if snapshot is None:
            content = await self._content(session, release)
            snapshot = content.snapshot(release.ref, as_of_date)
            self._snapshots.put((release.digest, as_of_date), snapshot)
        return snapshot

    async def _content(self, session: Session, release: Release) -> CatalogContent:
        content = self._contents.get(release.digest)
        if content is None:
            # One reads for all who ask meanwhile; the lock lasts no longer, as locks have one loop.
            async with self._reading.setdefault(release.digest, asyncio.Lock()):
                content = self._contents.get(release.digest)
                if content is None:
                    documents = await repository.load_documents(session, release.version)
                    content = await asyncio.to_thread(_parse, documents)
                    self._contents.put(release.digest, content)
            self._reading.pop(release.digest, None)
        return content


def _parse(documents: dict[Kind, list[Any]]) -> CatalogContent:
    return CatalogContent(
        **{
            kind: tuple(from_document(kind, document) for document in each)
            for kind, each in documents.items()
        }
    )


_CACHE = SnapshotCache()


async def load_snapshot(session: Session, choice: str, as_of_date: date) -> CatalogSnapshot:
    """The snapshot of a version or of "latest" on one day, from the cache of this process.

    Raises:
        UnknownRelease: There is no such release.
    """
    return await _CACHE.load(session, choice, as_of_date)


async def load_plannable_snapshot(
    session: Session, choice: str, as_of_date: date
) -> CatalogSnapshot:
    """The snapshot that a new plan may rest on, from the cache of this process.

    Raises:
        UnknownRelease: There is no such release.
        RetiredRelease: It is retired.
    """
    return await _CACHE.load(session, choice, as_of_date, for_new_plan=True)
