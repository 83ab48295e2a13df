"""Names, numbers and layouts as published rows spell them, read as one."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from service.core.snapshot import CatalogSnapshot, plain_name

Recompute = Literal["none", "core", "selective", "half", "full", "unstated"]

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_NUMBER = re.compile(r"([-+]?[\d.]+(?:e[-+]?\d+)?) ?([kmbt]?)", re.IGNORECASE)
_BINARY_LENGTH = 1024
"""A sequence of "8k" holds 8 · 1,024 tokens."""
_LAYOUT_KEYS = {
    "tp": (
        "tensorparallel",
        "tensorparallelsize",
        "tensormodelparallelsize",
        "mp",
        "modelparallel",
    ),
    "pp": ("pipelineparallel", "pipelineparallelsize", "pipelinemodelparallelsize"),
    "dp": ("dataparallel", "dataparallelsize", "ddp"),
    "cp": ("contextparallel", "contextparallelsize"),
    "ep": ("expertparallel", "expertparallelsize", "expertmodelparallelsize"),
    "etp": ("experttensorparallel", "experttensorparallelsize"),
    "vp": ("vpp", "virtualpipeline", "virtualpipelinestages"),
    "sp": ("sequenceparallel",),
    "zero": ("zerostage", "deepspeed"),
    "fsdp": ("sharding", "shardingstrategy"),
    "method": ("peft", "tuning"),
    "rank": ("r", "lorarank", "lorar"),
    "targets": ("targetmodules", "loratargetmodules"),
    "optimizer": ("optim", "opt"),
    "offload": ("cpuoffload",),
}
_SHAPE_KEYS = {
    "layers": ("numlayers", "numhiddenlayers", "nlayers"),
    "hidden": ("hiddensize", "dmodel"),
    "heads": ("numattentionheads", "nheads"),
    "kv_heads": ("numkeyvalueheads", "numquerygroups"),
    "ffn": ("intermediatesize", "ffnhiddensize", "dff"),
    "vocab": ("vocabsize",),
    "experts": ("numexperts",),
    "active_experts": ("numexpertspertoken", "numexpertspertok", "topk"),
    "params_total": ("params", "parameters"),
}
_DEGREES = ("tp", "pp", "dp", "cp", "ep", "etp", "vp", "interleave", "rank", "local_batch")
_WHOLE = {"no_shard": 0, "none": 0, "ddp": 0, "optim": 1, "os": 1, "os_g": 2}
"""Words for sharding that the stages of ZeRO say, too."""
_METHODS = (("qlora", "qlora"), ("qdora", "qlora"), ("lora", "lora"), ("dora", "lora"))
_MAKERS = re.compile(
    r"\([^)]*\)|\b(nvidia|amd|intel|google|tesla|instinct|habana|geforce)\b|^\d+ ?x "
)
_FORMS = re.compile(r"^(sxm|hbm)\d*e?$")
_UNSTATED = {"", "not stated", "unknown", "n/a", "na", "-", "?", "auto", "default"}
_NOTHING = re.compile(r"^(none|no|off|false|disabled|without|0)\b")
_HALF = re.compile(r"every (2nd|second|other)|partial|half|\bop\b|\d+ of \d+")
_CORE = re.compile(r"attention|attn|\bcore\b")
_FULL = re.compile(
    r"^(full|yes|true|on|all|uniform|block|1)\b|(activation|gradient|layer)\w* (re)?(check|comp)"
)


def number(text: str | None) -> float | None:
    """A number as it is written: 4,096 or 8k or 1.4T or 2e12; None where there is none."""
    match = _NUMBER.fullmatch((text or "").strip().replace(",", ""))
    if match is None:
        return None
    try:
        return float(match.group(1)) * _SCALES[match.group(2).lower()]
    except ValueError:
        return None


def count(text: str | None) -> int | None:
    """A whole number above zero, else None."""
    value = number(text)
    return None if value is None or not 1 <= value < float("inf") else round(value)


def sequence(text: str | None) -> int | None:
    """Tokens of a sequence: thousands are binary ones."""
    short = re.fullmatch(r"(\d+) ?k", (text or "").strip().lower())
    return int(short.group(1)) * _BINARY_LENGTH if short else count(text)


def mapping(text: str | None) -> dict[str, Any]:
    """A cell that holds an object; nothing where it holds none."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def layout(text: str | None) -> dict[str, Any]:
    """Parallel sizes and sharding under their usual names; "TP8 PP4" is read, too."""
    given = mapping(text)
    if not given and text:
        given = dict(re.findall(r"([A-Za-z]+)\s*[=:]?\s*(\d+)", text))
    found = _usual(given, _LAYOUT_KEYS)
    for name in _DEGREES:
        if name in found:
            found[name] = count(str(found[name]))
    changed = _sharded(found) | _tuned(found)
    return found | {
        name: value for name, value in changed.items() if name in found or value is not None
    }


def shape(text: str | None) -> dict[str, Any]:
    """Sizes of a model under their usual names; one without its width is none."""
    found = {
        name: number(value) if isinstance(value, str) else value
        for name, value in _usual(mapping(text), _SHAPE_KEYS).items()
    }
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "active_experts")
    found |= {name: round(float(found[name] or 0)) for name in sizes if found.get(name)}
    return found if found.get("hidden") else found | {"layers": None}


def _usual(given: Mapping[str, Any], keys: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    usual = {other: name for name, others in keys.items() for other in others}
    return {
        key.lower() if key.lower() in keys else usual.get(plain_name(key), key): value
        for key, value in given.items()
    }


def _sharded(found: Mapping[str, Any]) -> dict[str, Any]:
    zero, fsdp = found.get("zero"), found.get("fsdp")
    if isinstance(fsdp, bool):
        fsdp = "full_shard" if fsdp else "no_shard"
    if isinstance(fsdp, str) and fsdp.isdigit():
        fsdp = int(fsdp)
    if isinstance(fsdp, str):
        fsdp = fsdp.lower()
        stage = re.fullmatch(r"zero[ _-]?(\d)", fsdp)
        zero = int(stage.group(1)) if stage else _WHOLE.get(fsdp, zero)
        fsdp = None if stage or fsdp in _WHOLE else fsdp
    stage = re.search(r"[0-3]", str(zero)) if zero is not None else None
    return {"fsdp": fsdp, "zero": int(stage.group()) if stage else None}


def _tuned(found: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if isinstance(found.get("method"), str):
        method = found["method"].lower()
        changed["method"] = next((name for word, name in _METHODS if word in method), method)
    if isinstance(found.get("targets"), list):
        changed["targets"] = ",".join(map(str, found["targets"]))
    if isinstance(found.get("sp"), str):
        changed["sp"] = found["sp"].lower() not in {"", "0", "false", "no", "off"}
    return changed


def recompute(text: str) -> Recompute:
    """What is computed again: "core" where attention is named, "selective" without saying what."""
    plain = text.strip().lower()
    if plain in _UNSTATED:
        return "unstated"
    if _NOTHING.search(plain):
        return "none"
    if plain.startswith("full"):
        return "full"
    if _HALF.search(plain):
        return "half"
    if _CORE.search(plain):
        return "core"
    if plain.startswith("selective"):
        return "selective" if plain == "selective" else "half"
    return "full" if _FULL.search(plain) else "none"


def gpu_key(name: str, snapshot: CatalogSnapshot) -> str | None:
    """The GPU that a name stands for: as the catalog spells it, else by its words in any order.

    Makers and what stands in brackets are left out; where a form is not named it is the SXM one.
    """
    exact = snapshot.key_of("gpu", name)
    if exact is not None or ("gpu", plain_name(name)) in snapshot.aliases:
        return exact
    short = _MAKERS.sub(" ", name.lower()).strip()
    exact = snapshot.key_of("gpu", short)
    if exact is not None:
        return exact
    words = _words(short)
    if not words or not any(re.search(r"[a-z]", word) and re.search(r"\d", word) for word in words):
        return None
    spellings = {key: [key] for key in snapshot.gpus}
    for alias in snapshot.aliases.values():
        if alias.kind == "gpu" and alias.target in spellings:
            spellings[alias.target].append(alias.name)
    same = [key for key, names in spellings.items() if any(_words(n) == words for n in names)]
    parts = same or [key for key in snapshot.gpus if words < _words(key)]
    usual = [key for key in parts if "sxm" in _words(key)]
    return _only(parts) or _only(usual)


def _only(keys: Iterable[str]) -> str | None:
    found = list(keys)
    return found[0] if len(found) == 1 else None


def _words(name: str) -> frozenset[str]:
    words = (_FORMS.sub(r"\1", word) for word in re.split(r"[\s_/-]+", name.lower()) if word)
    return frozenset(word for word in words if word != "hbm")
