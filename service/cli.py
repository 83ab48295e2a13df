"""The `gpuplan` command: each sub-command parses its arguments and calls one function.

A sub-command imports only what it needs: planning from a file loads no web server.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from service import __version__
from service.access.errors import AccessError
from service.command import FAILED, WRONG_INPUT, Command, CommandError, add_command, settings_beside
from service.core.errors import CoreError
from service.core.plans import PlanRequest
from service.db.errors import DatabaseError
from service.key_commands import add_key_commands
from service.settings import DEFAULT_TEAM, PROJECT_ROOT, Settings, SettingsError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    logging.basicConfig(format="gpuplan: %(message)s", level=logging.WARNING)
    parsed = _parser().parse_args(arguments)
    command: Command = parsed.command
    try:
        return command(parsed)
    except CommandError as error:
        return _complain(error, error.exit_code)
    except CoreError as error:
        return _complain(error, WRONG_INPUT)
    except (AccessError, SettingsError) as error:
        return _complain(error, WRONG_INPUT)
    except DatabaseError as error:
        return _complain(error, FAILED)
    except BrokenPipeError:
        # The reader, such as `head`, had enough; the interpreter would complain again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _complain(error: Exception, exit_code: int) -> int:
    print(f"gpuplan: {error}", file=sys.stderr)
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuplan", description="Plan GPU capacity and cost.")
    parser.add_argument("--version", action="version", version=f"gpuplan {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    add_command(
        commands, "migrate", _migrate, "bring the database of DATABASE_URL to the newest revision"
    )
    _add_plan(commands)
    _add_catalog(commands)
    add_key_commands(commands)
    _add_accuracy(commands)
    nested = commands.add_parser("openapi", help="the API description").add_subparsers(
        required=True, metavar="ACTION"
    )
    add_command(nested, "write", _write_openapi, "write openapi/v1.yaml")
    nested = commands.add_parser("baseline", help="the golden estimates").add_subparsers(
        required=True, metavar="ACTION"
    )
    add_command(nested, "write", _write_baseline, "write what the planners answer now, for review")
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands, "serve", _serve, "serve the API, with a database of its own if need be"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on (127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8000, help="port; 0: a free one (8000)")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of the embedded database (.state/postgres)"
    )
    parser.add_argument("--workers", type=_worker_count, default=2, help="processes that serve (2)")


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(commands, "plan", _plan, "print the plan of a request, without any server")
    parser.add_argument(
        "request", type=Path, metavar="SCENARIO.json", help="what would be sent to POST /v1/plans"
    )


def _add_catalog(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    nested = commands.add_parser(
        "catalog", help="the files of hardware, models and prices"
    ).add_subparsers(required=True, metavar="ACTION")
    check = add_command(nested, "check", _check_catalog, "name every fault by file and line")
    publish = add_command(
        nested, "publish", _publish_catalog, "make a release of DATABASE_URL, unless it has one"
    )
    publish.add_argument("--notes", default="", help="what changed since the release before")
    schema = add_command(nested, "schema", _write_catalog_schema, "write the schemas for editors")
    for parser in (check, publish, schema):
        parser.add_argument(
            "folder",
            type=Path,
            nargs="?",
            default=PROJECT_ROOT / "catalog",
            help="folder of the files (catalog)",
        )
    retire = add_command(
        nested, "retire", _retire_release, "take a release out of `latest`; it stays readable"
    )
    retire.add_argument("version", help="version of the release, such as 2026.11.1")


def _add_accuracy(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands, "accuracy", _accuracy, "compare estimates with published and measured results"
    )
    for kind in ("training", "serving"):
        parser.add_argument(
            f"--{kind}",
            type=Path,
            metavar="FILE",
            help=f"{kind} rows to score (without any file: the project's own)",
        )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--rows", action="store_true", help="add every row to the JSON")


def _accuracy(arguments: argparse.Namespace) -> int:
    from service.accuracy.files import UnreadableFile
    from service.accuracy.report import as_text, document
    from service.accuracy.run import accuracy

    try:
        scores = accuracy(
            root=PROJECT_ROOT,
            as_of_date=datetime.now(UTC).date(),
            training=arguments.training,
            serving=arguments.serving,
        )
    except UnreadableFile as error:
        raise CommandError(str(error), exit_code=WRONG_INPUT) from error
    except (OSError, KeyError, ValueError) as error:
        raise CommandError(
            f"a file of rows cannot be read: {error!r}", exit_code=WRONG_INPUT
        ) from error
    report = document(scores, with_rows=arguments.rows)
    as_json = arguments.json
    print(json.dumps(report, indent=1, allow_nan=False) if as_json else as_text(report))
    return 0


def _whole_number(text: str, lowest: int, highest: int) -> int:
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {lowest} to {highest}")
    return int(text)


def _port(text: str) -> int:
    return _whole_number(text, 0, 65535)


def _worker_count(text: str) -> int:
    return _whole_number(text, 1, 64)


def _serve(arguments: argparse.Namespace) -> int:
    from service.launch import LaunchError, ServeOptions, serve

    settings = settings_beside(arguments.data)
    options = ServeOptions(arguments.host, arguments.port, arguments.workers, arguments.data)
    try:
        serve(options, settings)
    except LaunchError as error:
        raise CommandError(str(error)) from error
    return 0


def _migrate(_: argparse.Namespace) -> int:
    from service.db.migrate import expected_revision, migrate

    settings = Settings.from_environment()
    if settings.migration_url is None:
        raise CommandError(
            "set DATABASE_URL (and DATABASE_MIGRATION_URL) to the database to migrate; `serve` "
            "migrates the embedded one by itself.",
            exit_code=WRONG_INPUT,
        )
    migrate(settings.migration_url, settings.database_url)
    print(f"gpuplan: the database is at revision {expected_revision()}")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from service.catalog.resolve import snapshot_from_folder
    from service.core.planners.plan import estimate_fleet
    from service.plans.create import make_plan

    request = _read_plan_request(arguments.request)
    if request.catalog_release != "latest":
        raise CommandError(
            f"{arguments.request}: /catalog_release must be latest: this plans from the files of "
            "catalog/, not from a published release.",
            exit_code=WRONG_INPUT,
        )
    now = datetime.now(UTC)
    snapshot = snapshot_from_folder(PROJECT_ROOT / "catalog", request.as_of_date or now.date())
    answer, assumptions = estimate_fleet(request.scenario, snapshot=snapshot)
    plan = make_plan(
        request,
        answer,
        assumptions,
        snapshot=snapshot,
        plan_id=uuid4(),
        team=DEFAULT_TEAM,
        now=now,
    )
    print(plan.model_dump_json(indent=2))
    return 0


def _read_plan_request(path: Path) -> PlanRequest:
    from service.api.json_body import decode_value, parse_json
    from service.api.problems import ProblemError

    try:
        return decode_value(PlanRequest, parse_json(path.read_bytes()))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", exit_code=WRONG_INPUT) from error
    except ProblemError as problem:
        faults = [f"{fault.pointer or '/'}: {fault.detail}" for fault in problem.errors]
        message = "\n".join(f"{path}: {fault}" for fault in faults or [problem.detail])
        raise CommandError(message, exit_code=WRONG_INPUT) from problem


def _check_catalog(arguments: argparse.Namespace) -> int:
    from service.catalog.findings import InvalidCatalog
    from service.catalog.publish import read_checked

    try:
        content = read_checked(arguments.folder)
    except InvalidCatalog as error:
        print(error)
        faults = len(error.findings)
        raise CommandError(f"{faults} {'fault' if faults == 1 else 'faults'}") from error
    print(f"gpuplan: no fault in {sum(1 for _ in content.entries())} entries")
    return 0


def _catalog_database() -> str:
    settings = Settings.from_environment()
    if settings.database_url is None:
        raise CommandError(
            "set DATABASE_URL to the database of the releases; `serve` publishes into the embedded "
            "one by itself.",
            exit_code=WRONG_INPUT,
        )
    return settings.database_url


def _publish_catalog(arguments: argparse.Namespace) -> int:
    from service.catalog.findings import InvalidCatalog
    from service.catalog.publish import publish_folder

    url = _catalog_database()
    try:
        publication = publish_folder(
            url, arguments.folder, now=datetime.now(UTC), notes=arguments.notes
        )
    except InvalidCatalog as error:
        raise CommandError(f"the catalog is not published:\n{error}") from error
    print(f"gpuplan: {publication}")
    return 0


def _retire_release(arguments: argparse.Namespace) -> int:
    from service.catalog.publish import retire_at

    release = retire_at(_catalog_database(), arguments.version, now=datetime.now(UTC))
    print(f"gpuplan: catalog release {release.version} is retired")
    return 0


def _write_catalog_schema(arguments: argparse.Namespace) -> int:
    from service.catalog.editor_schema import write_schemas

    for path in write_schemas(arguments.folder / "schema"):
        print(f"gpuplan: wrote {path}")
    return 0


def _write_openapi(_: argparse.Namespace) -> int:
    from service.api.openapi import write_spec

    path = PROJECT_ROOT / "openapi" / "v1.yaml"
    write_spec(path)
    print(f"gpuplan: wrote {path}")
    return 0


def _write_baseline(_: argparse.Namespace) -> int:
    from service.catalog.resolve import snapshot_from_folder
    from service.plans.baseline import BASELINE_AS_OF_DATE, write_baselines

    snapshot = snapshot_from_folder(PROJECT_ROOT / "catalog", BASELINE_AS_OF_DATE)
    for path in write_baselines(PROJECT_ROOT / "tests" / "baseline", snapshot):
        print(f"gpuplan: wrote {path}")
    return 0
