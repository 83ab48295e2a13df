"""A GPU or an architecture in a question: a key of the catalog, or described on the spot."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag
from typing_extensions import TypeAliasType

from service.core.architecture.model import ModelArchitecture
from service.core.hardware import Gpu
from service.core.value import EntryName


def key_or_inline(value: Any) -> str:
    """Tag of a field that takes a catalog key or an object; decides which branch is checked."""
    return "key" if isinstance(value, str) else "inline"


GpuRef = TypeAliasType(
    "GpuRef",
    Annotated[
        Annotated[EntryName, Tag("key")] | Annotated[Gpu, Tag("inline")],
        Discriminator(key_or_inline),
    ],
)
"""A GPU by catalog key, or described in the request."""


ArchitectureRef = TypeAliasType(
    "ArchitectureRef",
    Annotated[
        Annotated[EntryName, Tag("key")] | Annotated[ModelArchitecture, Tag("inline")],
        Discriminator(key_or_inline),
    ],
)
"""An architecture by catalog key, or described in the request."""
