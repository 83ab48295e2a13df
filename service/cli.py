"""The `gpuplan` command."""

from __future__ import annotations

import argparse

from service import __version__


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    parser = argparse.ArgumentParser(prog="gpuplan", description="Plan GPU capacity and cost.")
    parser.add_argument("--version", action="version", version=f"gpuplan {__version__}")
    parser.parse_args(arguments)
    parser.print_help()
    return 2
