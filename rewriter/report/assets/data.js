// Reads the launches of the page, and says what is to be seen of them.

const data = (() => {
  const shared = JSON.parse(byId("shared").textContent); // what all runs have in common
  const loaded = new Map(); // the launches of runs

  function launchesOf(number) {
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

  return { shared, record, launchesOf, writtenBy, worstOf, largestOf };
})();

