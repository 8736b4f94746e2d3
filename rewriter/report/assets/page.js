// The table of launches: sorts, filters, turns pages, opens details. Everything is in the page.
(() => {
  const ROWS = 100; // on one page of the table
  const FEW = 3; // calls or launches from which on they have a small chart
  const MULTIPLES = 12; // such charts
  const PAPER = 680; // pixels of the width of a printed page
  const NEIGHBOURS = 12; // that are listed of a launch
  const { shared, launchesOf, writtenBy, worstOf, largestOf } = data;

  const state = { run: 0, launches: [], rows: [], shown: [], page: 0, key: "order", down: false, back: () => {} };

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

  // One row for each tensor that a launch wrote; one for all inputs of the call.
  function rowsOf(launch) {
    const row = (cells) => ({ launch, kernel: launch.kernel, kind: launch.kind, nodes: launch.nodes, ...cells });
    if (launch.difference) {
      const { tensors, ...how } = launch.difference;
      const said = (how.only ? `only in ${how.only}` : how.state) + (how.blame ? `, ${how.blame}` : "");
      const written = tensors.filter((tensor) => tensor.written);
      if (launch.index === null) {
        const error = Math.max(...tensors.map((tensor) => tensor.error ?? 0), 0);
        return [row({ name: counted(tensors.length), state: said, error, differs: Boolean(how.blame) })];
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
    const below = make("tr", undefined, "details");
    const cell = make("td");
    cell.colSpan = heads.length;
    cell.append(...detailsOf(tr.source.launch));
    below.append(cell);
    tr.after(below);
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
      fact("Given differing values by", launch.difference.producers.join(", "));
    }
    yield facts;
    yield* neighboursOf(launch);
    const bars = make("div", undefined, "bars");
    for (const value of launch.readings) {
      if (value.tiles) bars.append(details.heatMap(value));
      if (value.bins) bars.append(details.histogram(value));
    }
    if (bars.childElementCount) yield bars;
    if (launch.difference && launch.difference.tensors.length) yield details.scrolled(details.errors(launch), `Errors of ${name}, in detail`);
    if (launch.readings.length) yield details.scrolled(details.values(launch), `Values of ${name}, in detail`);
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
    const writers = launch.given.map((input) => [state.launches[input.step], input]);
    const readers = state.launches.flatMap((one) => one.given.filter((input) => input.step === launch.position).map((input) => [one, input]));
    for (const [title, found] of [["Reads", writers], ["Read by", readers]]) {
      if (!found.length) continue;
      const list = make("ul", undefined, "neighbours");
      for (const [other, { name, made }] of found.slice(0, NEIGHBOURS)) {
        const item = make("li");
        const button = make("button", titleOf(other), "link");
        button.addEventListener("click", () => follow(other, launch));
        const value = (title === "Reads" ? launch : other).readings.find((one) => one.name === name && typeof one.min === "number");
        const said = value ? `${number(value.min)} to ${number(value.max)}` + (value.nan ? `, ${value.nan.toLocaleString("en")} NaN` : "") : other.verdict.text;
        const sign = make("span", said, `state ${value && !value.nan ? "fine" : other.verdict.state}`);
        // Memory that is taken over has a new name.
        const [own, there, by] = title === "Reads" ? [name, ` (written as ${made})`, " from "] : [made, ` (read as ${name})`, " by "];
        item.append(isolated("code", own), isolated("span", name === made ? "" : there), by, button, " ", sign);
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
    button.addEventListener("click", () => show(state.run, launch.position));
    byId("chosen").replaceChildren(title, said, ...nextOf(launch), button, ...detailsOf(launch, "the chosen launch"));
    byId("chosen").scrollTop = 0;
  }

  // What to type next: what the verdict says, or else the launch as a script, if it was saved.
  function* nextOf(launch) {
    const { index, iteration, difference, readings } = launch;
    const told = shared.next.find((one) => one[0] === index && one[1] === iteration && one[2] === state.run);
    const read = readings.filter((value) => value.phase === "before" && value.type.endsWith("]"));
    if (!told && (index === null || difference?.only === "B" || !read.length || !read.every((value) => value.file))) return;
    const text = told ? told[3] : shared.repro[state.run].join(launch.label.slice(1));
    const command = make("div", undefined, "command");
    const pre = make("pre");
    pre.tabIndex = 0;
    pre.append(make("code", text));
    command.append(pre);
    yield make("p", told ? "Next:" : `Next, this launch alone${COMPARES ? ", from dump A" : ""}:`, "lead");
    yield copied(command);
  }

  // With a button that copies the command; where that is not allowed, the text is marked instead.
  function copied(command) {
    const button = make("button", "Copy");
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
    later.disconnect();
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
    if (entries.some((entry) => entry.isIntersecting)) chartMultiples();
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
    const from = document.activeElement;
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
    tr.nextElementSibling.firstChild.prepend(backTo(() => goTo(from.isConnected ? from : byId("chosen"), "center")));
    if (byId("chart") && !byId("multiples").childElementCount) chartMultiples(); // later they would push the row away
    goTo(tr.querySelector("button"), "start");
  }

  function follow(other, launch) {
    flow.choose(other.position);
    byId("chosen").prepend(backTo(() => follow(launch, other)));
    goTo(byId("chosen"), "nearest");
  }

  function goTo(element, block) {
    element.focus({ preventScroll: true });
    element.scrollIntoView({ behavior: "instant", block });
  }

  // From where a link led, a button and Escape lead back.
  function backTo(way) {
    const button = make("button", "Back (Esc)", "link");
    button.addEventListener("click", way);
    state.back = () => button.isConnected && way();
    return button;
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
  addEventListener("keydown", (event) => event.key === "Escape" && event.target !== byId("filter") && state.back());
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
  if (byId("flow")) flow.listen();
  const opened = new Set();
  addEventListener("beforeprint", () => {
    for (const sheet of document.querySelectorAll(".sheet")) sheet.style.zoom = Math.min(1, PAPER / sheet.offsetWidth);
    for (const source of document.querySelectorAll(".culprit-launch details:not([open])")) {
      opened.add(source);
      source.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const sheet of document.querySelectorAll(".sheet")) sheet.style.zoom = "";
    for (const source of opened) source.open = false;
    opened.clear();
  });
  for (const element of document.querySelectorAll(".controls")) element.hidden = false;
  document.querySelector("#caption .first").remove();
  if (byId("flow")) chooseRun(Number(byId("timeline").dataset.first));
  if (byId("chart")) chartCalls();
  document.documentElement.dataset.ready = "1";
})();
