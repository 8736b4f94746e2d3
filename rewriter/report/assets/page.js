// The table of launches: sorts, filters, turns pages, opens details. Everything is in the page.
(() => {
  const ROWS = 100; // on one page of the table
  const FEW = 3; // calls or launches from which on they have a small chart
  const MULTIPLES = 12; // such charts
  const NEIGHBOURS = 12; // that are listed of a launch
  const COMPARES = byId("timeline").dataset.compares === "1";

  const state = { run: 0, launches: [], rows: [], shown: [], page: 0, key: "order", down: false };
  const loaded = new Map(); // the launches of runs
  let shared = null; // what all runs have in common

  const body = document.querySelector(".launches tbody");
  const heads = [...document.querySelectorAll(".launches thead th")];
  const numeric = new Set(heads.filter((th) => th.classList.contains("number")).map((th) => th.dataset.key));

  // Reading the data.

  function load(number) {
    state.run = number;
    state.launches = launchesOf(number);
    state.rows = state.launches.flatMap(rowsOf);
    state.rows.forEach((row, order) => (row.order = order));
  }

  function launchesOf(number) {
    shared ??= JSON.parse(byId("shared").textContent);
    if (loaded.has(number)) return loaded.get(number);
    const launches = JSON.parse(byId(`run-${number}`).textContent).map((row, position) => {
      const { fact, iteration, readings, given, difference } = record("launch", row);
      const launch = { position, iteration, ...record("fact", shared.facts[fact]) };
      const { index, kernel } = launch;
      launch.label = index === null ? kernel.split(" ")[0] : `#${index}` + (iteration ? `.${iteration}` : "");
      launch.readings = readings.map(reading);
      launch.given = given.map((one) => record("input", one));
      if (difference) launch.difference = differing(difference);
      if (launch.difference && index !== null) launch.sides = sidesOf(launch);
      launch.verdict = judged(launch, shared.marks[number][position]);
      return launch;
    });
    loaded.set(number, launches);
    return launches;
  }

  // An object of the data. It is a list of values: the page says which field stands where, as
  // FIELDS of rewriter/report/page_data.py has them, and which are numbers of strings.
  function record(kind, row) {
    const made = {};
    shared.fields[kind].forEach(([name, how], at) => {
      const value = row[at];
      if (how === "text") made[name] = shared.strings[value];
      else if (how === "texts") made[name] = value.map((index) => shared.strings[index]);
      else made[name] = value;
    });
    return made;
  }

  function reading(row) {
    const { label, statistics, value, file, digest, bins, tiles } = record("reading", row);
    const { numel, magnitude, ...named } = record("label", shared.labels[label]);
    const measured = statistics ? { numel, magnitude, ...record("statistics", statistics) } : {};
    if (statistics) {
      measured.nan ||= 0;
      measured.inf ||= 0;
    }
    return {
      ...measured, ...named,
      value: value || "", file: file || "", digest: digest || "", bins: bins ? record("bins", bins) : null, tiles: tiles ? record("tiles", tiles) : null,
    };
  }

  function differing(row) {
    const difference = record("difference", row);
    difference.tensors = difference.tensors.map((one) => {
      const tensor = record("tensor", one);
      tensor.metrics = tensor.metrics ? record("metrics", tensor.metrics) : null;
      return tensor;
    });
    return difference;
  }

  // One row for each tensor that a launch wrote; one for all inputs of the call.
  function rowsOf(launch) {
    const row = (cells) => ({ launch, kernel: launch.kernel, kind: launch.kind, nodes: launch.nodes, ...cells });
    if (launch.difference) {
      const { tensors, ...how } = launch.difference;
      const said = (how.only ? `only in ${how.only}` : how.state) + (how.blame ? `, ${how.blame}` : "");
      const written = tensors.filter((tensor) => tensor.written);
      if (launch.index === null) {
        const error = Math.max(...written.map((tensor) => tensor.error ?? 0), 0);
        return [row({ name: counted(written.length), state: said, error, differs: Boolean(how.blame) })];
      }
      const rows = written.map((tensor) => row({
        name: tensor.name, type: tensor.type, error: tensor.error, allowed: tensor.allowed,
        mismatched: tensor.metrics ? tensor.metrics.mismatched : tensor.basis === "tensors" ? 0 : null,
        state: tensor.state === how.state ? said : tensor.state,
        // An error may begin within the tolerance.
        differs: how.blame === "culprit" || (tensor.state !== "equal" && tensor.state !== "unknown"),
      }));
      return rows.length ? rows : [row({ state: said, differs: Boolean(how.only || how.blame) })];
    }
    if (launch.index === null) {
      const sum = (key) => launch.readings.reduce((total, value) => total + (value[key] || 0), 0);
      return [row({ name: counted(launch.readings.length), nan: sum("nan"), inf: sum("inf") })];
    }
    const results = writtenBy(launch);
    return results.length ? results.map((r) => row(r)) : [row({})];
  }

  // What is to be seen of a launch: where something begins, is passed on, or is not known.
  function judged(launch, mark) {
    const written = writtenBy(launch);
    const measured = written.filter((value) => value.numel !== undefined);
    const sum = (key) => measured.reduce((total, value) => total + value[key], 0);
    const [nan, inf] = [sum("nan"), sum("inf")];
    const elements = nan ? `${nan.toLocaleString("en")} NaN` : inf ? `${inf.toLocaleString("en")} Inf` : "";
    const how = launch.difference;
    const error = how ? errorOf(how) : "";
    if (mark) return { state: "begins", text: [mark, error || elements].filter(Boolean).join(": ") };
    if (how) {
      if (how.only) return { state: "passed", text: `only in ${how.only}` };
      if (how.state === "unknown") return { state: "open", text: "not compared" };
      return { state: how.state === "equal" ? "fine" : "passed", text: error || how.state };
    }
    if (nan) return { state: "passed", text: `${elements}, passed on` };
    if (!measured.length) return written.length || launch.index !== null ? { state: "open", text: "not measured" } : { state: "fine", text: "" };
    const largest = largestOf(launch);
    return { state: "fine", text: [largest === null ? "" : `max |x| ${number(largest)}`, elements].filter(Boolean).join(", ") };
  }

  function writtenBy(launch) {
    if (launch.index === null) return launch.readings;
    return launch.readings.filter((value) => value.phase === "after" && value.role !== "in" && value.type.endsWith("]"));
  }

  function errorOf(difference) {
    const worst = worstOf(difference);
    if (!worst) return "";
    return `error ${number(worst.error)}` + (worst.allowed === null ? "" : `, allowed ${number(worst.allowed)}`);
  }

  function worstOf(difference) {
    const excess = (tensor) => (tensor.allowed ? tensor.error / tensor.allowed : tensor.error * 1e300);
    const known = difference.tensors.filter((tensor) => tensor.written && tensor.error !== null);
    return known.reduce((worst, one) => (worst && excess(worst) >= excess(one) ? worst : one), null);
  }

  // A launch of a comparison in both dumps; in one of them it may be missing.
  function sidesOf(launch) {
    const { only, other } = launch.difference;
    const titles = { A: titleOf(launch), B: other.replace(/, line \d+$/, "") };
    if (only === "B") Object.assign(titles, { A: "", B: titles.A });
    return ["A", "B"].map((dump) => ({ title: titles[dump], size: titles[dump] ? largestOf(launch, dump) : null }));
  }

  function largestOf(launch, dump = "") {
    const values = writtenBy(launch).filter((value) => !dump || value.dump === dump);
    const ends = values.flatMap((value) => [value.min, value.max]);
    const known = ends.filter((end) => typeof end === "number");
    return known.length ? Math.max(...known.map(Math.abs)) : null;
  }

  function counted(values) {
    return `${values} ${values === 1 ? "value" : "values"}`;
  }

  function text(row, key) {
    const value = row[key];
    if (!numeric.has(key)) return value || "";
    return value === undefined ? "" : ["nan", "inf", "mismatched"].includes(key) && value !== null
      ? value.toLocaleString("en") : number(value);
  }

  // Sorting and filtering.

  function choose() {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const only = byId("only").checked;
    state.shown = state.rows.filter((row) => {
      if (only && !(COMPARES ? row.differs : row.nan || row.inf)) return false;
      if (!words.length) return true;
      const { launch } = row;
      row.text ??= [launch.label, launch.kernel, launch.kind, launch.scope, launch.nodes, launch.origins, row.name, row.type, row.state]
        .join(" ").toLowerCase();
      return words.every((word) => row.text.includes(word));
    });
    const { key, down } = state;
    if (key !== "order" || down) {
      const sign = down ? -1 : 1;
      const isNumber = numeric.has(key) || key === "order";
      const known = (value) => value !== undefined && value !== null && value !== "";
      state.shown.sort((a, b) => {
        const [x, y] = [a[key], b[key]];
        if (!known(x) || !known(y)) return known(y) - known(x) || a.order - b.order; // none: always last
        const order = isNumber ? Number(x) - Number(y) : String(x).localeCompare(String(y), "en", { numeric: true });
        return sign * order || a.order - b.order;
      });
    }
  }

  function refresh() {
    choose();
    state.page = 0;
    render();
  }

  function render() {
    const pages = Math.max(1, Math.ceil(state.shown.length / ROWS));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const start = state.page * ROWS;
    const rows = state.shown.slice(start, start + ROWS);
    body.replaceChildren(...rows.map(rowElement));
    const count = (n) => n.toLocaleString("en");
    const all = count(state.rows.length);
    const of = state.shown.length === state.rows.length ? `${all} rows` : `${count(state.shown.length)} of ${all} rows match`;
    byId("status").textContent = rows.length ? `${of}, shown: ${count(start + 1)} to ${count(start + rows.length)}` : of;
    byId("previous").disabled = state.page === 0;
    byId("next").disabled = state.page === pages - 1;
    for (const th of heads) {
      if (th.dataset.key === state.key) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
  }

  function rowElement(row) {
    const tr = make("tr", undefined, "row");
    if (row.launch.difference && row.launch.difference.blame === "culprit") tr.classList.add("blame");
    for (const th of heads) {
      const key = th.dataset.key;
      if (key === "order") {
        const head = make("th");
        head.scope = "row";
        const button = make("button", row.launch.label);
        button.type = "button";
        button.setAttribute("aria-expanded", "false");
        button.setAttribute("aria-label", `${row.launch.label} ${row.launch.kernel}: details`);
        head.append(button);
        tr.append(head);
        continue;
      }
      const content = text(row, key);
      const cell = make("td", undefined, numeric.has(key) ? `${key} number` : key);
      if ((key === "nan" || key === "inf") && row[key]) cell.classList.add("bad");
      if (key === "state" && row.differs) {
        const blame = row.launch.difference.blame;
        cell.classList.add(blame === "downstream" ? "state-down" : "state-bad");
      }
      cell.append(["kernel", "name", "type", "nodes"].includes(key) && content ? isolated("code", content) : content);
      tr.append(cell);
    }
    tr.source = row;
    return tr;
  }

  // Details of a launch.

  function toggle(tr, open = !tr.classList.contains("open")) {
    if (open === tr.classList.contains("open")) return;
    tr.classList.toggle("open", open);
    tr.querySelector("button").setAttribute("aria-expanded", String(open));
    if (!open) {
      tr.nextElementSibling.remove();
      return;
    }
    const details = make("tr", undefined, "details");
    const cell = make("td");
    cell.colSpan = heads.length;
    cell.append(...detailsOf(tr.source.launch));
    details.append(cell);
    tr.after(details);
  }

  function* detailsOf(launch, name = titleOf(launch)) {
    const facts = make("dl", undefined, "facts");
    const fact = (name, value) => {
      if (!value) return;
      const pair = make("div");
      const said = make("dd");
      said.append(isolated("code", value));
      pair.append(make("dt", name), said);
      facts.append(pair);
    };
    fact("Launch", launch.index === null ? "" : `${launch.label} ${launch.kernel}`);
    fact("Where", launch.scope && `${launch.scope}, line ${launch.line}`);
    fact("Kind", launch.kind);
    fact("Source nodes", launch.nodes);
    fact("Original ATen", launch.origins);
    for (const line of launch.model) fact("Model", line);
    fact("Computes", launch.computes.join("; "));
    if (launch.difference) {
      fact("In dump B", launch.difference.other);
      fact("Inputs", launch.difference.inputs);
      fact("Order", launch.difference.moved ? "moved" : "");
      fact("Why", launch.difference.reasons.join("; "));
      fact("Given wrong values by", launch.difference.producers.join(", "));
    }
    yield facts;
    yield* neighboursOf(launch);
    const bars = make("div", undefined, "bars");
    for (const value of launch.readings) {
      if (value.tiles) bars.append(heatMap(value));
      if (value.bins) bars.append(histogram(value));
    }
    if (bars.childElementCount) yield bars;
    if (launch.difference && launch.difference.tensors.length) yield scrolled(errors(launch), `Errors of ${name}, in detail`);
    if (launch.readings.length) yield scrolled(values(launch), `Values of ${name}, in detail`);
    const source = sourceOf(launch);
    if (source) {
      const box = make("details");
      const pre = make("pre");
      pre.tabIndex = 0;
      pre.append(make("code", source));
      box.append(make("summary", "Kernel source"), pre);
      yield box;
    }
  }

  // Who wrote what a launch reads, and who reads what it wrote.
  function* neighboursOf(launch) {
    const writers = launch.given.map((input) => [state.launches[input.from], input.name]);
    const readers = state.launches.flatMap((one) => one.given.filter((input) => input.from === launch.position).map((input) => [one, input.name]));
    for (const [title, found] of [["Reads", writers], ["Read by", readers]]) {
      if (!found.length) continue;
      const list = make("ul", undefined, "neighbours");
      for (const [other, name] of found.slice(0, NEIGHBOURS)) {
        const item = make("li");
        const button = make("button", titleOf(other), "show");
        button.type = "button";
        button.addEventListener("click", () => flow.choose(other.position));
        const sign = make("span", other.verdict.text, `state ${other.verdict.state}`);
        item.append(isolated("code", name), title === "Reads" ? " from " : " by ", button, " ", sign);
        list.append(item);
      }
      if (found.length > NEIGHBOURS) list.append(make("li", `and ${(found.length - NEIGHBOURS).toLocaleString("en")} more`));
      const box = make("div");
      box.append(make("p", title, "lead"), list);
      yield box;
    }
  }

  // The launch that was chosen in the flow, beside it.
  function chosen(launch) {
    const title = make("h3");
    title.append(isolated("code", titleOf(launch)));
    const said = make("p", launch.verdict.text, `state ${launch.verdict.state}`);
    const button = make("button", "Show in the table", "show");
    button.type = "button";
    button.addEventListener("click", () => show(state.run, launch.position));
    byId("chosen").replaceChildren(title, said, ...nextOf(launch), button, ...detailsOf(launch, "the chosen launch"));
    byId("chosen").scrollTop = 0;
  }

  // What to type next: what the verdict says, or else the launch as a script, if it was saved.
  function* nextOf(launch) {
    const { index, iteration } = launch;
    const told = shared.next.find((one) => one[0] === index && one[1] === iteration && one[2] === state.run);
    const isSaved = index !== null && launch.readings.some((value) => value.file);
    if (!told && !isSaved) return;
    const run = shared.names[state.run].split(" ")[0];
    const text = told ? told[3] : `${shared.repro} --launch ${launch.label.slice(1)} --run ${run}`;
    const command = make("div", undefined, "command");
    const pre = make("pre");
    pre.tabIndex = 0;
    pre.append(make("code", text));
    command.append(pre);
    yield make("p", told ? "Next:" : "Next, this launch alone, as a script:", "lead");
    yield copied(command);
  }

  // With a button that copies the command; where that is not allowed, the text is marked instead.
  function copied(command) {
    const button = make("button", "Copy");
    button.type = "button";
    const code = command.querySelector("code");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
      }
    });
    command.append(button);
    return command;
  }

  function sourceOf(launch) {
    return shared.sources[launch.source] || "";
  }

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
      const { error, a, b, index } = record("extreme", row);
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
    Object.assign(canvas, { width: columns * wide, height: Math.min(rows * high, 256) });
    const tall = canvas.height / rows;
    const context = canvas.getContext("2d");
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
    const begins = first ? `; the first wrong element is [${first.join(", ")}], in the ring` : "";
    const what = COMPARES ? "means of |a - b| in" : "means of";
    const bad = COMPARES ? "elements that are not within tolerance" : "NaN or Inf";
    const said = `${value.name}, ${value.phase}: ${what} ${rows} by ${columns} tiles from ${number(Math.min(...known))} to ${number(Math.max(...known))}, `
      + `${wrong.length.toLocaleString("en")} of them with ${bad}${begins}`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", said);
    const figure = make("figure");
    figure.append(canvas, isolated("figcaption", said));
    return figure;
  }

  // Charts.

  const at = (all, test) => all.flatMap((one, position) => (test(one) ? [position] : []));
  const holds = (launch, key) => launch && writtenBy(launch).some((value) => value[key]);

  function chartOf(title, of, launches, labels, onChoose) {
    const ran = (launch) => launch ?? { readings: [], given: [] };
    const worst = launches.map((launch) => launch?.difference && worstOf(launch.difference));
    const spread = (launch) => Math.max(-1, ...writtenBy(launch).map((value) => (typeof value.std === "number" ? value.std : -1)));
    const series = COMPARES ? [
      { name: "max |a - b|", style: "main", values: worst.map((tensor) => tensor?.error ?? null) },
      { name: "allowed: atol + rtol · max |b|", style: "limit", values: worst.map((tensor) => tensor?.allowed ?? null) },
    ] : [
      { name: "max |x|", style: "main", values: launches.map((launch) => largestOf(ran(launch))) },
      { name: "standard deviation", style: "second", values: launches.map((launch) => { const std = spread(ran(launch)); return std < 0 ? null : std; }) },
    ];
    const differs = (launch, ...states) => states.includes(launch?.difference?.state);
    return {
      title, of, labels, series, onChoose,
      found: COMPARES ? ["NaN, Inf", "other differences"] : ["NaN", "Inf"],
      crosses: at(launches, (launch) => (COMPARES ? differs(launch, "non-finite") : holds(launch, "nan"))),
      triangles: at(launches, (launch) => (COMPARES ? differs(launch, "structural") : holds(launch, "inf"))),
      marks: at(launches, (launch) => launch?.verdict.state === "begins"),
    };
  }

  function chartRun() {
    const launches = state.launches.filter((launch) => launch.index !== null);
    const title = COMPARES ? "Error of what each launch wrote" : "Magnitude of what each launch wrote";
    byId("chart").previousElementSibling.textContent = title;
    charts.put(byId("chart"), chartOf(title, "launches", launches, launches.map(titleOf), (x) => show(state.run, launches[x].position)));
    byId("multiples").replaceChildren();
    later.disconnect();
    later.observe(byId("multiples"));
  }

  // Small charts: launches over calls of their wrapper, or of one call kernels over their launches.
  function chartMultiples() {
    const wrapper = shared.wrappers[state.run];
    const runs = at(shared.wrappers, (one) => one === wrapper);
    const many = [];
    if (runs.length >= FEW) {
      const calls = runs.map((run) => new Map(launchesOf(run).map((launch) => [launch.label, launch])));
      for (const launch of state.launches.filter((one) => one.index !== null)) {
        const over = calls.map((call) => call.get(launch.label));
        const labels = runs.map((run) => shared.names[run]);
        const made = chartOf(titleOf(launch), "calls", over, labels, (x) => over[x] && show(runs[x], over[x].position));
        many.push({ ...made, ticks: labels.map((label) => label.split("/").at(-1)) });
      }
    } else {
      const kernels = new Map();
      for (const launch of state.launches) if (launch.index !== null) kernels.set(launch.kernel, [...(kernels.get(launch.kernel) ?? []), launch]);
      for (const [kernel, launches] of kernels) {
        if (launches.length >= FEW) many.push(chartOf(kernel, "launches", launches, launches.map(titleOf), (x) => show(state.run, launches[x].position)));
      }
    }
    const interest = (of) => {
      const known = of.series[0].values.filter((value) => value > 0);
      const [low, high] = [Math.min(...known), Math.max(...known)];
      return 1000 * of.marks.length + 100 * (of.crosses.length > 0) + (known.length ? Math.log10(high / low) : -1);
    };
    const shown = many.map((of) => [interest(of), of]).sort((a, b) => b[0] - a[0]).slice(0, MULTIPLES).map((one) => one[1]);
    byId("multiples-title").hidden = !shown.length;
    byId("multiples-title").textContent = `${runs.length >= FEW ? "Launches over calls" : "Kernels over their launches"}: the ${shown.length} that vary most of ${many.length.toLocaleString("en")}`;
    charts.multiples(byId("multiples"), shown, { height: 130, legend: false });
  }

  const later = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    later.disconnect();
    chartMultiples();
  }, { rootMargin: "200px" });

  function chartCalls() {
    shared.calls.forEach(({ title, labels, values, nan, inf, runs }, number) => {
      const series = [{ name: "max |x| of what a call wrote", style: "main", values }];
      const onChoose = (x) => runs.length && chooseRun(runs[x]);
      charts.put(byId(`calls-${number}`), { title, labels, of: "calls", series, crosses: nan, triangles: inf, marks: [], onChoose }, { height: 200 });
    });
  }

  // What the reader does.

  function chooseRun(number) {
    load(number);
    if (byId("chart")) chartRun();
    const select = byId("run");
    if (select) select.value = String(number);
    byId("chosen").replaceChildren(make("p", "Choose a launch to see what it read and wrote.", "aside"));
    flow.show(state.launches, chosen);
    refresh();
  }

  function show(number, position) {
    if (number !== state.run) chooseRun(number);
    Object.assign(state, { key: "order", down: false });
    byId("filter").value = "";
    byId("only").checked = false;
    choose();
    const at = state.shown.findIndex((row) => row.launch.position === position);
    if (at < 0) return;
    state.page = Math.floor(at / ROWS);
    render();
    const tr = body.children[at % ROWS];
    toggle(tr, true);
    tr.querySelector("button").focus({ preventScroll: true });
    tr.scrollIntoView({ block: "start" });
  }

  function sort(key) {
    // Numbers are looked through from the largest.
    state.down = state.key === key ? !state.down : numeric.has(key);
    state.key = key;
    refresh();
  }

  function turn(by) {
    state.page += by;
    render();
  }

  function move(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const tr = event.target.closest("tr.row");
    if (!by || !tr) return;
    let next = tr;
    do next = by > 0 ? next.nextElementSibling : next.previousElementSibling;
    while (next && !next.classList.contains("row"));
    if (!next) return;
    event.preventDefault();
    next.querySelector("button").focus();
  }

  for (const th of heads) {
    const button = make("button", th.textContent);
    button.type = "button";
    button.addEventListener("click", () => sort(th.dataset.key));
    th.replaceChildren(button);
  }
  body.addEventListener("click", (event) => {
    const tr = event.target.closest("tr.row");
    // Marking text is no click.
    const button = event.target.closest("button");
    if (tr && (button || String(getSelection()) === "")) toggle(tr);
  });
  body.addEventListener("keydown", move);
  byId("filter").addEventListener("input", refresh);
  byId("only").addEventListener("change", refresh);
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("run")?.addEventListener("change", (event) => chooseRun(Number(event.target.value)));
  for (const button of document.querySelectorAll(".show")) {
    const number = Number(button.dataset.number);
    button.addEventListener("click", () => show(number, Number(button.dataset.position)));
    button.hidden = false;
  }
  for (const button of document.querySelectorAll(".choose")) {
    button.addEventListener("click", () => {
      chooseRun(Number(button.dataset.number));
      byId("launches").focus();
      byId("launches").scrollIntoView();
    });
    button.previousElementSibling.hidden = true;
    button.hidden = false;
  }
  document.querySelectorAll(".command").forEach(copied);
  flow.listen();
  const opened = new Set();
  addEventListener("beforeprint", () => {
    for (const source of document.querySelectorAll(".culprit-launch details:not([open])")) {
      opened.add(source);
      source.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const source of opened) source.open = false;
    opened.clear();
  });
  for (const element of document.querySelectorAll(".controls")) element.hidden = false;
  document.querySelector("#caption .first").remove();
  chooseRun(Number(byId("timeline").dataset.first));
  if (byId("chart")) chartCalls();
  document.documentElement.dataset.ready = "1";
})();
