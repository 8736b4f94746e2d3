"""The page of a report in a real browser: it works, by mouse and keyboard, and fetches nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from report_dumps import (
    beginnings,
    compared,
    layered,
    many,
    names_of_layers,
    row,
    step,
    write_dump,
    write_run,
)
from rewriter.comparison.dumps.compare import compare
from rewriter.dump.reading import open_dump
from rewriter.report import model
from rewriter.report.compared import report as compared_report
from rewriter.report.page import page as page_text
from sampling import sampled
from test_report import hostile_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium or google-chrome"),
]
# A start without any request of the browser's own, also as root and without a GPU.
ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LAUNCHES = 10_000
OPENED = "html[data-ready]"

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, *sandbox])
        yield started
        started.close()


@pytest.fixture
def complaints() -> list[str]:
    """What pages log, raise, or ask the network for."""
    return []


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """One for all tests: a tab takes more than a second, another file in it nearly nothing."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def open_page(browser: Browser, tab: Page, tmp_path: Path, complaints: list[str]) -> Iterator[Open]:
    """Opens a page from a file; a complaint that the test does not take fails it."""
    file = tmp_path / "report.html"
    listeners: dict[str, Callable[[Any], object]] = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "dialog": lambda dialog: complaints.append(f"dialog: {dialog.message}"),
        "request": lambda request: request.url == file.as_uri() or complaints.append(request.url),
    }
    without_javascript: list[BrowserContext] = []

    def listening(page: Page) -> Page:
        for event, listener in listeners.items():
            page.on(event, listener)  # type: ignore[call-overload]
        return page

    def opened(
        text: str,
        *,
        color_scheme: Any = "light",
        width: int = 1280,
        java_script_enabled: bool = True,
    ) -> Page:
        file.write_text(text, encoding="utf-8")
        page = tab
        if not java_script_enabled:
            without_javascript.append(browser.new_context(java_script_enabled=False))
            page = listening(without_javascript[-1].new_page())
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(media="null", color_scheme=color_scheme)
        page.goto(file.as_uri())
        if java_script_enabled:
            page.wait_for_selector(OPENED)
        return page

    listening(tab)
    yield opened
    for context in without_javascript:
        context.close()
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    tab.goto("about:blank")
    tab.mouse.move(0, 0)
    assert complaints == []


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("long")
    dump = write_dump(folder / "long.dump", many(LAUNCHES, 7_000))
    kernels = {"triton_poi_fused_add_16": "x = 1"}
    return page_text(model.report(open_dump(dump), sources=lambda run: kernels))


@pytest.fixture(scope="module")
def runs_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    calls = [many(5, 5), many(5, 5), [*many(5, 3), *step(7, iteration=1)]]
    return page_text(model.report(open_dump(write_dump(folder / "runs.dump", *calls))))


def rows(page: Page) -> list[str]:
    """The first cells of the table: which launches are shown, in which order."""
    return page.locator(".launches > tbody > tr.row > th").all_inner_texts()


def charted(page: Page) -> Page:
    """With the small charts above the table: they are drawn when they come into view, and one that
    is drawn in the middle of a click moves its target away."""
    page.locator("#multiples").scroll_into_view_if_needed()
    page.wait_for_selector("#multiples figure")
    return page


def test_the_table_sorts_filters_and_turns_pages(open_page: Open, long_page: str) -> None:
    page = charted(open_page(long_page))
    assert rows(page) == [f"#{index}" for index in range(100)]
    assert "10,000 rows, shown: 1 to 100" in page.inner_text("#status")
    first = ".launches > tbody > tr.row:first-child > th :text-is('{}')"
    page.click("#next")
    page.wait_for_selector(first.format("#100"))
    page.click("th[data-key=max] button")  # numbers: the largest first
    page.wait_for_selector(first.format("#9999"))
    assert page.get_attribute("th[data-key=max]", "aria-sort") == "descending"
    page.click("th[data-key=max] button")
    page.wait_for_selector(first.format("#0"))
    assert rows(page)[:2] == ["#0", "#1"]
    assert page.get_attribute("th[data-key=max]", "aria-sort") == "ascending"
    page.fill("#filter", "ADD_16 node_7000")
    assert rows(page) == ["#7000"]
    assert page.inner_text("#status") == "1 of 10,000 rows match, shown: 1 to 1"
    page.fill("#filter", "nothing of this name")
    assert rows(page) == []
    assert page.inner_text("#status") == "0 of 10,000 rows match"
    page.fill("#filter", "")
    page.check("#only")
    assert page.inner_text("#status").startswith("3,000 of 10,000 rows match")


def test_a_finding_leads_to_its_launch(open_page: Open, long_page: str) -> None:
    page = open_page(long_page)
    page.click(".findings .show")
    assert page.locator(":focus").inner_text() == "#7000"
    details = page.locator("tr.details")
    assert details.count() == 1
    values = details.locator("tbody tr").all_inner_texts()
    assert len(values) == 2
    assert values[0].startswith("before\tin\tbuf6999\tf32[8, 32]\tcpu")
    assert "node_7000" in details.inner_text()
    details.locator("summary").click()
    assert details.locator("pre").inner_text() == "x = 1"


@pytest.mark.parametrize("width", [1280, 420])
def test_a_link_leads_to_what_is_in_view_and_back(
    open_page: Open, long_page: str, width: int
) -> None:
    page = open_page(long_page, width=width)
    in_view = """async () => {
        await new Promise((ready) => setTimeout(ready, 500));  // charts that are drawn late
        const { top, bottom } = document.activeElement.getBoundingClientRect();
        return top >= 0 && bottom <= innerHeight;
    }"""
    focused = page.locator(":focus")
    for way in ("Tab Enter", "Escape"):
        page.locator(".findings .show").first.focus()
        page.keyboard.press("Enter")
        assert focused.inner_text() == "#7000"
        assert page.evaluate(in_view)
        for key in way.split():
            page.keyboard.press(key)
        assert focused.inner_text().startswith("Show")
        assert page.evaluate(in_view)
    # In the flow, from a launch to what wrote its input.
    page.locator("#chosen .neighbours .link").first.focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#chosen h3").startswith("#6999 ")
    assert page.evaluate(in_view)
    page.keyboard.press("Tab")
    assert focused.inner_text() == "Back (Esc)"
    page.keyboard.press("Enter")
    assert page.inner_text("#chosen h3").startswith("#7000 ")


def test_the_keyboard_is_enough(open_page: Open, long_page: str) -> None:
    page = open_page(long_page)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the launches"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "launches"
    page.locator("tr.row button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator(":focus").inner_text() == "#2"
    page.keyboard.press("Enter")
    assert page.locator(":focus").get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")  # over the details
    assert page.locator(":focus").inner_text() == "#3"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.locator("tr.details").count() == 0


@pytest.fixture(scope="module")
def layers_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three layers of four launches; the second launch of the second one makes NaN."""
    folder = tmp_path_factory.mktemp("layers") / "layers.dump"
    rows_ = many(12, 5)
    run = write_run(folder / "rank0/run0", rows_, layered(rows_))
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "sha256": "0" * 64}))
    (write_dump(folder) / "names.json").write_text(json.dumps(names_of_layers()))
    return page_text(model.report(open_dump(folder)))


def nodes(page: Page) -> list[str]:
    return page.locator("#flow .node b").all_inner_texts()


def test_the_flow_is_folded_by_layers_and_open_at_the_first_nan(
    open_page: Open, layers_page: str
) -> None:
    page = open_page(layers_page)
    inner = [f"#{at} add_{at}" for at in range(4, 8)]
    assert nodes(page) == ["blocks.0", "blocks.1", *inner, "blocks.2"]
    begins = page.locator("#flow .node.begins:not(.head)")
    assert begins.inner_text().split("\n") == ["#5 add_5", "✕ first NaN: 3 NaN"]
    assert begins.get_attribute("aria-pressed") == "true"
    assert page.locator("#flow .edge.bad:not(.tip)").count() == 3  # to 6, 7 and the third layer
    assert page.locator("#flow .edge:not(.tip)").count() == 5
    shown = page.locator("#chosen").inner_text()
    # Each with the range of that value, and not of all that the other launch wrote.
    assert "buf4 from #4 triton_poi_fused_add_4 -5.294 to 5.294\n" in shown
    assert "buf5 by #6 triton_poi_fused_add_6 -7.389 to 7.389, 3 NaN\n" in shown


def test_the_flow_is_walked_by_keys(open_page: Open, layers_page: str) -> None:
    page = open_page(layers_page)
    page.locator("#flow .node[tabindex='0']").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.locator(":focus").inner_text() == "blocks.1"
    page.keyboard.press("Enter")
    assert nodes(page) == [f"blocks.{at}" for at in range(3)]
    assert page.locator(":focus").get_attribute("aria-expanded") == "false"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#chosen h3").inner_text() == "#0 triton_poi_fused_add_0"
    page.click("#chosen .neighbours .link")  # what reads it
    assert page.locator("#chosen h3").inner_text() == "#1 triton_poi_fused_add_1"
    page.click("#chosen >> text=Show in the table")
    assert page.locator(":focus").inner_text() == "#1"


def test_memory_that_is_taken_over_has_one_producer(open_page: Open, tmp_path: Path) -> None:
    """`buf2 = buf0; del buf0  # reuse` is written as a whole, and `buf4 = buf2` updated."""
    made = [row(at, "after", f"buf{at}", file="x.pt", size=at + 1.0) for at in range(3)]
    before = row(3, "before", "buf4", role="inout", file="x.pt", size=3.0)
    rows_ = [*made, before, {**before, "phase": "after", "nan": 1}]
    table = [
        {"launch": at, "kernel": f"kernel_{at}", "scope": "call", "buffers": buffers}
        for at, buffers in enumerate(({}, {}, {"buf2": "buf0"}, {"buf4": "buf0"}))
    ]
    write_run(tmp_path / "x.dump/rank0/run0", rows_, table)
    page = open_page(page_text(model.report(open_dump(write_dump(tmp_path / "x.dump")))))
    (shown,) = page.locator("#chosen .neighbours").all_inner_texts()
    assert shown == "buf4 (written as buf2) from #2 kernel_2 -3 to 3"
    assert page.locator("#flow .edge:not(.tip)").count() == 1
    assert page.inner_text("td.from >> nth=0") == "written by #2 kernel_2 as buf2"
    page.click("#chosen .neighbours .link")
    (shown,) = page.locator("#chosen .neighbours").all_inner_texts()
    assert shown == "buf2 (read as buf4) by #3 kernel_3 -3 to 3"


@pytest.mark.parametrize("width", [1280, 768, 420])
def test_at_most_150_nodes_are_laid_out(open_page: Open, long_page: str, width: int) -> None:
    page = open_page(long_page, width=width)
    assert "#7000 add_16" in nodes(page)
    for name in ("#0 to #199", "#400 to #599", "#9800 to #9999", "#9800 to #9814"):
        page.locator(f"#flow .node[title^='{name}']").click()
        assert 50 < len(nodes(page)) <= 150
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_click_on_a_chart_opens_the_launch_there(open_page: Open, runs_page: str) -> None:
    page = open_page(runs_page)
    assert page.get_attribute("#chart", "aria-label") == (
        "Magnitude of what each launch wrote. "
        "6 launches: max |x| from 1 to 24.53; NaN at 2, Inf at 0."
    )
    box = page.locator("#chart .u-over").bounding_box()
    assert box is not None
    page.locator("#chart .u-over").click(position={"x": box["width"] * 1.5 / 6, "y": 50})
    assert page.locator(":focus").inner_text() == "#1"
    assert page.locator("tr.details").count() == 1
    page.focus("#chart")
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert page.locator(":focus").inner_text() == "#3"


def test_small_charts_show_launches_over_calls(open_page: Open, runs_page: str) -> None:
    page = open_page(runs_page)
    page.locator("#chart").scroll_into_view_if_needed()
    page.wait_for_selector("#multiples canvas")
    captions = page.locator("#multiples figcaption").all_inner_texts()
    assert captions[0] == "#3 triton_poi_fused_add_3"  # where NaN begin
    assert len(captions) == 6
    assert page.get_attribute("#multiples .chart >> nth=0", "aria-label") == (
        "#3 triton_poi_fused_add_3. 3 calls: max |x| from 11.02 to 11.02; NaN at 1, Inf at 0."
    )


@pytest.mark.parametrize(
    "sizes",
    [[0.0, 0.0], [5.0], [1e-300, 1e300], [5e-324, 1.7e308], [0.0, 1.0]],
    ids=["only zeros", "one value", "far apart", "all of float64", "zero and one"],
)
def test_every_size_is_drawn_inside_the_chart(
    open_page: Open, tmp_path: Path, sizes: list[float]
) -> None:
    rows_ = [r for at, size in enumerate(sizes) for r in step(at, size=size, std=None)]
    page = open_page(page_text(model.report(open_dump(write_dump(tmp_path / "x.dump", rows_)))))
    inked = """(canvas, count) => {
        const { width, height } = canvas, context = canvas.getContext("2d");
        const { data } = context.getImageData(0, 0, width, height);
        return Array.from({ length: count }, (_, number) => {
            const x = Math.round(62 + (width - 74) * (number + 0.5) / count), found = [];
            for (let y = 0; y < height; y++) for (let at = x - 3; at < x + 3; at++) {
                const [red, , blue, alpha] = data.subarray(4 * (y * width + at));
                if (red < 60 && blue > 120 && alpha > 200) found.push(y);
            }
            return found.reduce((a, b) => a + b, 0) / found.length;
        });
    }"""
    heights = page.locator("#chart canvas").evaluate(inked, len(sizes))
    assert heights == sorted(heights, reverse=True)
    assert all(20 < height < 240 for height in heights)


def test_runs_are_chosen(open_page: Open, runs_page: str) -> None:
    page = open_page(runs_page)
    # The first with a finding is open.
    assert page.input_value("#run") == "2"
    assert "#7.1" in rows(page)
    assert "Inf at 0" in (page.get_attribute("#chart", "aria-label") or "")
    page.select_option("#run", "0")
    assert "#7.1" not in rows(page)
    page.click(".choose >> nth=2")
    assert page.input_value("#run") == "2"
    assert page.evaluate("document.activeElement.id") == "launches"


def test_a_hostile_dump_runs_nothing(open_page: Open, tmp_path: Path) -> None:
    page = open_page(page_text(hostile_report(tmp_path)))
    page.click(".findings .show")
    page.locator("tr.details summary").click()
    assert "<script>alert(1)" in page.locator("tr.details pre").inner_text()
    assert page.locator("img").count() == 0


def test_a_sentence_keeps_its_order_around_words_from_right_to_left(
    open_page: Open, tmp_path: Path
) -> None:
    kernel = "\u05d0\u05d1\u05d2"
    rows_ = [*step(0, kernel=f"\u202e{kernel}", nan=1), *step(1, kernel=kernel)]
    page = open_page(page_text(model.report(open_dump(write_dump(tmp_path / "x.dump", rows_)))))
    page.click(".findings .show")
    lefts = """(element) => {
        const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
        const found = [];
        while (walker.nextNode()) {
            for (const word of walker.currentNode.data.matchAll(/[^\\s\u0590-\u05ff]+/g)) {
                const range = document.createRange();
                range.setStart(walker.currentNode, word.index);
                range.setEnd(walker.currentNode, word.index + word[0].length);
                found.push(range.getBoundingClientRect().left);
            }
        }
        return found;
    }"""
    for place in (".findings .text >> nth=0", "tr.details dd >> nth=0"):
        found = page.locator(place).evaluate(lefts)
        assert len(found) >= 2
        assert found == sorted(found), place


def test_the_policy_of_the_page_stops_what_would_slip_through(
    open_page: Open, runs_page: str, complaints: list[str]
) -> None:
    marked = "<b id=slipped onclick='document.title = 1'>x</b><img src='https://a.invalid/x'>"
    page = open_page(runs_page.replace("<footer>", f"<footer>{marked}"))
    page.click("#slipped")
    assert page.title().startswith("runs.dump")
    stopped = [said for said in complaints if "violates the following Content Security" in said]
    assert len(stopped) == 2, complaints
    complaints.clear()


def test_without_javascript_the_findings_and_first_rows_are_there(
    open_page: Open, long_page: str
) -> None:
    page = open_page(long_page, java_script_enabled=False)
    assert "NaN first appears at #7000" in page.inner_text(".verdict")
    assert len(page.locator(".launches tbody th").all_inner_texts()) == 50
    assert not page.locator("#flow").is_visible()
    assert not page.locator("#chart").is_visible()
    assert not page.locator("#filter").is_visible()
    assert not page.locator(".show").first.is_visible()


def test_a_comparison_shows_what_differs(open_page: Open) -> None:
    page = open_page(page_text(compared_report(compared(40, 14))))
    assert page.get_attribute("#chart", "aria-label") == (
        "Error of what each launch wrote. "
        "41 launches: max |a - b| from 0 to 0.026; NaN, Inf at 1, other differences at 0."
    )
    page.check("#only")
    assert rows(page) == [f"#{index}" for index in range(14, 41)]
    page.click(".findings .show >> nth=0")
    assert page.locator(":focus").inner_text() == "#14"
    errors = page.locator("tr.details table").first.locator("tbody tr").all_inner_texts()
    assert errors[0].startswith("buf13\tbefore\tequal\ttensors\t1e-07 at [1, 7]: 1, 1")
    assert errors[1].startswith("buf14\tafter\tnumeric\ttensors\t0.001 at [1, 7]: 1.001, 1")
    page.click("th[data-key=error] button")
    assert rows(page)[:2] == ["#39", "#38"]
    assert rows(page)[-1] == "#40"  # without an error


def test_two_runs_stand_beside_each_other(open_page: Open, tmp_path: Path) -> None:
    dumps = [tmp_path / "a b.dump", tmp_path / "b.dump"]
    rows_ = [r for at in range(6) for r in step(at, file="x.pt" if at == 2 else "")]
    write_dump(dumps[1], rows_)
    for one in rows_:
        if one["launch"] >= 2 and one["arg"] != "buf1":
            one["max"] += 1.5  # buf2 is wrong, and what comes of it
    write_dump(dumps[0], rows_[:-3])  # the last launch is in B alone
    page = open_page(page_text(compared_report(compare(*dumps))), width=420)
    texts = [text.split("\n") for text in page.locator("#flow .node").all_inner_texts()]
    both = ["#1 kernel_1", "#1 kernel_1", "max |x| 1", "max |x| 1", "error 0, allowed 1.13e-05"]
    assert texts[1] == both
    assert texts[2][2:] == [
        "max |x| 2.5",
        "max |x| 1",
        "✕ differs here: error 1.5, allowed 1.13e-05",
    ]
    assert texts[3][-1] == "↓ error 1.5, allowed 1.13e-05"
    assert texts[5][:2] == ["none here", "#5 kernel_5"]
    assert page.locator("#flow .edge.bad:not(.tip)").count() == 2
    assert page.locator("#chosen .command code").inner_text() == (
        f"rewriter repro '{dumps[0]}' --launch 2"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


@pytest.mark.parametrize("is_allowed", [True, False])
def test_the_next_command_is_copied(open_page: Open, tmp_path: Path, is_allowed: bool) -> None:
    dump = write_dump(tmp_path / "x.dump", [*step(0), *step(1, nan=3, file="x.pt")])
    page = open_page(page_text(model.report(open_dump(dump))))
    page.evaluate(
        """(isAllowed) => { navigator.clipboard.writeText = async (text) => {
            if (!isAllowed) throw new Error("not here");
            window.copied = text;
        }; }""",
        is_allowed,
    )
    page.click("#chosen .command button")
    asked = "window.copied" if is_allowed else "String(getSelection())"
    assert page.evaluate(asked) == f"rewriter repro {dump} --launch 1"
    said = page.locator("#chosen .command button").inner_text()
    assert said == ("Copied" if is_allowed else "Copy")


def test_culprits_of_every_kind_are_in_the_table(open_page: Open) -> None:
    page = open_page(page_text(compared_report(beginnings())))
    page.check("#only")
    assert rows(page) == ["inputs", "#2", "#4", "#5", "#6", "#7", "#8", "outputs"]
    states = page.locator("tr.row td.state").all_inner_texts()
    assert states[:4] == ["numeric, culprit", "equal, culprit", "numeric, culprit",
                          "only in A, culprit"]  # fmt: skip
    for at in (0, -1):
        page.locator("tr.row button").nth(at).click()
    captions = page.locator("tr.details caption").all_inner_texts()
    assert captions[1::2] == ["What the call was given", "What the call returned"]


@pytest.mark.parametrize(
    ("kind", "surroundings"),
    sampled(["runs", "layers", "a comparison"], ["light-1280", "light-768", "dark-420"]),
)
def test_axe_finds_nothing(
    open_page: Open, runs_page: str, layers_page: str, kind: str, surroundings: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    scheme, width = surroundings.split("-")
    known = {"runs": runs_page, "layers": layers_page}
    text = known.get(kind) or page_text(compared_report(compared(9, 4)))
    page = open_page(text, color_scheme=scheme, width=int(width))
    page.click(".findings .show >> nth=0")
    page.locator("#multiples").scroll_into_view_if_needed()
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize(("launches", "width"), sampled([10, 1_000, LAUNCHES], [1280, 768, 420]))
def test_the_first_wrong_launch_is_in_sight_and_nothing_sideways(
    open_page: Open, tmp_path: Path, long_page: str, launches: int, width: int
) -> None:
    text, first = long_page, launches * 7 // 10
    if launches != LAUNCHES:
        dump = write_dump(tmp_path / "x.dump", many(launches, first))
        text = page_text(model.report(open_dump(dump)))
    page = open_page(text, width=width)
    seen = """(node) => {
        const box = node.getBoundingClientRect();
        const around = node.closest(".flow").getBoundingClientRect();
        return around.left <= box.left && box.right <= around.right
            && around.top <= box.top && box.bottom <= around.bottom;
    }"""
    assert page.locator("#flow .node.begins[aria-pressed=true]").evaluate(seen)
    shown = page.locator("#chosen").inner_text()
    assert shown.startswith(f"#{first} triton_poi_fused_add_{first % 97}")
    assert f"buf{first - 1} from #{first - 1}" in shown
    page.click(".findings .show")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", ["one run", "two wrappers", "a comparison"])
def test_long_names_do_not_widen_the_page(open_page: Open, tmp_path: Path, kind: str) -> None:
    """Wrappers in Inductor's cache are called by hashes of 52 letters."""
    name = f"c{'q5h7x' * 10}e.py"
    dumps = [tmp_path / "a.dump", tmp_path / "b.dump"]
    for size, dump in enumerate(dumps, 1):
        calls = [many(5, 3)] * (1 if kind == "one run" else 4)
        write_dump(dump, *calls, artifact=name)
        for number, file in enumerate(sorted(dump.glob("rank0/run*/run.json"))):
            called = name if number % 2 else f"x{name}"
            file.write_text(json.dumps({**json.loads(file.read_text()), "artifact": called}))
        events = dump / "rank0/run0/events.jsonl"
        events.write_text(events.read_text().replace('"mean": 0.0625', f'"mean": {size}'))
    report = model.report(open_dump(dumps[0]))
    text = (
        page_text(compared_report(compare(*dumps))) if kind == "a comparison" else page_text(report)
    )
    page = open_page(text, width=420)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    page.locator("tr.row button").nth(1).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


@pytest.mark.parametrize(
    ("count", "size"), [(6, 1_000_000), pytest.param(20, 2_000_000, marks=pytest.mark.exhaustive)]
)
def test_many_runs_make_a_small_page(
    open_page: Open, tmp_path: Path, count: int, size: int
) -> None:
    runs = [many(count, count - 2 if number > 550 else 99) for number in range(602)]
    text = page_text(model.report(open_dump(write_dump(tmp_path / "x.dump", *runs))))
    assert len(text) < size
    page = open_page(text, width=420)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert page.locator(".runs tbody tr").count() == 602
    bar = "(box) => getComputedStyle(box).overflowY === 'scroll' && box.scrollHeight > 0"
    assert page.locator(".scroll.runs").evaluate(bar)
    assert page.locator("figcaption >> nth=0").inner_text() == (
        "Magnitude over the calls of model.py"
    )
    page.select_option("#run", "7")
    assert "rank0/run7" in page.locator("#run option:checked").inner_text()
    page.locator("#calls-0 .u-over").click(position={"x": 0, "y": 100})
    assert page.locator("#run").input_value() == "0"


def test_print_leaves_the_controls_out(open_page: Open, long_page: str) -> None:
    page = open_page(long_page, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    for selector in ("#filter", "#next", ".show"):
        assert not page.locator(selector).first.is_visible()
    assert page.locator("#flow .node").first.is_visible()
    assert page.locator("#chart canvas").is_visible()
    assert page.locator("#chosen .neighbours .link").first.is_visible()  # who wrote its input
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    assert page.pdf().startswith(b"%PDF")


def test_histograms_and_numbers_beyond_javascript(open_page: Open, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    largest = 2**63 - 1
    rows_ = [
        row(0, "after", "ids", dtype="int64", min=-largest, max=largest),
        row(0, "after", "x", file="x.pt", shape=[11], min=0.0, max=9.0, nan=1),
    ]
    dump = write_dump(tmp_path / "x.dump", rows_)
    values = torch.tensor([*range(10), float("nan")])
    torch.save(values, dump / "rank0/run0/x.pt")
    page = open_page(page_text(model.report(open_dump(dump))))
    heat = page.locator("#chosen canvas.heat")
    assert heat.get_attribute("aria-label") == (
        "x, after: means of 1 by 11 tiles from 0 to 9, 1 of them with NaN or Inf; "
        "the first wrong element is [10], in the ring"
    )
    at = "(box) => [...box.getContext('2d').getImageData(box.width - 16, 99, 1, 1).data]"
    assert heat.evaluate(at) == [168, 18, 62, 217]  # --bad, through which the paper shines
    assert str(largest) in page.locator("tr.row").first.inner_text()
    page.locator("tr.row button").first.click()
    picture = page.locator("tr.details svg.histogram")
    assert picture.get_attribute("aria-label") == (
        "x, after: 40 bins from 0 to 9, at most 1 in one"
    )
    assert picture.locator("rect").count() == 10
    assert "1 not finite" in page.locator("tr.details figcaption").last.inner_text()


@pytest.mark.benchmark
def test_ten_thousand_launches_open_within_a_second(open_page: Open, long_page: str) -> None:
    """From the start of loading to a table that answers; the best of three."""
    assert len(long_page) < 4_000_000
    ready = """() => performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd"""
    times = [open_page(long_page).evaluate(ready) for _ in range(3)]
    assert min(times) < 1000, f"opened in {times} ms"
