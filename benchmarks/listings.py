"""Whether two versions of this project find and write the same, for every recorded artifact.

    python -m benchmarks.listings CHECKOUT [FOLDER ...]

`CHECKOUT` is another version. Each artifact below `fixtures/` and the folders is listed as JSON,
and instrumented in three ways, by both. Differences are printed; exit code 1 if there are any, or
if this version fails somewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SUFFIXES = (".py", ".cpp", ".pt2", ".log", ".html", ".bin", ".entry", "")
_WORK = """
import contextlib, hashlib, io, json, sys
from rewriter import cli
WAYS = ["--probe print,save --when both", "--probe bounds,poison,stale", "--probe inputs,print"]
def of(*words):
    out, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()  # bytes go to its buffer
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = cli.main(list(words))
    out.flush()
    return code, out.buffer.getvalue(), errors.getvalue()
found = {}
for path in sys.stdin.read().splitlines():
    commands = [["list", "--json", path]]
    commands += [["instrument", path, "-o", "-", *way.split()] for way in WAYS]
    found[path] = [(code, hashlib.sha256(text).hexdigest(), errors)
                   for code, text, errors in (of(*words) for words in commands)]
json.dump(found, sys.stdout)
"""


def found(checkout: Path, paths: list[str]) -> dict[str, list[tuple[int, str, str]]]:
    """What a version says about each file: exit codes, hashes of what is written, messages."""
    done = subprocess.run(
        [sys.executable, "-c", _WORK],
        input="\n".join(paths),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    answers: dict[str, list[tuple[int, str, str]]] = json.loads(done.stdout)
    return answers


def main() -> int:
    checkout, *folders = map(Path, sys.argv[1:])
    paths = [
        str(file)
        for folder in (ROOT / "fixtures", *(folder.resolve() for folder in folders))
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix in _SUFFIXES
    ]
    old, new = found(checkout.resolve(), paths), found(ROOT, paths)
    failing = {path for path in paths if any(code == 3 for code, _, _ in new[path])}
    differing = [path for path in paths if old[path] != new[path] or path in failing]
    for path in differing:
        print(f"{path}\n  before {str(old[path])[:400]}\n  now    {str(new[path])[:400]}")
    instrumented = sum(code == 0 for path in paths for code, _, _ in new[path][1:])
    print(f"{len(paths)} files, instrumented {instrumented} times, {len(differing)} differ or fail")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
