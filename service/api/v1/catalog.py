"""The catalog as it was published: releases, and the entries of each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from litestar import Request, Response, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter
from litestar.response import Stream

from service.access.scopes import Scope
from service.api.access import needs
from service.api.dependencies import RequestSession, SessionOpener
from service.api.downloads import CSV, DISPOSITION_HEADER, WantedForm, download, stream
from service.api.pages import (
    DEFAULT_LIMIT,
    LINK_HEADER,
    Cursor,
    Limit,
    decode_cursor,
    next_link,
    page_of,
)
from service.api.preconditions import IfMatch, seen_states
from service.api.problems import problem_responses
from service.api.v1.catalog_pages import COLLECTIONS, Collection, ReleaseContents, ReleasePage
from service.catalog import repository
from service.catalog.content import Kind
from service.catalog.publish import retire
from service.catalog.release import Release
from service.catalog.repository import Session
from service.exports.catalog import RELEASE_COLUMNS
from service.exports.filename import content_disposition
from service.exports.table import csv_bytes, csv_stream
from service.plans.repository import OpenSession

RELEASES = "/v1/catalog/releases"
ANSWER: Any = Response
"""The generic type of answers; what is in one is known only when its handler is made."""
BATCH_ROWS = 500
MAX_RELEASES = 10_000
ReleaseInPath = Annotated[
    str,
    PathParameter(
        pattern=r"^(latest|[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,4})$",
        description='Version of a release, or "latest" for the newest that is not retired.',
    ),
]
VersionInPath = Annotated[
    str,
    PathParameter(
        pattern=r"^[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,4}$", description="Version of a release."
    ),
]
KeyInPath = Annotated[
    str, PathParameter(pattern=r"^[a-z0-9_][a-z0-9._-]{0,249}$", description="Key of the entry.")
]


def _position(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(text)
    return int(text)


def _version(text: str) -> str:
    if not re.fullmatch(r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,4}", text):
        raise ValueError(text)
    return text


@get(
    RELEASES,
    operation_id="list_catalog_releases",
    tags=["catalog"],
    responses=problem_responses(422),
    response_headers=[LINK_HEADER],
)
async def list_catalog_releases(
    request: Request[Any, Any, Any],
    session: RequestSession,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[ReleasePage]:
    """List releases, newest first, retired ones too."""
    before = decode_cursor("releases", cursor, _version)
    found = await repository.list_releases(session, limit=limit + 1, before=before)
    items, more = page_of("releases", found, limit, lambda release: release.version)
    body = ReleasePage(items=tuple(items), next_cursor=more)
    return Response(body, headers=next_link(request, more))


@get(
    f"{RELEASES}.csv",
    operation_id="export_catalog_releases_csv",
    tags=["catalog"],
    media_type=CSV,
    responses=problem_responses(422),
    response_headers=[DISPOSITION_HEADER],
)
async def export_catalog_releases_csv(session: RequestSession, form: WantedForm) -> Response[Any]:
    """Export the list of releases, one row each."""
    releases = await repository.list_releases(session, limit=MAX_RELEASES)
    content = csv_bytes(RELEASE_COLUMNS, releases, form=form)
    return download(content, content_disposition("releases"))


@get(
    f"{RELEASES}/{{release:str}}",
    operation_id="get_catalog_release",
    tags=["catalog"],
    responses=problem_responses(404),
)
async def get_catalog_release(
    release: ReleaseInPath, session: RequestSession
) -> Response[ReleaseContents]:
    """Read one release, and how many entries it holds.

    Its `ETag` is what its retirement has to name.
    """
    return await _contents(session, await repository.find_release(session, release))


@put(
    f"{RELEASES}/{{release:str}}/retirement",
    operation_id="retire_catalog_release",
    tags=["catalog"],
    opt=needs(Scope.CATALOG_WRITE),
    responses=problem_responses(404, 412, 422, 428),
)
async def retire_catalog_release(
    release: VersionInPath, session: RequestSession, if_match: IfMatch = None
) -> Response[ReleaseContents]:
    """Take a release out of "latest" and out of new plans, for all teams.

    It stays readable, and so do the plans that use it. There is no way back.
    """
    seen = seen_states(if_match, "release")
    retired = await retire(session, release, seen=seen, now=datetime.now(UTC))
    return await _contents(session, retired)


async def _contents(session: Session, release: Release) -> Response[ReleaseContents]:
    counts = await repository.count_entries(session, release.version)
    body = ReleaseContents(**release.model_dump(), entry_counts=counts)
    return Response(body, headers={"ETag": release.state_tag})


def _list_handler(collection: Collection) -> HTTPRouteHandler:
    async def list_entries(
        request: Request[Any, Any, Any],
        release: ReleaseInPath,
        session: RequestSession,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response[Any]:
        kind = collection.kind
        after = decode_cursor(kind, cursor, _position)
        found = await repository.find_release(session, release)
        rows = await repository.list_entries(
            session, found.version, kind, limit=limit + 1, after=-1 if after is None else after
        )
        items, more = page_of(kind, rows, limit, lambda row: row[0])
        page = collection.page_type.model_construct(
            catalog_release=found.ref,
            items=tuple(entry for _, entry in items),
            next_cursor=more,
        )
        # "latest" may have moved on before the next page is asked for.
        path = f"{RELEASES}/{found.version}/{collection.path}"
        return Response(page, headers=next_link(request, more, path=path))

    list_entries.__annotations__["return"] = ANSWER[collection.page_type]
    return get(
        f"{RELEASES}/{{release:str}}/{collection.path}",
        operation_id=f"list_catalog_{collection.kind}",
        tags=["catalog"],
        description=f"List the {collection.title} of a release.",
        responses=problem_responses(404, 422),
        response_headers=[LINK_HEADER],
    )(list_entries)


def _export_handler(collection: Collection) -> HTTPRouteHandler:
    async def export_entries(
        release: ReleaseInPath, open_session: SessionOpener, form: WantedForm
    ) -> Stream:
        async with open_session() as session:
            found = await repository.find_release(session, release)
        batches = _batches(open_session, found.version, collection.kind)
        parts = csv_stream(collection.columns, batches, form=form)
        return await stream(parts, content_disposition(collection.path, found.version))

    return get(
        f"{RELEASES}/{{release:str}}/{collection.path}.csv",
        operation_id=f"export_catalog_{collection.kind}_csv",
        tags=["catalog"],
        media_type=CSV,
        description=f"Export the {collection.title} of a release, one row each.",
        responses=problem_responses(404, 422),
        response_headers=[DISPOSITION_HEADER],
    )(export_entries)


async def _batches(
    open_session: OpenSession, version: str, kind: Kind
) -> AsyncIterator[Sequence[Any]]:
    after = -1
    while True:
        async with open_session() as session:
            rows = await repository.list_entries(
                session, version, kind, limit=BATCH_ROWS, after=after
            )
        yield [entry for _, entry in rows]
        if len(rows) < BATCH_ROWS:
            return
        after = rows[-1][0]


def _get_handler(collection: Collection) -> HTTPRouteHandler:
    async def get_entry(
        release: ReleaseInPath, key: KeyInPath, session: RequestSession
    ) -> Response[Any]:
        found = await repository.find_release(session, release)
        return Response(await repository.get_entry(session, found.version, collection.kind, key))

    get_entry.__annotations__["return"] = ANSWER[collection.entry_type]
    return get(
        f"{RELEASES}/{{release:str}}/{collection.path}/{{key:str}}",
        operation_id=f"get_catalog_{collection.entry}",
        tags=["catalog"],
        description=f"Read one of the {collection.title} of a release by its key.",
        responses=problem_responses(404),
    )(get_entry)


def collection_handlers() -> Iterator[HTTPRouteHandler]:
    """Make the handlers of every collection: its pages, its table, its single entries."""
    for collection in COLLECTIONS:
        yield _list_handler(collection)
        yield _export_handler(collection)
        yield _get_handler(collection)
