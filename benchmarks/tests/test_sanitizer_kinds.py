"""The memory faults that `benchmarks.sanitizers` plants: what changes, and who is at fault then."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.faults.source import Source, Target, read
from benchmarks.sanitizers.__main__ import main
from benchmarks.sanitizers.extents import extent
from benchmarks.sanitizers.kinds import KINDS, PointerKind

ARTIFACTS = Path(__file__).parents[2] / "fixtures" / "artifacts"
FORMS = {
    "python": ("python/output_code.py",),
    "cpp_wrapper": ("cpp_wrapper/output_code.py",),
    "aoti": ("aoti/wrapper.cpp", "aoti/kernel.cpp"),
}
MODELS = ("transformer", "dtypes", "customop")


def _sources(form: str, device: str = "cpu-torch2.13") -> list[Source]:
    folder = ARTIFACTS / device
    return [
        read(model, form, *(folder / model / file for file in FORMS[form]))
        for model in MODELS
        if all((folder / model / file).is_file() for file in FORMS[form])
    ]


@pytest.mark.parametrize("form", FORMS)
def test_each_check_has_faults_in_each_form(form: str) -> None:
    counts: Counter[str] = Counter()
    for source in _sources(form):
        for check, kinds in KINDS.items():
            for kind in kinds:
                for launch in source.launches:
                    for change in kind.changes(Target(source, launch)):
                        counts[check] += 1
                        changed = source.edited(change.edits)
                        assert changed.texts != source.texts
                        assert change.culprits
                        if form == "python":
                            ast.parse(changed.text)
    assert all(counts[check] >= 4 for check in KINDS), counts


def test_one_element_behind_is_one_element_behind() -> None:
    (source,) = (one for one in _sources("python") if one.name == "transformer")
    kind = KINDS["bounds, stores"][0]
    changes = [x for one in source.launches for x in kind.changes(Target(source, one))]
    assert changes
    for change in changes:
        (edit,) = change.edits
        old = source.texts[edit.file][edit.start : edit.end]
        assert edit.text == f"{old} + 1"
        assert set(old) & set("xyr")


def test_kernels_of_a_gpu_get_their_faults_in_what_launches_them() -> None:
    source = read("gpt", "aoti", ARTIFACTS / "cuda-torch2.11/gpt/aoti/wrapper.cpp")
    named = ("stores 16 bytes behind its buffer", "reads 16 bytes behind its buffer")
    written = "the first bytes of what it is given to read are written"
    changes = {
        kind.name: [x for one in source.launches for x in kind.changes(Target(source, one))]
        for kinds in KINDS.values()
        for kind in kinds
    }
    for name in named:
        for change in changes[name]:
            assert change.edits[0].text.endswith(".data_ptr()) + 16")
    assert all(changes[name] for name in (*named, written))
    (edit,) = changes[written][0].edits
    before = source.text[: edit.start].splitlines()[-1]
    assert before.lstrip().startswith("launchKernel(")
    assert not any(changes[name] for name in ("stores one element behind its buffer",))


def test_an_index_is_moved_where_its_loop_reaches_that_end() -> None:
    number = "static_cast<int64_t>({}L)".format
    loop = f"for(int64_t {{0}}={number(0)}; {{0}}<{{1}}; {{0}}+={{2}})\n".format
    text = loop("x0", number(40), number(1)) + loop("x1", number(24), number(16))
    text += f"""
if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < {number(16)}))
    a(in_ptr2 + static_cast<int64_t>(x1 + 24L*x0), static_cast<int64_t>(16));
if(C10_UNLIKELY(x1 >= {number(16)} && x1 < {number(24)}))
    a(in_ptr2 + static_cast<int64_t>(x1 + 24L*x0), {number(8)});
    b = in_ptr2[static_cast<int64_t>(x0)];
"""
    text += loop("x0", number("ks"), number(1)) + "b = in_ptr2[static_cast<int64_t>(x0)];"
    behind, before, further = (x for x in KINDS["bounds, reads"] if isinstance(x, PointerKind))
    reads = list(behind.cpp[0].finditer(text))
    found = [extent(text, one) for one in reads]
    assert found == [range(952), range(16, 960), range(40), None]
    # Where the loop has no numbers, it is not known.
    assert [behind._stays_inside(text, one) for one in reads] == [True, False, True, False]
    assert [before._stays_inside(text, one) for one in reads] == [False, True, False, False]
    assert [further._stays_inside(text, one) for one in reads] == [True, False, True, False]


@pytest.mark.exhaustive
def test_faults_of_a_cpp_wrapper_are_named(tmp_path: Path) -> None:
    """Planted, run and judged: a buffer that is too small and a launch that is missing, and the
    wrapper as it is."""
    command = ["--work", str(tmp_path), "--forms", "cpp_wrapper", "--models", "mlp"]
    result = tmp_path / "result.json"
    assert main([*command, "--count", "1", "--json", str(result)]) == 0
    rows = json.loads(result.read_text())["rows"]
    assert Counter(row["outcome"] for row in rows) == {"clean": 1, "first": 2}
