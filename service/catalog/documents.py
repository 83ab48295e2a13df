"""YAML files as plain values that remember on which line each of them stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from service.catalog.findings import Finding, InvalidCatalog

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_SCALARS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp")}
_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ODD_SCALARS = {
    f"{_TAG}int": _NUMBER,
    f"{_TAG}float": _NUMBER,
    f"{_TAG}timestamp": _DATE,
}

Place = tuple[str | int, ...]
"""Steps from the root of a file to one of its parts."""


@dataclass(frozen=True)
class Document:
    """The value of one file, and the line of each of its parts."""

    file: str
    """Path below the catalog's folder."""
    value: Any
    """Mappings, lists and scalars."""
    lines: dict[Place, int]
    """Line of each part by its path from the root."""

    def line(self, path: Sequence[str | int]) -> int:
        """Line of a part, or of the nearest part around it.

        Steps that the file does not have are passed over: a validator names the branch of a union
        as a step of its own.
        """
        known: Place = ()
        for step in path:
            if (*known, step) in self.lines:
                known = (*known, step)
        return self.lines.get(known, 1)

    def finding(self, path: Sequence[str | int], message: str) -> Finding:
        """A fault at one part of the file."""
        return Finding(self.file, self.line(path), message)


@dataclass
class _Builder:
    """Turns composed nodes into values; PyYAML's own constructor drops lines and duplicates."""

    file: str
    lines: dict[Place, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    """Parts that are being built: one that comes again within itself would have no end."""
    scalars: Any = field(default_factory=yaml.constructor.SafeConstructor)

    def fault(self, node: Any, message: str) -> None:
        self.findings.append(Finding(self.file, node.start_mark.line + 1, message))

    def build(self, node: Any, path: Place) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self.open:
            self.fault(node, "this part holds itself by an alias")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self.open.remove(id(node))

    def _mapping(self, node: Any, path: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_TAG}merge":
                self.fault(key_node, "a key must be plain text")
                continue
            if key in values:
                first = self.lines[(*path, key)]
                self.fault(key_node, f"key {key!r} stands here twice; first on line {first}")
                continue
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            values[key] = self.build(value_node, (*path, key))
        return values

    def _scalar(self, node: Any) -> Any:
        if node.tag not in _SCALARS:
            self.fault(node, f"{node.value!r} has a tag that catalog files do not use")
            return None
        plain = _ODD_SCALARS.get(node.tag)
        if plain is not None and not plain.fullmatch(node.value):
            # YAML 1.1 reads 12:30 as 750 and 010 as 8; neither is ever what a person meant.
            self.fault(node, f"{node.value!r} is no plain number or date; quote it if it is text")
            return None
        try:
            return self.scalars.construct_object(node)
        except ValueError as error:  # the 31st of September
            self.fault(node, f"{node.value!r} cannot be: {error}")
            return None


def read_document(folder: Path, path: Path) -> Document:
    """Read one YAML file below a folder.

    Raises:
        InvalidCatalog: If it is not YAML, or if a mapping has one key twice.
    """
    file = path.relative_to(folder).as_posix()
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidCatalog([Finding(file, line, f"not YAML: {error.problem}")]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidCatalog([Finding(file, 1, f"not YAML in UTF-8: {error}")]) from error
    builder = _Builder(file)
    if node is None:
        raise InvalidCatalog([Finding(file, 1, "the file is empty")])
    value = builder.build(node, ())
    if builder.findings:
        raise InvalidCatalog(builder.findings)
    return Document(file, value, builder.lines)
