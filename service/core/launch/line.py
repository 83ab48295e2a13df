"""A line for a shell: words that stay words, and variables that the plan cannot know."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from service.core.launch.answer import ShellVariable
from service.core.value import LongText


class NotLaunchable(Exception):
    """What no line is written for; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True)
class Variable:
    """A word that the shell fills in."""

    name: str
    meaning: str
    is_list: bool = False
    """True when the shell may split it into several words."""

    @property
    def word(self) -> str:
        """The variable as it stands in a line."""
        return f"${self.name}" if self.is_list else f'"${self.name}"'


Word = str | int | float | Variable


@dataclass(frozen=True)
class Started:
    """A program with its options."""

    tool: str
    source: str
    words: tuple[Word, ...]
    notes: tuple[LongText, ...] = field(default=())

    @property
    def command(self) -> str:
        """The line; whatever a name holds, it stays one word."""
        return " ".join(map(_word, self.words))

    @property
    def variables(self) -> tuple[ShellVariable, ...]:
        """What the shell fills in, in the order of the line."""
        used = dict.fromkeys(word for word in self.words if isinstance(word, Variable))
        return tuple(ShellVariable(name=each.name, meaning=each.meaning) for each in used)


def _word(word: Word) -> str:
    if isinstance(word, Variable):
        return word.word
    return shlex.quote(f"{word:g}" if isinstance(word, float) else str(word))


def options(*pairs: tuple[str, Word | None]) -> Iterable[Word]:
    """Options with their values; those whose value is None are left out."""
    for name, value in pairs:
        if value is not None:
            yield name
            yield value


def line_fields(write: Callable[[], Started], *notes: str) -> dict[str, Any]:
    """The fields of an answer that tell of its line, or why there is none."""
    try:
        started = write()
    except NotLaunchable as refusal:
        names = ("tool", "source", "command")
        empty: dict[str, Any] = dict.fromkeys(names)
        return empty | {
            "not_written_because": refusal.message,
            "variables": (),
            "notes": notes,
        }
    return {
        "tool": started.tool,
        "source": started.source,
        "command": started.command,
        "not_written_because": None,
        "variables": started.variables,
        "notes": (*started.notes, *notes),
    }
