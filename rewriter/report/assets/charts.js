// Charts by uPlot, on a log scale: lines of numbers, marks where these are NaN or infinite.

const charts = (() => {
  const DOTTED = 120; // points up to which each is drawn
  const APART = 28; // pixels between two labels of the scale, at least
  const made = new Map(); // by their boxes

  // The powers of ten around all values. A zero stands a decade below the smallest.
  function decades(series) {
    const values = series.flatMap((one) => one.values).filter((value) => typeof value === "number");
    const positive = values.filter((value) => value > 0);
    const powers = positive.map((value) => Math.max(-300, Math.log10(value)));
    const bounds = (of, first) => of.reduce((a, b) => [Math.min(a[0], b), Math.max(a[1], b)], [first, first]);
    const [low, high] = bounds(powers, powers[0] ?? 0);
    const hasZero = positive.length < values.length;
    return { low: Math.floor(low) - (hasZero ? 1 : 0), high: Math.max(Math.ceil(high), Math.floor(low) + 1), hasZero };
  }

  function powersOf({ low, high, hasZero }, height) {
    const step = Math.max(1, Math.ceil(((high - low) * APART) / (height - 64)));
    const powers = [];
    for (let power = high; power >= low; power -= step) powers.push(power);
    if (hasZero && powers.at(-1) !== low) powers.push(low);
    return powers.reverse();
  }

  function marked(u, { crosses, triangles, marks }) {
    const { ctx, bbox } = u;
    const scale = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colourOf("bad");
    ctx.lineWidth = 1.8 * scale;
    const each = (positions, y, path) => {
      let last = -Infinity;
      for (const position of positions) {
        const x = u.valToPos(position, "x", true);
        if (x < last + 7 * scale) continue;
        last = x;
        ctx.beginPath();
        path(x, bbox.top - y * scale, 3.5 * scale);
      }
    };
    each(crosses, 8, (x, y, r) => {
      ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y + r);
      ctx.moveTo(x - r, y + r); ctx.lineTo(x + r, y - r);
      ctx.stroke();
    });
    each(triangles, 20, (x, y, r) => {
      ctx.moveTo(x - r, y + r); ctx.lineTo(x + r, y + r); ctx.lineTo(x, y - r);
      ctx.fill();
    });
    ctx.setLineDash([7 * scale, 3 * scale]);
    for (const mark of marks) {
      const x = u.valToPos(mark, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  // `of` has labels of its points, series, positions of `crosses` (NaN), `triangles` (Inf) and `marks`,
  // and what a click on a point does.
  function put(box, of, { height = 260, legend = true, scale = decades(of.series) } = {}) {
    made.get(box)?.destroy();
    const [floor, top] = [10 ** scale.low, Math.min(10 ** scale.high, Number.MAX_VALUE)];
    const powers = powersOf(scale, height);
    const held = (value) => (typeof value === "number" ? Math.min(Math.max(value, floor), top) : null);
    const count = of.labels.length;
    const style = { main: [], second: [5, 3], limit: [2, 3] };
    const axis = { stroke: () => colourOf("dim"), grid: { stroke: () => colourOf("line"), width: 1 }, ticks: { stroke: () => colourOf("line"), width: 1 } };
    const options = {
      width: Math.max(box.clientWidth, 120), height,
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
      legend: { show: legend },
      padding: [30, 12, 0, 0],
      scales: { x: { time: false, range: () => [-0.5, count - 0.5] }, y: { distr: 3, range: () => [floor, top] } },
      axes: [
        { ...axis, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000], values: (u, at) => at.map((x) => (of.ticks ?? of.labels)[x]?.split(" ")[0] ?? "") },
        { ...axis, size: 62, splits: () => powers.map((power) => 10 ** power), filter: (u, splits) => splits, values: () => powers.map((power) => (scale.hasZero && power === scale.low ? "0" : number(10 ** power))) },
      ],
      series: [
        { label: of.of, value: (u, x) => of.labels[x] ?? "" },
        ...of.series.map((one) => ({
          label: one.name, stroke: () => colourOf(one.style), width: 1.6, dash: style[one.style],
          points: { show: count <= DOTTED && one.style !== "limit", size: 5 },
          value: (u, y, at, x) => (x === null ? "" : number(one.values[x] ?? null)),
        })),
      ],
      hooks: { draw: [(u) => marked(u, of)] },
    };
    const data = [of.labels.map((_, at) => at), ...of.series.map((one) => one.values.map(held))];
    const chart = new uPlot(options, data, box);
    made.set(box, chart);
    box.setAttribute("aria-label", said(of));
    let at = null; // of the keys, which a mouse that rests on the chart does not move
    chart.over.addEventListener("click", () => (at = chart.cursor.idx) !== null && of.onChoose(at));
    box.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Enter" && at !== null) of.onChoose(at);
      const next = (at ?? (by > 0 ? -1 : count)) + by;
      if (!by || next < 0 || next >= count) return;
      event.preventDefault();
      at = next;
      chart.setCursor({ left: chart.valToPos(at, "x"), top: 0 });
    };
  }

  // The same in words.
  function said({ title, labels, of, series, crosses, triangles, found = ["NaN", "Inf"] }) {
    const [{ name, values }] = series;
    const known = values.filter((value) => typeof value === "number");
    const ends = known.reduce((a, b) => [Math.min(a[0], b), Math.max(a[1], b)], [known[0], known[0]]);
    const size = known.length ? `${name} from ${number(ends[0])} to ${number(ends[1])}` : "no values";
    return `${title}. ${labels.length.toLocaleString("en")} ${of}: ${size}; ${found[0]} at ${crosses.length.toLocaleString("en")}, ${found[1]} at ${triangles.length.toLocaleString("en")}.`;
  }

  // Charts of several, with one scale.
  function multiples(box, all, options) {
    for (const figure of box.children) made.get(figure.lastChild)?.destroy();
    const scale = decades(all.flatMap((of) => of.series));
    box.replaceChildren(...all.map((of) => {
      const figure = make("figure");
      const frame = make("div", undefined, "chart");
      frame.tabIndex = 0;
      frame.setAttribute("role", "group");
      figure.append(isolated("figcaption", of.title), frame);
      return figure;
    }));
    all.forEach((of, at) => put(box.children[at].lastChild, of, { ...options, scale }));
  }

  function redraw() {
    for (const chart of made.values()) chart.redraw(false, true);
  }

  for (const media of ["print", "(prefers-color-scheme: dark)"]) matchMedia(media).addEventListener("change", redraw);
  addEventListener("resize", () => {
    for (const [box, chart] of made) if (box.clientWidth) chart.setSize({ width: box.clientWidth, height: chart.height });
  });

  return { put, multiples };
})();

