"""Names of downloaded files, made from texts that users chose."""

import unicodedata
from urllib.parse import quote

MAX_STEM_BYTES = 150
"""UTF-8 bytes of the part before the suffix: file systems take 255 for the whole name."""
RESERVED = frozenset('<>:"/\\|?*%')
"""Separators and wildcards of file systems; `%` would be decoded twice by some browsers."""


def content_disposition(*parts: str, suffix: str = "csv") -> str:
    """Header value that offers a download under a name made of the parts.

    The full name is in `filename*` (RFC 8187); `filename` is its ASCII shadow for old clients.
    """
    first, *others = parts
    tail = "".join(f"-{part}" for part in others) + f".{suffix}"
    stem = _safe(first)
    shadow = _safe(unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode())
    return (
        f"attachment; filename=\"{shadow}{tail}\"; filename*=UTF-8''{quote(stem + tail, safe='')}"
    )


def _safe(text: str) -> str:
    """Text that no file system or terminal takes for more than a name.

    Control and format characters go, among them those that turn the direction of reading and so
    can hide a suffix.
    """
    kept = "".join(
        "_" if character in RESERVED else character
        for character in text
        if not unicodedata.category(character).startswith("C")
    )
    short = kept.encode()[:MAX_STEM_BYTES].decode(errors="ignore")
    return " ".join(short.split()).strip(". ") or "plan"
