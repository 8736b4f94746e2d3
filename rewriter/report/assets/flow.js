// The flow of values: launches and what they gave each other, folded by layers or lines of the model.
// dagre lays out what is visible; nodes are buttons above the edges.

const flow = (() => {
  const VISIBLE = 150; // nodes that are laid out at a time
  const CHILDREN = 50; // of a group
  const FEW = 24; // launches that a layer shows without its lines
  const [WIDTH, HEIGHT, HEAD] = [224, 46, 24];
  const [WIDE, HIGH] = [324, 66]; // of a launch in two runs
  const PREFIX = /\b(?:cpp_|triton_(?:[a-z]{3}_)?)fused_+|\bextern_kernels\./; // says little, and is long
  const SIGNS = { begins: "✕", passed: "↓", open: "?", fine: "" };
  const RANKS = Object.keys(SIGNS); // a group is as its worst launch
  const state = { root: null, leaves: [], nodes: [], chosen: null, focused: null, onChoose: null };

  // Folding.

  function leaf(launch) {
    return { launch, first: launch.position, last: launch.position, count: 1, verdict: launch.verdict };
  }

  function group(label, children) {
    if (children.length === 1 && children[0].children) children = children[0].children;
    const made = { label, children, open: false, first: children[0].first, last: children.at(-1).last };
    made.count = children.reduce((sum, child) => sum + child.count, 0);
    const worst = Math.min(...children.map((child) => RANKS.indexOf(child.verdict.state)));
    made.verdict = children.find((child) => RANKS.indexOf(child.verdict.state) === worst).verdict;
    for (const child of children) child.parent = made;
    return made;
  }

  // Neighbours with the same key, as groups of their own.
  function foldedBy(leaves, keyOf, within) {
    const runs = [];
    for (const one of leaves) {
      const key = one.launch.index === null ? null : keyOf(one.launch);
      if (runs.length && key && runs.at(-1).key === key) runs.at(-1).members.push(one);
      else runs.push({ key, members: [one] });
    }
    return runs.map(({ key, members }) => (members.length === 1 ? members[0] : group(key.replace(/^(?=\d+$)/, "layer "), within(members))));
  }

  function divided(children, most = CHILDREN) {
    if (children.length <= most) return children;
    const size = Math.ceil(Math.max(children.length / CHILDREN, Math.sqrt(children.length)));
    const parts = [];
    for (let at = 0; at < children.length; at += size) {
      const part = children.slice(at, at + size);
      const ends = [state.leaves[part[0].first], state.leaves[part.at(-1).last]].map((one) => one.launch.label);
      parts.push(part.length === 1 ? part[0] : group(`${ends[0]} to ${ends[1]}`, divided(part, FEW)));
    }
    return parts;
  }

  function fold(launches) {
    state.leaves = launches.map(leaf);
    const line = (launch) => launch.model[0];
    const lines = (members) => divided(foldedBy(members, line, divided));
    let children = launches.some((launch) => launch.layer)
      ? foldedBy(state.leaves, (launch) => launch.layer, (members) => (members.length > FEW ? lines(members) : members))
      : foldedBy(state.leaves, line, divided);
    const groups = children.filter((child) => child.children);
    if (groups.length === 1) groups[0].open = true;
    children = divided(children);
    state.root = children.length ? group("", children) : null;
  }

  function* visible(node) {
    for (const child of node.children) {
      yield child;
      if (child.open) yield* visible(child);
    }
  }

  function* ancestors(node) {
    for (let up = node.parent; up && up !== state.root; up = up.parent) yield up;
  }

  // Opens a group, or the way to a launch; others are closed where there would be too many nodes.
  function open(node) {
    const way = new Set([...ancestors(node), ...(node.children ? [node] : [])]);
    for (const one of way) one.open = true;
    for (const other of [...visible(state.root)]) {
      if ([...visible(state.root)].length <= VISIBLE) break;
      if (other.open && !way.has(other)) other.open = false;
    }
  }

  // Laying out.

  function shownOf(position) {
    const one = state.leaves[position];
    return [one, ...ancestors(one)].findLast((up) => !up.open) ?? one;
  }

  function layout() {
    const graph = new dagre.graphlib.Graph({ compound: true });
    graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 26, marginx: 8, marginy: 8, ranker: "tight-tree" });
    graph.setDefaultEdgeLabel(() => ({}));
    const id = (node) => `${node.first}-${node.last}`;
    const top = (node) => (node.open ? `head ${id(node)}` : id(node));
    for (const node of state.nodes) {
      if (node.open) {
        graph.setNode(id(node), {});
        graph.setNode(top(node), { node, width: WIDTH, height: HEAD });
        graph.setParent(top(node), id(node));
        graph.setEdge(top(node), top(node.children[0]), { kind: "" });
      } else {
        const [width, height] = node.launch?.sides ? [WIDE, HIGH] : [WIDTH, HEIGHT];
        graph.setNode(id(node), { node, width, height });
      }
      if (node.parent !== state.root) graph.setParent(id(node), id(node.parent));
    }
    let before = null;
    for (const node of state.nodes.filter((one) => !one.open)) {
      const sources = new Map();
      for (const { launch } of state.leaves.slice(node.first, node.last + 1)) {
        for (const input of launch.given) {
          const source = shownOf(input.step);
          if (source !== node && source) sources.set(source, launch);
        }
      }
      const inner = [...sources.keys()].filter((one) => one.count > 1 || one.launch.index !== null);
      let drawn = inner.length ? inner : [...sources.keys()];
      // A call may return what each launch wrote, as the forward of a training does: the last says enough.
      if (node.launch?.index === null) drawn = drawn.sort((a, b) => a.last - b.last).slice(-1);
      for (const source of drawn) {
        const isBad = [source, node].every((one) => ["begins", "passed"].includes(one.verdict.state));
        graph.setEdge(id(source), id(node), { kind: isBad ? "edge bad" : "edge" });
        const outer = [...ancestors(node)].findLast((up) => source.last < up.first);
        if (outer) graph.setEdge(id(source), top(outer), { kind: "" });
      }
      // A launch whose inputs are not known stands below the one before it.
      if (!drawn.length && before) graph.setEdge(id(before), id(node), { kind: "" });
      before = node;
    }
    dagre.layout(graph);
    return graph;
  }

  // Drawing.

  function render() {
    const box = byId("flow");
    if (!state.root) return;
    state.nodes = [...visible(state.root)];
    const graph = layout();
    const { width, height } = graph.graph();
    const edges = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const buttons = [];
    for (const name of graph.nodes()) {
      const { node, x, y, width: wide, height: high } = graph.node(name);
      const [left, top] = [x - wide / 2, y - high / 2];
      if (!node) {
        edges.append(draw("rect", { class: "frame", x: left, y: top, width: wide, height: high, rx: 6 }));
        continue;
      }
      const button = element(node);
      const place = { left, top, width: wide, height: high };
      for (const [side, size] of Object.entries(place)) button.style[side] = `${size}px`;
      buttons.push(button);
    }
    for (const name of graph.edges()) {
      const { points, kind } = graph.edge(name);
      if (!kind) continue;
      const line = points.map((point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("L");
      const [before, end] = points.slice(-2);
      const turn = (180 / Math.PI) * Math.atan2(end.y - before.y, end.x - before.x);
      const at = `translate(${end.x.toFixed(1)} ${end.y.toFixed(1)}) rotate(${turn.toFixed(0)})`;
      edges.append(draw("path", { class: kind, d: `M${line}` }));
      edges.append(draw("path", { class: `${kind} tip`, d: "M0 0L-8 3.5V-3.5z", transform: at }));
    }
    const sheet = make("div", undefined, "sheet");
    sheet.style.width = `${width}px`;
    sheet.style.height = `${height}px`;
    sheet.append(edges, ...buttons);
    box.replaceChildren(sheet);
    const focused = buttons.find((one) => one.node === state.focused) ?? buttons[0];
    focused.tabIndex = 0;
  }

  function element(node) {
    const { launch, verdict } = node;
    const button = make("button", undefined, `node ${verdict.state}${node.open ? " head" : ""}`);
    button.tabIndex = -1;
    button.node = node;
    const title = launch ? titleOf(launch) : node.label;
    if (launch?.sides) button.append(sides(launch));
    else button.append(isolated("b", title.replace(PREFIX, "")));
    if (!node.open) {
      const size = launch ? "" : `${node.count.toLocaleString("en")} launches`;
      const said = [size, `${SIGNS[verdict.state]} ${verdict.text}`.trim()].filter(Boolean).join(" · ");
      button.append(isolated("span", said));
    }
    button.title = `${title}${node.open ? "" : `: ${button.lastChild.textContent}`}`;
    if (launch) button.setAttribute("aria-pressed", String(launch === state.chosen));
    else button.setAttribute("aria-expanded", String(node.open));
    return button;
  }

  // The launch in both runs, beside each other.
  function sides(launch) {
    const pair = make("span", undefined, "sides");
    for (const { title } of launch.sides) pair.append(title ? isolated("b", title.replace(PREFIX, "")) : make("span", "none here", "missing"));
    for (const { size } of launch.sides) pair.append(make("span", size === null ? "" : `max |x| ${number(size)}`));
    return pair;
  }

  function buttonOf(node) {
    return [...byId("flow").querySelectorAll(".node")].find((one) => one.node === node);
  }

  function focus(node) {
    for (const one of byId("flow").querySelectorAll(".node")) one.tabIndex = one.node === node ? 0 : -1;
    state.focused = node;
    buttonOf(node).focus();
  }

  function press(node) {
    state.focused = node;
    if (node.launch) return choose(node.launch.position);
    if (node.open) node.open = false;
    else open(node);
    render();
    focus(node);
    buttonOf(node).scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // Chooses a launch: opens the way to it and tells the page.
  function choose(position) {
    const one = state.leaves[position];
    open(one);
    Object.assign(state, { chosen: one.launch, focused: one });
    render();
    const [box, button] = [byId("flow"), buttonOf(one)];
    box.scrollTo(button.offsetLeft + button.offsetWidth / 2 - box.clientWidth / 2, button.offsetTop - box.clientHeight / 2);
    state.onChoose(one.launch);
  }

  function show(launches, onChoose) {
    Object.assign(state, { onChoose, chosen: null, focused: null });
    fold(launches);
    const first = launches.find((launch) => launch.verdict.state === "begins");
    if (first) choose(first.position);
    else render();
  }

  function listen() {
    const box = byId("flow");
    box.addEventListener("click", (event) => {
      const button = event.target.closest(".node");
      if (button) press(button.node);
    });
    box.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      const next = by && state.nodes[state.nodes.indexOf(event.target.node) + by];
      if (!next) return;
      event.preventDefault();
      focus(next);
    });
  }

  return { show, choose, listen };
})();

