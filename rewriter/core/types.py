"""Plain types that every room uses."""

from __future__ import annotations

from typing import Any, Literal

Role = Literal["in", "out", "inout"]
Type = Literal["tensor", "scalar", "other"]
Phase = Literal["before", "after"]
When = Literal["before", "after", "both"]
ArgsMode = Literal["written", "all", "ends"]  # which arguments of launches are recorded: `--args`
# What `report --trend` shows of each launch.
TrendStatistic = Literal["std", "mean", "min", "max", "magnitude", "nan", "inf", "time"]
Format = Literal["text", "upstream"]
Language = Literal["python", "cpp"]
Json = dict[str, Any]
