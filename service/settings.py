"""Values from the environment, read once and handed down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

PROJECT_ROOT = Path(__file__).resolve().parent.parent
"""The checkout: `migrations/`, `catalog/` and `openapi/` stand here."""

DEFAULT_TEAM = "local"
"""The team that open mode (no keys) acts as."""


AccessMode = Literal["open", "keys"]


class SettingsError(Exception):
    """A variable of the environment has a value that cannot be used; the message names it."""


class Settings(BaseModel):
    """What a process of the service is told from outside."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    database_url: str | None = None
    """Postgres as the restricted role that serves; none: the embedded server."""

    database_migration_url: str | None = None
    """Postgres as the role that owns the tables; none: the role that serves owns them too."""

    access_mode: AccessMode | None = None
    """open: whoever reaches the port acts as one team; keys: each request needs an API key; none:
    keys, except that `gpuplan serve` opens the embedded database on a loopback address."""

    pg_bindir: str | None = None
    """Folder of the programs of the embedded server; none: those that come with the package."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names under which the service answers beside the loopback ones; from a comma list."""

    max_body_bytes: int = Field(default=2**20, ge=1)
    """Largest request body that is read, in bytes."""

    estimate_limit_s: float = Field(default=30.0, gt=0)
    """Longest time that a request waits for its estimate, in seconds."""

    prometheus_multiproc_dir: str | None = None
    """Empty folder in which several workers add up their metrics; none: each counts for itself."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings; an empty variable counts as absent.

        Raises:
            SettingsError: a value cannot be used.
        """
        variables = os.environ if environment is None else environment
        values = {name: variables.get(name.upper()) or None for name in cls.model_fields}
        try:
            return cls.model_validate({name: value for name, value in values.items() if value})
        except ValidationError as error:
            first = error.errors()[0]
            raise SettingsError(f"{str(first['loc'][0]).upper()}: {first['msg']}") from error

    @property
    def migration_url(self) -> str | None:
        """Postgres as the role that migrates."""
        return self.database_migration_url or self.database_url


def worker_environment(
    service_url: str, metrics_folder: str, access_mode: AccessMode
) -> dict[str, str]:
    """The environment of the processes that serve: ours, without the role that owns the tables.

    They share a folder for their metrics, or each would count only what it answered itself.
    """
    withheld = {"DATABASE_MIGRATION_URL"}
    kept = {name: value for name, value in os.environ.items() if name not in withheld}
    return {
        **kept,
        "DATABASE_URL": service_url,
        "PROMETHEUS_MULTIPROC_DIR": metrics_folder,
        "ACCESS_MODE": access_mode,
    }
