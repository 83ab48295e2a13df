"""Names of Kubernetes objects, made from texts that users chose."""

import re
import unicodedata
from collections.abc import Iterable
from hashlib import sha256

MAX_LABEL_LENGTH = 63
"""Of a DNS label (RFC 1123), which names of namespaces and values of labels may be."""
_MARK_LENGTH = 8
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+")


def dns_label(text: str, *, prefix: str = "") -> str:
    """A text as a DNS label: itself where it is one, else what is left of it and a mark of it.

    The mark is a digest of the whole text, so that texts that leave the same letters stay apart,
    and that a name does not change with what stands beside it.
    """
    room = MAX_LABEL_LENGTH - len(prefix)
    if len(text) <= room and _LABEL.fullmatch(text):
        return prefix + text
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    mark = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_LENGTH]
    kept = _NOT_IN_LABEL.sub("-", plain)[: room - _MARK_LENGTH - 1].strip("-") or "x"
    return f"{prefix}{kept}-{mark}"


def dns_labels(texts: Iterable[str], *, prefix: str = "") -> dict[str, str]:
    """DNS labels of different texts, all of them different."""
    labels: dict[str, str] = {}
    taken: set[str] = set()
    # Texts that are labels come first: they are what they are, others can be told from them.
    for text in sorted(set(texts), key=lambda each: (not _LABEL.fullmatch(each), each)):
        label, turn = dns_label(text, prefix=prefix), 0
        while label in taken:
            turn += 1
            label = dns_label(f"{text}\0{turn}", prefix=prefix)
        taken.add(label)
        labels[text] = label
    return labels
