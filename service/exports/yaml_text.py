"""Documents as YAML: the same text every time, and whatever a text holds stays a text."""

from typing import Any

import yaml


class Quoted(str):
    """A text that is written in quotes: readers differ in what else `1e3` or `yes` might be."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes plain values alone, and each of them in full."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _quoted(dumper: yaml.SafeDumper, text: Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')


_Dumper.add_representer(Quoted, _quoted)


def yaml_text(document: dict[str, Any]) -> str:
    """Write a document of plain values; keys stay in their order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
