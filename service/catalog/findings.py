"""What is wrong with the catalog's files, each with its place."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """One fault, with the file and the line where a person can mend it."""

    file: str
    """Path below the catalog's folder."""
    line: int
    """Line in the file, from 1."""
    message: str
    """What is wrong, and where it helps, what would be right."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class InvalidCatalog(Exception):
    """The files do not make a catalog; `findings` holds every fault that was found."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(sorted(findings))
        super().__init__("\n".join(str(finding) for finding in self.findings))
