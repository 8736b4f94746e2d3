"""A `.pt2` package: reading it, and building it again with other sources."""

from __future__ import annotations

from typing import Literal, get_args

# How a package is built again; in the order in which they are tried.
Route = Literal["link", "full", "sources"]
ROUTES: tuple[Route, ...] = get_args(Route)
