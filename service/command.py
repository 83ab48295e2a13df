"""What every sub-command shares: how it is added, how it fails, which settings it reads."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from service.settings import Settings

FAILED = 1
WRONG_INPUT = 2

Command = Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """A failure that the message explains in one line."""

    def __init__(self, message: str, *, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Command,
    description: str,
) -> argparse.ArgumentParser:
    """Add a sub-command; its own arguments are added to what is returned."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=description, description=description
    )
    parser.set_defaults(command=command)
    return parser


def settings_beside(data_folder: Path | None) -> Settings:
    """Read the settings of a command that takes the folder of the embedded database.

    Raises:
        CommandError: another database is named as well.
    """
    settings = Settings.from_environment()
    if data_folder is not None and settings.database_url is not None:
        raise CommandError(
            "--data names the folder of the embedded database, but DATABASE_URL names another "
            "database. Give one of the two.",
            exit_code=WRONG_INPUT,
        )
    return settings
