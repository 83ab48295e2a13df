"""Changes name the state that they change: If-Match, as RFC 9110, 13.1.1 has it."""

from __future__ import annotations

from typing import Annotated

from litestar.params import HeaderParameter

from service.api.problems import FieldProblem, ProblemError, ProblemKind

IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match",
        max_length=1000,
        description="`ETag` of the state that was read, or `*` for whatever state it is in; "
        "required.",
    ),
]


def seen_states(if_match: str | None, noun: str) -> frozenset[str]:
    """Return the states that the caller has seen: tags without commas of their own, as ours are.

    Raises:
        ProblemError: The header is missing.
    """
    if if_match is None:
        detail = f"Send If-Match with the ETag of the {noun} as you read it, or with *."
        raise ProblemError(
            ProblemKind.PRECONDITION_REQUIRED,
            detail,
            errors=[FieldProblem(parameter="If-Match", detail=detail)],
        )
    given = frozenset(tag.strip() for tag in if_match.split(","))
    # `*` stands alone or not at all: in a list it would undo the tags beside it.
    return given if len(given) == 1 else given - {"*"}
