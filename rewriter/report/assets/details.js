// Tables and pictures of the values of one launch.

const details = (() => {
  const EDGE = 8; // around a heat map, for a ring at its corner

  function scrolled(content, label) {
    const box = make("div", undefined, "scroll");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", label);
    box.append(content);
    return box;
  }

  function table(caption, columns, rows) {
    const result = make("table");
    const top = make("tr");
    for (const [label, isNumber] of columns) {
      const th = make("th", label, isNumber ? "number" : "");
      th.scope = "col";
      top.append(th);
    }
    const head = make("thead");
    head.append(top);
    const content = make("tbody");
    for (const cells of rows) {
      const tr = make("tr");
      cells.forEach((cell, at) => {
        const td = make("td", undefined, columns[at][1] ? "number" : "");
        const isCode = ["Name", "Type", "File"].includes(columns[at][0]);
        td.append(isolated(isCode && cell ? "code" : "span", cell));
        if (["NaN", "Inf"].includes(columns[at][0]) && cell && cell !== "0") td.classList.add("bad");
        tr.append(td);
      });
      content.append(tr);
    }
    result.append(make("caption", caption), head, content);
    return result;
  }

  function values(launch) {
    const some = (key) => launch.readings.some((value) => value[key]);
    const columns = [
      ["Dump", false, (v) => v.dump, some("dump")],
      ["Phase", false, (v) => v.phase],
      ["Role", false, (v) => v.role],
      ["Name", false, (v) => v.expr || v.name],
      ["Type", false, (v) => (v.value ? `${v.type} = ${v.value}` : v.type) + (v.magnitude ? " |x|" : "")],
      ["Device", false, (v) => v.device],
      ...["Min", "Max", "Mean", "Std"].map((name) => [name, true, (v) => (v.numel === undefined ? "" : number(v[name.toLowerCase()]))]),
      ...["NaN", "Inf"].map((name) => [name, true, (v) => (v.numel === undefined ? "" : v[name.toLowerCase()].toLocaleString("en"))]),
      ["File", false, (v) => v.file, some("file")],
      ["digest", false, (v) => v.digest.slice(0, 16), some("digest")],
    ].filter((column) => column[3] !== false);
    const rows = launch.readings.map((value) => columns.map((column) => column[2](value)));
    const ends = { inputs: "What the call was given", outputs: "What the call returned" };
    return table(ends[launch.label] || "What it read and wrote", columns, rows);
  }

  function errors(launch) {
    const extreme = (row) => {
      if (!row) return "-";
      const { error, a, b, index } = data.record("extreme", row);
      return `${number(error)} at [${index.join(", ")}]: ${number(a)}, ${number(b)}`;
    };
    const columns = [["Name"], ["Phase"], ["State"], ["Compared by"], ["Max |a - b|: a, b"], ["Max relative: a, b"], ["RMS", true], ["SNR (dB)", true], ["Cosine", true], ["ULP", true], ["Mismatched", true], ["atol needed", true], ["rtol needed", true], ["Note"]];
    const rows = launch.difference.tensors.map((tensor) => {
      const m = tensor.metrics;
      const start = [tensor.name, tensor.phase, tensor.state, tensor.basis];
      if (!m) {
        const equal = tensor.basis === "tensors" ? "0, bit for bit" : "-";
        const error = tensor.error === null ? "-" : number(tensor.error);
        return [...start, tensor.estimated ? `about ${error}` : tensor.error ? error : equal, ...Array(8).fill(""), tensor.note];
      }
      const alone = [["NaN in A alone", m.nan_a], ["NaN in B alone", m.nan_b], ["infinities that differ", m.inf]];
      const note = [tensor.note, ...alone.filter(([, count]) => count).map(([what, count]) => `${what}: ${count}`)];
      const figures = ["rms", "snr", "cosine", "ulp", "mismatched", "atol_needed", "rtol_needed"].map((key) => number(m[key]));
      return [...start, extreme(m.max_abs), extreme(m.max_rel), ...figures, note.filter(Boolean).join("; ")];
    });
    return table("How the values differ", columns, rows);
  }

  function histogram(value) {
    const { low, high, counts, left_out: leftOut } = value.bins;
    const most = Math.max(...counts);
    const figure = make("figure");
    const said = `${value.name}, ${value.phase}: ${counts.length} bins from ${number(low)} to ${number(high)}, at most ${most.toLocaleString("en")} in one`;
    const svg = draw("svg", { viewBox: "0 0 260 88", class: "histogram", role: "img", "aria-label": said });
    const width = 260 / counts.length;
    counts.forEach((count, at) => {
      if (!count) return;
      const height = Math.max(1, (66 * count) / most);
      svg.append(draw("rect", { x: at * width, y: 68 - height, width: Math.max(0.5, width - 0.8), height }));
    });
    svg.append(draw("line", { x1: 0, x2: 260, y1: 68.5, y2: 68.5 }));
    svg.append(draw("text", { x: 0, y: 82 }, number(low)), draw("text", { x: 260, y: 82, "text-anchor": "end" }, number(high)));
    const caption = make("figcaption");
    caption.append(make("code", value.name), ` ${value.phase}` + (leftOut ? `, ${leftOut.toLocaleString("en")} not finite` : ""));
    figure.append(caption, svg);
    return figure;
  }

  // Means of tiles: the stronger the colour, the larger; negative ones have the other colour.
  function heatMap(value) {
    const { rows, columns, means, wrong, first, tile } = value.tiles;
    const [wide, high] = [columns, rows].map((count) => Math.max(4, Math.floor(256 / count)));
    const canvas = make("canvas", undefined, "heat");
    const tall = Math.min(rows * high, 256) / rows;
    Object.assign(canvas, { width: columns * wide + 2 * EDGE, height: rows * tall + 2 * EDGE });
    const context = canvas.getContext("2d");
    context.translate(EDGE, EDGE);
    const known = means.filter((mean) => typeof mean === "number");
    const most = Math.max(...known.map(Math.abs), Number.MIN_VALUE);
    const fill = (at, colour, alpha) => {
      context.fillStyle = colourOf(colour);
      context.globalAlpha = alpha;
      context.fillRect((at % columns) * wide, Math.floor(at / columns) * tall, wide, tall);
    };
    means.forEach((mean, at) => typeof mean === "number" && fill(at, mean < 0 ? "second" : "main", Math.abs(mean) / most));
    for (const at of wrong) fill(at, "bad", 0.85);
    context.globalAlpha = 1;
    if (first) {
      context.strokeStyle = colourOf("ink");
      context.lineWidth = 2;
      context.beginPath();
      context.arc((tile % columns + 0.5) * wide, (Math.floor(tile / columns) + 0.5) * tall, Math.max(wide, tall) / 2 + 3, 0, 7);
      context.stroke();
    }
    const begins = first ? `; the first ${COMPARES ? "such" : "wrong"} element is [${first.join(", ")}], in the ring` : "";
    const what = COMPARES ? "means of |a - b| in" : "means of";
    const bad = COMPARES ? "elements that are not within tolerance" : "NaN or Inf";
    const range = known.length ? `from ${number(Math.min(...known))} to ${number(Math.max(...known))}` : "none of which is finite";
    const said = `${value.name}, ${value.phase}: ${what} ${rows} by ${columns} tiles ${range}, `
      + `${wrong.length.toLocaleString("en")} of them with ${bad}${begins}`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", said);
    const figure = make("figure");
    figure.append(canvas, isolated("figcaption", said));
    return figure;
  }

  return { scrolled, values, errors, histogram, heatMap };
})();

