"""Fields that several documents have."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

OutputPath = Annotated[
    str | None, Meta(description="Path of the result, - for standard output; null: nothing written")
]
BackupPath = Annotated[str | None, Meta(description="Where the original is kept, with --in-place")]
CachePath = Annotated[
    str | None, Meta(description="The cache of torch.compiler.precompile that was written with it")
]
Diff = Annotated[str | None, Meta(description="With --diff: as diff -u shows it")]
WrapperName = Annotated[str, Meta(description="The wrapper's path inside the artifact")]
