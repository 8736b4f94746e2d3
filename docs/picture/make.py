"""Makes `docs/report.png`: runs `model.py` beside this file, and takes a picture of its report.

    .venv/bin/python docs/picture/make.py

The picture has the top of the page and its plot; the chapters between them are hidden.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
HIDDEN = ".culprit-launch { display: none }"


def rewriter(folder: Path, *words: str) -> None:
    """Run a command that has a finding: exit code 1."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "rewriter", *words]
    done = subprocess.run(command, cwd=folder, env=environment)
    assert done.returncode == 1, f"{words}: exit code {done.returncode}"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copy(HERE / "model.py", folder)
        rewriter(folder, "run", "--probe", "save", "--", sys.executable, "model.py")
        rewriter(folder, "report", "cache.dump")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
            page = browser.new_page(viewport={"width": 1000, "height": 900}, bypass_csp=True)
            page.goto((folder / "cache.dump.html").as_uri())
            page.add_style_tag(content=HIDDEN)
            page.screenshot(path=HERE.parent / "report.png")
            browser.close()


if __name__ == "__main__":
    main()
