"""Answering a single estimate: the release resolved, the planner run beside the event loop."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from service.core.answers import EstimateAnswer, EstimateQuestion, PricedQuestion
from service.core.costs.negotiated import check_price_book
from service.core.snapshot import CatalogSnapshot
from service.plans.beside import run_beside_the_loop
from service.plans.create import SnapshotLoader, with_price_book
from service.plans.errors import TookTooLong
from service.plans.repository import OpenSession

Question = TypeVar("Question", bound=EstimateQuestion)
Answer = TypeVar("Answer", bound=EstimateAnswer)
Planner = Callable[[Question, CatalogSnapshot], Answer]
"""Answers a question from a snapshot alone."""


async def answer_estimate(
    open_session: OpenSession,
    question: Question,
    planner: Planner[Question, Answer],
    *,
    now: datetime,
    load_snapshot: SnapshotLoader,
) -> Answer:
    """Resolve release and day, and answer; nothing is stored.

    Raises:
        TooMuchAtOnce, TookTooLong: the estimate cannot be made now, or not in time.
        CoreError: the question names what the release does not hold, or a price book that the team
            does not have, or contradicts itself.
    """
    as_of_date = question.as_of_date or now.astimezone(UTC).date()
    async with open_session() as session:
        snapshot = await load_snapshot(session, question.catalog_release, as_of_date)
        if isinstance(question, PricedQuestion):
            snapshot = await with_price_book(session, snapshot, question.price_book)
            check_price_book(question.price_book, snapshot, pointer="/price_book")
    try:
        return await run_beside_the_loop(planner, question, snapshot)
    except TookTooLong as late:
        raise TookTooLong(late.limit_s, question.asked_less) from late
