"""Makes the pictures of the page: runs `model.py` beside this file, and takes pictures of its
report, and of the comparison of two milder forms of it.

    .venv/bin/python docs/picture/make.py

`docs/report.png` has the top of the page and the flow; what is between them is hidden.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
HIDDEN = ".culprit-launch, .findings li + li { display: none }"
OVERFLOW = "30_000.0"  # in the model


def rewriter(folder: Path, *words: str, code: int = 1) -> None:
    """Run a command that has a finding: exit code 1."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    cache = str(folder / "cache")
    environment = {**os.environ, "PATH": path, "TORCHINDUCTOR_CACHE_DIR": cache}
    command = [sys.executable, "-m", "rewriter", *words]
    done = subprocess.run(command, cwd=folder, env=environment)
    assert done.returncode == code, f"{words}: exit code {done.returncode}"


def record(folder: Path, gain: str) -> str:
    """The dump of the model with that gain."""
    text = (HERE / "model.py").read_text().replace(OVERFLOW, gain)
    (folder / "model.py").write_text(text)
    dump = f"gain-{gain}.dump"
    code = 1 if gain == OVERFLOW else 0
    rewriter(folder, "run", "-d", dump, "--probe", "save", "--", "python", "model.py", code=code)
    return dump


def open_at(page: Page, file: Path, width: int, height: int, selector: str = "") -> Page:
    """A page that was scrolled to an element."""
    page.set_viewport_size({"width": width, "height": height})
    page.goto(file.as_uri())
    page.add_style_tag(content=HIDDEN)
    page.wait_for_selector("html[data-ready]")
    if selector:
        top = "(element) => scrollTo({ top: element.offsetTop - 8, behavior: 'instant' })"
        page.locator(selector).first.evaluate(top)
        page.wait_for_timeout(300)  # small charts are drawn when they are seen
    return page


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        report, compared = folder / "report.html", folder / "compared.html"
        rewriter(folder, "report", record(folder, OVERFLOW), "-o", report.name)
        dumps = (record(folder, "2.0"), record(folder, "1.0"))
        rewriter(folder, "compare", *dumps, "--html", compared.name)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
            page = browser.new_page(bypass_csp=True)

            def take(name: str) -> None:
                page.screenshot(path=HERE.parent / f"report{name}.png")

            open_at(page, report, 1200, 900)
            take("")
            open_at(page, report, 1100, 640, "figure:has(> #chart)")
            take("-charts")
            open_at(page, report, 420, 800, "#flow")
            take("-narrow")
            open_at(page, compared, 1100, 640, "#flow-title")
            take("-compare")
            open_at(page, report, 1400, 900).add_style_tag(content=".chosen { max-height: none }")
            page.locator("#chosen .bars").screenshot(path=HERE.parent / "report-heat.png")
            browser.close()


if __name__ == "__main__":
    main()
