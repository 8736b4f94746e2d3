"""The documents as values: pages, their headings and links, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: under which heading it stands, its language, and its text."""

    heading: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The name of the file that this block shows: its first line is `# NAME.py`."""
        match = re.match(r"# (\w+\.py)\n", self.text)
        return match[1] if match and self.language == "python" else ""


@dataclass(frozen=True)
class Page:
    """A document. `name` is its path in the repository."""

    name: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """The text without its blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def headings(self) -> tuple[str, ...]:
        return tuple(re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        blocks, heading, end = [], "", 0
        for match in _FENCE.finditer(self.text):
            above = re.findall(r"^#+ (.+)$", self.text[end : match.start()], re.MULTILINE)
            heading = above[-1] if above else heading
            blocks.append(Block(heading, match[2], match[3]))
            end = match.end()
        return tuple(blocks)

    def code(self, language: str, heading: str = "") -> list[str]:
        """The blocks in a language, below a heading if one is given."""
        found = (block for block in self.blocks if heading in ("", block.heading))
        return [block.text for block in found if block.language == language]

    def links(self) -> Iterator[tuple[str, str]]:
        """The relative path and the anchor of each link to a place in the repository."""
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", self.prose):
            path, _, anchor = target.partition("#")
            yield path, anchor

    def anchors(self) -> set[str]:
        """The anchors of headings on which GitHub and the site agree."""
        agreed = set()
        for heading in self.headings:
            bare = re.sub(r"[^\w\s-]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading))
            github = bare.strip().lower().replace(" ", "-")
            site = re.sub(r"[-\s]+", "-", bare.strip().lower())
            if github == site:
                agreed.add(site)
        return agreed


README = Page("README.md")
CONTRIBUTING = Page("CONTRIBUTING.md")
CHANGELOG = Page("CHANGELOG.md")
ERRORS = Page("docs/errors.md")
# What users read: the README, and the pages of the site.
PAGES = [
    README,
    *(Page(str(path.relative_to(ROOT))) for path in sorted((ROOT / "docs").rglob("*.md"))),
]
EVERY = [*PAGES, CONTRIBUTING, CHANGELOG]


def page(name: str) -> Page:
    """The page of this name below `docs/`, or at the top."""
    return next(one for one in EVERY if one.name in (name, f"docs/{name}"))
