"""The site of the documentation builds, and every page is in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest

import programs
import schemas
from pages import PAGES, README, ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by `mkdocs build --strict`: a warning, such as a broken link, is an error."""
    folder = tmp_path_factory.mktemp("site")
    build = ["mkdocs", "build", "--strict", "--quiet", "-d", folder]
    programs.run(sys.executable, "-m", *build, cwd=ROOT)
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {page.name for page in PAGES} - {README.name}
    assert {page for page in pages if not (site / page[5:]).with_suffix(".html").exists()} == set()


def test_the_site_has_the_api_from_its_docstrings(site: Path) -> None:
    import rewriter

    html = (site / "reference" / "api.html").read_text(encoding="utf-8")
    public = {name for name in rewriter.__all__ if not name.startswith("_")}
    assert {name for name in public if f'id="rewriter.{name}"' not in html} == set()


def test_the_site_has_a_schema_of_each_type_that_is_written_as_json(site: Path) -> None:
    for name in (*schemas.DOCUMENTS, *(f"dump/{file}" for file in schemas.FILES)):
        path = site / "schemas" / f"{name.removesuffix('.json')}.json"
        schema = json.loads(path.read_text(encoding="utf-8"))
        assert schema == json.loads(json.dumps(schemas.schema(name)))
        jsonschema.Draft202012Validator.check_schema(schema)


def test_pages_fetch_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert 'src="http' not in html, page
        assert 'rel="stylesheet" href="http' not in html, page
