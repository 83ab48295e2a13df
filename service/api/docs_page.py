"""The API description, and a page that shows it; all parts are here, so no network is needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from litestar import Response, get
from litestar.datastructures import State
from litestar.params import FromPath

from service.api.problems import ProblemError, ProblemKind, problem_responses

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    "docs.html": "text/html",
    "docs.js": "text/javascript",
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}
# `unsafe-inline` and `data:` are for the styles and icons inside the page's own style sheet.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " frame-ancestors 'none'"
)


@cache
def _content(name: str) -> bytes:
    return (STATIC / name).read_bytes()


def _part(name: str) -> Response[bytes]:
    return Response(
        _content(name),
        media_type=MEDIA_TYPES[name],
        headers={
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "X-Content-Type-Options": "nosniff",
        },
    )


@get(
    "/v1/openapi.yaml",
    operation_id="get_openapi",
    tags=["description"],
    media_type="application/yaml",
    responses=problem_responses(),
    sync_to_thread=True,
)
def get_openapi(state: State) -> str:
    """Get this description.

    The same text as `openapi/v1.yaml` of the source tree.
    """
    text: str = state.openapi_yaml()
    return text


@get("/docs", include_in_schema=False, sync_to_thread=True)
def get_docs_page() -> Response[bytes]:
    """Send the page."""
    return _part("docs.html")


@get("/docs/{name:str}", include_in_schema=False, sync_to_thread=True)
def get_docs_part(name: FromPath[str]) -> Response[bytes]:
    """Send one of the page's scripts or styles."""
    if name not in MEDIA_TYPES:
        raise ProblemError(ProblemKind.NOT_FOUND, "The documentation page has no such part.")
    return _part(name)
