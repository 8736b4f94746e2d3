"""The values of a rebuild: the routes to it, and the checks before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

# How a package is built again; in the order in which they are tried.
Route = Literal["link", "full", "sources"]
ROUTES: tuple[Route, ...] = get_args(Route)

# Whether a new package was loaded; `linked`: it was not, and a note says why.
Checked = Literal["loaded", "linked", "skipped"]


@dataclass(frozen=True)
class Check:
    """One thing looked at. `ok` of `None` means: worth knowing, and no obstacle.

    `error` is the name of the error that a command stops with where `ok` is false.
    """

    name: str
    found: str
    ok: bool | None = True
    hint: str = ""
    error: str = ""
