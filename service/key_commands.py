"""The `gpuplan key` commands: keys are made, listed and revoked by whoever owns the database."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from service.access.scopes import Scope
from service.command import add_command, settings_beside

if TYPE_CHECKING:
    from service.access.keys import NewKey
    from service.access.repository import Connection

Answer = TypeVar("Answer")


def add_key_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `key create`, `key list` and `key revoke`."""
    nested = commands.add_parser("key", help="the API keys of teams").add_subparsers(
        required=True, metavar="ACTION"
    )
    create = add_command(
        nested, "create", _create_key, "make a key for a team, and print it this once"
    )
    create.add_argument("--team", required=True, help="team whose plans the key reads and makes")
    create.add_argument("--name", required=True, help="what the key is for, to know it by")
    create.add_argument(
        "--scope",
        required=True,
        nargs="+",
        action="extend",
        choices=[scope.value for scope in Scope],
        help=", ".join(Scope),
        metavar="SCOPE",
    )
    create.add_argument(
        "--expires", type=_day, metavar="DATE", help="first day (UTC) on which it no longer works"
    )
    listing = add_command(nested, "list", _list_keys, "list keys, the expired and revoked ones too")
    listing.add_argument("--team", help="of this team alone")
    revoke = add_command(nested, "revoke", _revoke_key, "let a key never work again")
    revoke.add_argument("id", type=UUID, metavar="ID", help="as `key list` shows it")
    for parser in (create, listing, revoke):
        parser.add_argument(
            "--data",
            type=Path,
            metavar="DIR",
            help="folder of the embedded database (.state/postgres)",
        )


def _day(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time.min, UTC)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date such as 2027-12-31") from None


def _create_key(arguments: argparse.Namespace) -> int:
    from service.access.keys import create_key

    def create(connection: Connection) -> Awaitable[NewKey]:
        return create_key(
            connection,
            team=arguments.team,
            name=arguments.name,
            scopes=arguments.scope,
            now=datetime.now(UTC),
            expires_at=arguments.expires,
        )

    made = _on_keys(arguments, create)
    print(f"gpuplan: key {made.key.id} of team {made.key.team}, shown this once:", file=sys.stderr)
    print(made.secret)
    return 0


def _list_keys(arguments: argparse.Namespace) -> int:
    from service.access.keys import key_table
    from service.access.repository import list_keys

    keys = _on_keys(arguments, lambda connection: list_keys(connection, arguments.team))
    for line in key_table(keys, now=datetime.now(UTC)):
        print(line)
    return 0


def _revoke_key(arguments: argparse.Namespace) -> int:
    from service.access.keys import revoke_key

    now = datetime.now(UTC)
    key = _on_keys(arguments, lambda connection: revoke_key(connection, arguments.id, now=now))
    print(f"gpuplan: key {key.id} of team {key.team} ({key.name}) is revoked")
    return 0


def _on_keys(
    arguments: argparse.Namespace, work: Callable[[Connection], Awaitable[Answer]]
) -> Answer:
    """Do one thing with the keys, in one transaction."""
    from service.access.repository import owner_transaction
    from service.launch import owner_url

    async def run(url: str) -> Answer:
        async with owner_transaction(url) as connection:
            return await work(connection)

    with owner_url(arguments.data, settings_beside(arguments.data)) as url:
        return asyncio.run(run(url))
