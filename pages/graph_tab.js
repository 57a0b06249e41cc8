// The tab of graphs: the model and a result side by side, the search, and what is known of the selected node.
"use strict";

const TITLES = { model: "model", optimized: "optimized model", native: "native graph" };
const graphs = data.graphs || {};
const rules = new Map((data.rules || []).map((rule) => [rule.name, rule]));
const ruleCounts = d3.rollups(
  ["optimized", "native"].flatMap((name) => (graphs[name] ? graphs[name].nodes : [])).flatMap((node) => node.rules), (found) => found.length, (name) => name);
const ruleColor = palette(d3.sort(ruleCounts, ([name, n]) => -n, ([name]) => name).map(([name]) => name));
const kernels = data.profile ? data.profile.kernels : [];
const kernelOf = new Map(kernels.flatMap((kernel, i) => kernel.nodes.map((name) => [name, i])));
const operatorColor = palette(d3.sort(d3.rollups(Object.values(graphs).flatMap((g) => g.nodes), (v) => v.length, (n) => fmt.op(n.operator)), ([, n]) => -n).map(([op]) => op));
const heat = d3.scaleSequentialSqrt(d3.interpolateYlOrRd);
const templateColor = palette(d3.sort(d3.rollups(kernels, (v) => d3.sum(v, (k) => k.seconds), (k) => k.kernels[0]), ([, s]) => -s).map(([name]) => name));

const COLORINGS = {
  rule: (node) => node.rules.map(ruleColor),
  operator: (node) => [operatorColor(fmt.op(node.operator))],
  cost: (node, graph) => (node.cost ? [heat.domain([0, graph.largest])(node.cost)] : []),
  kernel: (node) => (kernelOf.has(node.name) ? [templateColor(kernels[kernelOf.get(node.name)].kernels[0])] : []),
};

const state = { views: {}, right: "optimized", coloring: "rule", highlight: null };
for (const graph of Object.values(graphs)) graph.largest = d3.max(graph.nodes, (node) => node.cost || 0) || 1;

function drawGraphTab(section) {
  const search = searchBox();
  const coloring = make("select", { onchange: (e) => recolor(e.target.value) },
    ...Object.keys(COLORINGS).filter((name) => name !== "kernel" || kernels.length).map((name) => make("option", { value: name }, name)));
  const button = (title, text, act) => make("button", { title, onclick: act }, text);
  section.append(
    make("div", { class: "toolbar" }, search, make("label", {}, "color by ", coloring), make("span", { class: "space" }),
      button("Open all boxes", "open all", () => allViews((view) => view.setAll(true))),
      button("Close all boxes", "close all", () => allViews((view) => view.setAll(false)))),
    make("div", { class: "panes" }, pane("model"), pane("optimized"), make("div", { class: "side" })));
  showView("model", "model");
  showView("optimized", state.right);
  showLegend();
  addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, textarea")) return;
    if (event.key === "/") { event.preventDefault(); openTab("graph"); search.querySelector("input").focus(); }
    if (event.key === "Escape") select(null);
    if (event.key === "f") allViews((view) => view.fit(true));
  });
}

const allViews = (act) => Object.values(state.views).forEach(act);
const paneOf = (name) => (name === "model" ? "model" : "optimized");

function pane(id) {
  return make("div", { class: "pane", id: `pane-${id}` });
}

// Reading a model folds constants and drops branches, so the graph may have fewer nodes than the file that was counted.
const inFile = (graph) => (data.nodes_before > graph.nodes.length ? `, ${fmt.count(data.nodes_before)} in the file` : "");

function showView(place, name) {
  const holder = document.getElementById(`pane-${place}`), graph = graphs[name];
  holder.replaceChildren();
  const names = Object.keys(graphs).filter((other) => other !== "model");
  const title = place === "model" || names.length < 2 ? TITLES[name]
    : make("select", { title: "Which result", onchange: (e) => { state.right = e.target.value; showView("optimized", state.right); select(null); } },
      ...names.map((other) => make("option", { value: other, selected: other === name }, TITLES[other])));
  holder.append(
    make("div", { class: "title" }, title, make("span", {}, `${fmt.count(graph.nodes.length)} nodes${place === "model" ? inFile(graph) : ""}`)),
    make("div", { class: "zoom" },
      make("button", { title: "Zoom in", onclick: () => view.svg.call(view.zoom.scaleBy, 1.4) }, "+"),
      make("button", { title: "Zoom out", onclick: () => view.svg.call(view.zoom.scaleBy, 1 / 1.4) }, "−"),
      make("button", { title: "Show all (f)", onclick: () => view.fit(true) }, "fit")));
  const view = new GraphView(holder, graph, {
    colors: (node) => COLORINGS[state.coloring](node, graph),
    onSelect: (node) => select(node === null ? null : { name, node }),
    onToggle: (key, opens) => allViews((other) => other !== view && other.follow(key, opens)),
  });
  view.name = name;
  view.highlight = state.highlight;
  state.views[place] = view;
  if (state.views.model && place !== "model") {
    view.openLike(state.views.model);
    if (!state.started) {
      state.started = true;
      state.views.model.openLike(view);
      state.views.model.setAll(null);
    }
  }
  view.draw();
  view.fit();
}

function recolor(name) {
  state.coloring = name;
  allViews((view) => view.mark());
  showLegend();
}

// --- the selected node ---

const nodeIndex = {};
for (const [name, graph] of Object.entries(graphs)) {
  nodeIndex[name] = new Map();
  graph.nodes.forEach((node, i) => nodeIndex[name].has(node.name) || nodeIndex[name].set(node.name, i));
  graph.heirs = new Map();
  graph.nodes.forEach((node, i) => new Set(node.origins).forEach((origin) => {
    if (!graph.heirs.has(origin)) graph.heirs.set(origin, []);
    graph.heirs.get(origin).push(i);
  }));
  graph.readers = new Map();
  graph.nodes.forEach((node, i) => new Set(node.inputs).forEach((value) => {
    if (!graph.readers.has(value)) graph.readers.set(value, []);
    graph.readers.get(value).push(i);
  }));
  graph.makers = new Map();
  graph.nodes.forEach((node, i) => node.outputs.forEach((value) => value && graph.makers.set(value, i)));
}

// The nodes of another graph that stand for the same original nodes.
function counterparts(name, node, other) {
  const given = graphs[name].nodes[node];
  if (other === "model") return given.origins.map((origin) => nodeIndex.model.get(origin)).filter((i) => i !== undefined);
  const origins = name === "model" ? [given.name] : given.origins;
  return [...new Set(origins.flatMap((origin) => graphs[other].heirs.get(origin) || []))];
}

function select(chosen, go = false) {
  for (const view of Object.values(state.views)) {
    view.selected = chosen && view.name === chosen.name ? chosen.node : null;
    view.related = new Set(chosen && view.name !== chosen.name ? counterparts(chosen.name, chosen.node, view.name) : []);
  }
  if (chosen) {
    if (!Object.values(state.views).some((view) => view.name === chosen.name)) {
      state.right = chosen.name;
      showView("optimized", chosen.name);
      return select(chosen, go);
    }
    const own = Object.values(state.views).find((view) => view.name === chosen.name);
    if (go) own.reveal(chosen.node);
    for (const view of Object.values(state.views)) if (view !== own && view.related.size) view.approach([...view.related][0]);
  }
  allViews((view) => view.mark());
  chosen ? showNode(chosen) : showLegend();
}

function goLink(name, node, text = null) {
  const found = graphs[name].nodes[node];
  return make("button", { class: "link", onclick: () => { openTab("graph"); select({ name, node }, true); } }, text || `${fmt.op(found.operator)} ${found.name}`);
}

function ruleLink(name) {
  const at = make("span");
  const link = make("button", { class: "link", onclick: () => (at.childElementCount ? at.replaceChildren() : at.replaceChildren(...ruleDetails(name))) }, name);
  return make("div", {}, chip(ruleColor(name)), link, at);
}

function ruleDetails(name) {
  const found = (data.rule_texts || {})[name], rule = rules.get(name);
  const place = found ? `${found.file}${rule ? `:${rule.line}` : ""}, ${found.class}` : rule ? `${rule.file.split("/").pop()}:${rule.line}` : "";
  return [make("div", { class: "name" }, place), found ? make("pre", {}, found.text) : ""];
}

function showNode({ name, node }) {
  const graph = graphs[name], found = graph.nodes[node], side = document.querySelector(".side");
  const value = (v) => {
    const maker = graph.makers.get(v);
    const label = maker === undefined ? v : null;
    const kind = v in graph.constants ? ` constant, ${fmt.bytes(graph.constants[v])}` : graph.inputs.includes(v) ? " input" : "";
    return make("div", {}, label || goLink(name, maker, v), make("span", { class: "name" }, kind));
  };
  const values = (list) => make("table", {}, make("tbody", {}, ...list.filter(Boolean).map((v) => make("tr", {}, make("td", {}, graph.types[v] || "?"), make("td", {}, value(v))))));
  const total = d3.sum(graph.nodes, (n) => n.cost || 0);
  const parts = [make("h3", {}, found.operator), make("div", { class: "name" }, `${found.name} · ${TITLES[name]}`)];
  const head = (text) => parts.push(make("h4", {}, text));
  if (name === "model") {
    for (const other of Object.keys(graphs).filter((o) => o !== "model")) {
      const heirs = counterparts("model", node, other);
      head(`in the ${TITLES[other]}`);
      parts.push(...heirs.slice(0, 12).map((i) => make("div", {}, ...graphs[other].nodes[i].rules.slice(0, 3).map((r) => chip(ruleColor(r))), goLink(other, i))));
      if (!heirs.length) parts.push(make("div", {}, "Nothing is left of it: its value is constant, equal to another, or unused."));
    }
  } else {
    head("made by");
    parts.push(...(found.rules.length ? found.rules.map(ruleLink) : ["No rule: it is as in the model."]));
    head("stands for");
    const origins = found.origins.map((origin) => [origin, nodeIndex.model.get(origin)]);
    parts.push(...origins.map(([origin, i]) => make("div", {}, i === undefined ? origin : goLink("model", i))));
    if (!origins.length) parts.push("No node of the model: rules made it of what they read.");
  }
  head("cost");
  parts.push(make("div", {}, found.cost === null ? "part of the node that runs it" : `${fmt.seconds(found.cost)} predicted, ${fmt.percent(found.cost / total)} of the ${TITLES[name]}`));
  const kernel = name === "native" ? kernelOf.get(found.name) : undefined;
  if (kernel !== undefined) parts.push(...kernelLines(kernels[kernel]));
  if (Object.keys(found.attributes).length) {
    head("attributes");
    parts.push(make("table", {}, make("tbody", {}, ...Object.entries(found.attributes).map(([key, text]) => make("tr", {}, make("td", {}, key), make("td", {}, text))))));
  }
  head("inputs");
  parts.push(values(found.inputs));
  head("outputs");
  parts.push(values(found.outputs));
  const readers = [...new Set(found.outputs.flatMap((v) => graph.readers.get(v) || []))];
  if (readers.length) {
    head("read by");
    parts.push(...readers.slice(0, 20).map((i) => make("div", {}, goLink(name, i))), readers.length > 20 ? `and ${readers.length - 20} more` : "");
  }
  side.replaceChildren(...parts);
  side.scrollTop = 0;
}

function kernelLines(kernel) {
  const least = Math.max(kernel.least_compute, kernel.least_memory);
  return [make("div", {}, `${fmt.seconds(kernel.seconds)} measured in the kernel ${kernel.kernels.join(" + ")}, bound by ${kernel.bound}`),
    make("div", { class: "name" }, `${fmt.percent(least / kernel.seconds)} of what the machine allows; with it run: ${kernel.operators.map(fmt.op).join(", ")}`)];
}

// --- the legend, and highlighting by it ---

function showLegend() {
  const side = document.querySelector(".side");
  if (!side) return;
  const shown = graphs[state.right];
  const item = (color, name, count, test) => {
    const line = make("li", { tabindex: 0, onclick: () => toggle(), onkeydown: (e) => e.key === "Enter" && toggle() },
      chip(color), make("span", { class: "name" }, name), make("span", { class: "count" }, String(count)));
    const toggle = () => {
      const on = line.classList.contains("on");
      side.querySelectorAll("li.on").forEach((other) => other.classList.remove("on"));
      line.classList.toggle("on", !on);
      state.highlight = on ? null : test;
      allViews((view) => { view.highlight = state.highlight; view.mark(); });
    };
    return line;
  };
  state.highlight = null;
  allViews((view) => { view.highlight = null; });
  let items = [];
  if (state.coloring === "rule") {
    const counts = d3.rollups(shown.nodes.flatMap((node) => node.rules), (v) => v.length, (name) => name);
    items = d3.sort(counts, ([name, n]) => -n, ([name]) => name).map(([name, n]) => item(ruleColor(name), name, n, (node) => node.rules.includes(name)));
    items.push(item("var(--paper)", "as in the model", shown.nodes.filter((n) => !n.rules.length).length, (node) => !node.rules.length));
  } else if (state.coloring === "operator") {
    const counts = d3.rollups(shown.nodes, (v) => v.length, (n) => fmt.op(n.operator));
    items = d3.sort(counts, ([, n]) => -n).map(([op, n]) => item(operatorColor(op), op, n, (node) => fmt.op(node.operator) === op));
  } else if (state.coloring === "kernel") {
    const counts = d3.rollups(kernels, (v) => fmt.seconds(d3.sum(v, (k) => k.seconds)), (k) => k.kernels[0]);
    items = counts.map(([name, s]) => item(templateColor(name), name, s, (node) => kernelOf.has(node.name) && kernels[kernelOf.get(node.name)].kernels[0] === name));
  } else {
    items = [0.02, 0.1, 0.3, 1].map((share) => item(heat.domain([0, shown.largest])(share * shown.largest), `up to ${fmt.seconds(share * shown.largest)}`, "", (node) => node.cost <= share * shown.largest));
  }
  const title = { rule: "rules that made nodes", operator: "operators", cost: "predicted cost of a node", kernel: "kernels, seconds of a run" }[state.coloring];
  side.replaceChildren(
    make("h4", {}, `${title} (${TITLES[state.right]})`), make("ul", { class: "legend" }, ...items),
    make("h4", {}, "how to read it"),
    make("p", { class: "note" }, "A box is a module of the model, or a block that repeats; click its head to open it. The strip in a closed box shows which rules made the nodes inside. "
      + "Click a node for its operator, its types, the rules that made it, and the nodes of the model that it stands for, which are framed on the other side. Drag to move, turn the wheel to zoom, press / to search."));
  allViews((view) => view.mark());
}

// --- search ---

function searchBox() {
  const list = make("ul"), input = make("input", { type: "search", placeholder: "Search nodes, operators, values, rules ( / )", "aria-label": "Search" });
  let found = [], at = 0;
  const everything = Object.entries(graphs).flatMap(([name, graph]) => graph.nodes.map((node, i) => ({
    name, node: i, text: [node.name, node.operator, ...node.outputs, ...node.rules].join("\n").toLowerCase() })));
  const go = (hit) => { list.classList.remove("open"); openTab("graph"); select({ name: hit.name, node: hit.node }, true); };
  const fill = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.length ? everything.filter((hit) => words.every((word) => hit.text.includes(word))) : [];
    found = hits.slice(0, 60);
    at = 0;
    list.replaceChildren(...found.map((hit, i) => {
      const node = graphs[hit.name].nodes[hit.node];
      return make("li", { class: i === at ? "at" : "", onpointerdown: (e) => { e.preventDefault(); go(hit); } },
        `${fmt.op(node.operator)} ${node.name} `, make("small", {}, `${TITLES[hit.name]}${node.rules.length ? ` · ${node.rules.join(", ")}` : ""}`));
    }), words.length ? make("small", {}, `${fmt.count(hits.length)} found${hits.length > found.length ? `, ${found.length} shown` : ""}`) : "");
    list.classList.toggle("open", words.length > 0);
  };
  input.addEventListener("input", fill);
  input.addEventListener("focus", fill);
  input.addEventListener("blur", () => list.classList.remove("open"));
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      list.children[at].classList.remove("at");
      at = (at + step + found.length) % found.length;
      list.children[at].classList.add("at");
      list.children[at].scrollIntoView({ block: "nearest" });
    }
    if (event.key === "Enter" && found.length) go(found[at]);
    if (event.key === "Escape") input.blur();
  });
  return make("div", { class: "found" }, input, list);
}
