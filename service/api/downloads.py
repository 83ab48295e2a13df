"""Tables as files: what every CSV address has in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from litestar import Response
from litestar.datastructures import ResponseHeader
from litestar.params import QueryParameter
from litestar.response import Stream

from service.exports.table import MEDIA_TYPE

CSV = "text/csv"
ByteOrderMark = Annotated[
    bool,
    QueryParameter(description="Begin with the mark by which Excel knows UTF-8; programs do not."),
]
DISPOSITION_HEADER = ResponseHeader(
    name="Content-Disposition", description="Name of the file.", documentation_only=True
)


def _headers(disposition: str) -> dict[str, str]:
    return {"Content-Type": MEDIA_TYPE, "Content-Disposition": disposition}


def download(content: bytes, disposition: str) -> Response[Any]:
    """Send a table that is small by nature."""
    return Response(content, media_type=CSV, headers=_headers(disposition))


def stream(parts: AsyncIterator[bytes], disposition: str) -> Stream:
    """Send a table piece by piece, so that its length costs no memory."""
    return Stream(parts, media_type=CSV, headers=_headers(disposition))
