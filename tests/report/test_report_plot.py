"""The plot of a run: where its lines go, and what it says in words."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from rewriter.report.plot import WIDTH, Lane, Plot, PlotMark, Series, svg

Points = list[tuple[float, float]]


def plot_of(
    values: list[float | None], *, lanes: tuple[Lane, ...] = (), marks: tuple[PlotMark, ...] = ()
) -> ElementTree.Element:
    labels = tuple(f"#{index} kernel" for index in range(len(values)))
    drawn = Plot("A title", "In words.", (Series("x", "main", values),), lanes, marks, labels)
    return ElementTree.fromstring(svg(drawn, "p"))


def line(drawing: ElementTree.Element) -> list[Points]:
    """The pieces of the line, each a list of points; y falls as the value rises."""
    # The first of this class is the sample in the legend.
    path = drawing.findall("path[@class='line main']")[-1].get("d") or ""
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", piece)]
        for piece in path.split("M")[1:]
    ]


def test_the_line_breaks_where_there_is_no_value() -> None:
    pieces = line(plot_of([1.0, 2.0, None, 3.0]))
    assert [len(piece) for piece in pieces] == [2, 1]


@pytest.mark.parametrize(
    "values",
    [[0.0, 0.0], [5.0], [1e-300, 1e300], [5e-324, 1.7e308], [0.0, 1.0]],
    ids=["only zeros", "one value", "far apart", "all of float64", "zero and one"],
)
def test_every_value_is_inside_the_picture(values: list[float | None]) -> None:
    drawing = plot_of(values)
    height = float((drawing.get("viewBox") or "").split()[3])
    (piece,) = line(drawing)
    assert len(piece) == len(values)
    assert all(0 < x < WIDTH and 0 < y < height for x, y in piece)
    heights = [y for _, y in piece]
    assert heights == sorted(heights, reverse=True)


def test_equal_ratios_are_equal_distances() -> None:
    ((a, b, c),) = line(plot_of([1.0, 10.0, 100.0]))
    assert a[1] - b[1] == pytest.approx(b[1] - c[1])


def test_one_outlier_of_many_launches_is_in_the_picture() -> None:
    values: list[float | None] = [1.0] * 10_000
    values[7_123] = 1e6
    drawing = plot_of(values)
    assert (
        len(svg(Plot("", "", (Series("x", "main", values),), (), (), ("",) * 10_000), "p")) < 50_000
    )
    (area,) = drawing.findall("path[@class='area main']")
    tops = [
        (float(x), float(y)) for x, y in re.findall(r"M([-\d.]+) ([-\d.]+)", area.get("d") or "")
    ]
    highest = min(tops, key=lambda point: point[1])
    assert highest[0] / WIDTH == pytest.approx(0.7, abs=0.03)
    assert sum(y < highest[1] + 10 for _, y in tops) == 1


def test_marks_have_words_and_are_escaped() -> None:
    lane = Lane("NaN", "cross", [1, 2])
    drawing = plot_of([1.0, 2.0, 3.0], lanes=(lane,), marks=(PlotMark(1, "first NaN: <b>&"),))
    texts = ["".join(text.itertext()) for text in drawing.iter("text")]
    assert "first NaN: <b>&" in texts
    assert "NaN" in texts
    assert drawing.get("role") == "img"
    named = (drawing.get("aria-labelledby") or "").split()
    assert [drawing.findtext(f"*[@id='{name}']") for name in named] == ["A title", "In words."]
    (crosses,) = drawing.findall("path[@class='mark cross']")
    assert (crosses.get("d") or "").count("M") == 2
    titles = [title.text for title in drawing.findall("circle/title")]
    assert titles == ["#0 kernel: x 1", "#1 kernel: x 2", "#2 kernel: x 3"]
