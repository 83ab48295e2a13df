"""Tables as files: what every CSV address has in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from litestar import Response
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from litestar.response import Stream

from service.exports.table import MEDIA_TYPE, CsvForm

CSV = "text/csv"
ByteOrderMark = Annotated[
    bool,
    QueryParameter(description="Begin with the mark by which Excel knows UTF-8; programs do not."),
]
DecimalComma = Annotated[
    bool,
    QueryParameter(
        description="Write `;` between cells and `,` before decimals, for such locales."
    ),
]
DISPOSITION_HEADER = ResponseHeader(
    name="Content-Disposition", description="Name of the file.", documentation_only=True
)


async def csv_form(
    *, byte_order_mark: ByteOrderMark = False, decimal_comma: DecimalComma = False
) -> CsvForm:
    """Read in which form a table is wanted."""
    return CsvForm(byte_order_mark=byte_order_mark, decimal_comma=decimal_comma)


WantedForm = NamedDependency[CsvForm]


def _headers(disposition: str) -> dict[str, str]:
    return {"Content-Type": MEDIA_TYPE, "Content-Disposition": disposition}


def download(content: bytes, disposition: str) -> Response[Any]:
    """Send a table that is small by nature."""
    return Response(content, media_type=CSV, headers=_headers(disposition))


async def stream(parts: AsyncIterator[bytes], disposition: str) -> Stream:
    """Send a table piece by piece, so that its length costs no memory.

    The first piece, which holds the first rows, is made before anything is sent: what fails by then
    is told by its status.
    """
    first = await anext(parts)

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return Stream(pieces(), media_type=CSV, headers=_headers(disposition))
