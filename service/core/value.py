"""Base of all core values, and the scalar types their fields are made of.

Core values are the API's own types: a field is described once, in the docstring under it.
Every bound that is enforced is also published, because the JSON Schema is made from these types.
"""

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    WithJsonSchema,
)

MAX_COUNT = 1_000_000_000
MAX_TOKENS = 2**53 - 1


class Value(BaseModel):
    """A frozen value: compared by content, refuses unknown fields, infinities and NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def _whole(value: Any) -> Any:
    """Take 5 and 5.0 (JSON Schema calls both an integer), never "5" or true."""
    if isinstance(value, (bool, str)):
        raise ValueError("must be a whole number")
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("must be a whole number")
        return int(value)
    return value


def _number(value: Any) -> Any:
    """Take JSON numbers only, never "5" or true."""
    if isinstance(value, (bool, str)):
        raise ValueError("must be a number")
    return value


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def decimal_text(amount: Decimal) -> str:
    """Write an amount as plain digits with a point: no exponent, no thousands separator."""
    return format(amount, "f")


def _exact(value: Any, pattern: re.Pattern[str], example: str) -> Decimal:
    """Amounts travel as strings: a JSON number has lost its cents before it can be checked."""
    text = decimal_text(value) if isinstance(value, Decimal) else value
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(f'must be a string such as "{example}" that matches {pattern.pattern}')
    return Decimal(text)


def _amount(value: Any) -> Decimal:
    if isinstance(value, Decimal) and value.is_finite() and abs(value) < _AMOUNT_BOUND:
        exponent = value.as_tuple().exponent
        if isinstance(exponent, int) and -_AMOUNT_DECIMALS <= exponent <= 0:
            return value  # what our own sums give, hundreds of times in a plan
    return _exact(value, _AMOUNT, "-12.50")


def _price(value: Any) -> Decimal:
    return _exact(value, _PRICE, "6.88")


def _price_or_zero(value: Any) -> Decimal:
    return _exact(value, _PRICE_OR_ZERO, "6.88")


def _iso_date(value: Any) -> Any:
    """Take a day alone: pydantic would also read a time, and digits as seconds since 1970."""
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    if is_day or (isinstance(value, str) and _DATE.fullmatch(value)):
        return value
    raise ValueError('must be an ISO date in a string, such as "2026-11-29"')


NO_NUL = r"^[^\x00]*$"
KEY_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,99}$"
DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
MONTH_PATTERN = r"^20[0-9]{2}-(0[1-9]|1[0-2])$"
LAST_MONTH = "2099-12"
"""Last month that MONTH_PATTERN takes."""
AMOUNT_PATTERN = r"^-?[0-9]{1,12}(\.[0-9]{1,6})?$"
PRICE_PATTERN = (
    r"^([1-9][0-9]{0,11}(\.[0-9]{1,6})?|0\.([1-9][0-9]{0,5}|0[1-9][0-9]{0,4}|00[1-9][0-9]{0,3}"
    r"|000[1-9][0-9]{0,2}|0000[1-9][0-9]?|00000[1-9]))$"
)
"""Above zero, at most 12 digits before and 6 after the point: unknown is not zero."""
PRICE_OR_ZERO_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,6})?$"

_AMOUNT, _PRICE, _PRICE_OR_ZERO, _DATE = map(
    re.compile, (AMOUNT_PATTERN, PRICE_PATTERN, PRICE_OR_ZERO_PATTERN, DATE_PATTERN)
)
_AMOUNT_BOUND = Decimal(10) ** 12
_AMOUNT_DECIMALS = 6
"""Bounds of AMOUNT_PATTERN for amounts that are decimals already."""

Text = Annotated[str, Field(min_length=1, max_length=200, pattern=NO_NUL), BeforeValidator(_text)]
LongText = Annotated[str, Field(max_length=2000, pattern=NO_NUL), BeforeValidator(_text)]
Key = Annotated[str, Field(pattern=KEY_PATTERN), BeforeValidator(_text)]
"""Stable key of a catalog entry: lower case, digits, point, dash, underscore."""
EntryName = Annotated[
    str,
    Field(min_length=1, max_length=200, pattern=NO_NUL),
    BeforeValidator(_text),
    WithJsonSchema({"type": "string", "pattern": KEY_PATTERN}),
]
"""A key by which a question names an entry of the catalog; what is no key is looked up all the
same, so that it is refused with the key that it is another spelling of."""
Month = Annotated[str, Field(pattern=MONTH_PATTERN), BeforeValidator(_text)]
"""A calendar month, such as "2027-01"."""
IsoDate = Annotated[
    date,
    Field(ge=date(2000, 1, 1), le=date(2100, 12, 31)),
    BeforeValidator(_iso_date),
]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(_whole)]
Size = Annotated[int, Field(ge=1, le=10_000_000), BeforeValidator(_whole)]
"""A width, head count or other dimension of an architecture."""
SizeOrZero = Annotated[int, Field(ge=0, le=10_000_000), BeforeValidator(_whole)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_whole)]
TokenCount = Annotated[int, Field(ge=1, le=MAX_TOKENS), BeforeValidator(_whole)]
SMALLEST = 1e-12
"""Smallest magnitude above zero: what is smaller overflows where a formula divides by it."""
LARGEST = 1e15
"""Largest magnitude of a number that is no count of tokens."""


def _zero_or_more(number: float) -> float:
    if 0 < number < SMALLEST:
        raise ValueError(f"must be 0 or at least {SMALLEST:g}")
    return number


Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST), BeforeValidator(_number)]
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST), BeforeValidator(_number)]
NonNegative = Annotated[
    float, Field(ge=0, le=LARGEST), BeforeValidator(_number), AfterValidator(_zero_or_more)
]
Fraction = Annotated[
    float, Field(ge=0, le=1), BeforeValidator(_number), AfterValidator(_zero_or_more)
]
PositiveFraction = Annotated[float, Field(ge=SMALLEST, le=1), BeforeValidator(_number)]
Amount = Annotated[
    Decimal,
    BeforeValidator(_amount),
    PlainSerializer(decimal_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": AMOUNT_PATTERN}),
]
"""Money as exact decimal, a string in JSON. The currency stands beside it."""
Price = Annotated[
    Decimal,
    BeforeValidator(_price),
    PlainSerializer(decimal_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": PRICE_PATTERN}),
]
"""A price above zero as exact decimal, a string in JSON."""
PriceOrZero = Annotated[
    Decimal,
    BeforeValidator(_price_or_zero),
    PlainSerializer(decimal_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": PRICE_OR_ZERO_PATTERN}),
]
"""A price as exact decimal, a string in JSON; zero says that nothing is paid."""
Currency = Annotated[str, Field(pattern=r"^[A-Z]{3}$"), BeforeValidator(_text)]
"""ISO 4217 code."""


Flag = Annotated[bool, Strict()]
"""True or false, and no number that stands for one."""


class Provenance(Value):
    """Where the facts of an entry come from, and how far they were checked."""

    sources: tuple[LongText, ...] = ("given in the request",)
    """Documents or data sets that state the facts."""
    checked: IsoDate | None = None
    """Day on which the facts were last compared with their sources."""
    verified: Flag = True
    """False when a fact was found in no second place."""
    unverified_fields: tuple[Text, ...] = ()
    """Fields that rest on memory or on one weak source."""
