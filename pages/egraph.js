// The page of a value: its e-class, the classes that its forms need, what each form costs, and why one was chosen.
"use strict";

const classes = new Map(data.classes.map((found) => [found.id, found]));
const money = (x) => (x === null ? "–" : data.unit === "seconds" ? fmt.seconds(x) : d3.format(".4~g")(x));
const delta = (x) => (x === null ? "–" : `${x < 0 ? "−" : "+"}${money(Math.abs(x))}`);
const ruleColor = palette([...new Set(data.classes.flatMap((c) => c.forms.map((f) => f.rule)).filter(Boolean))]);

const short = (name) => fmt.clip(name.split("/").slice(-2).join("/"), 26);
function className(id) {
  const found = classes.get(id);
  if (id === null) return "–";
  if (!found) return `class ${id}`;
  const leaf = found.forms.find((f) => f.operator === "Input");
  if (leaf) return leaf.attributes.name;
  if (found.constant) return `constant ${fmt.shape(found.type)}`;
  return found.name || `class ${id}`;
}
function formText(form) {
  if (form.operator === "Input") return `input ${form.attributes.name}`;
  if (form.operator === "Const") return "constant";
  if (form.operator === "Proj") return `output ${form.attributes.index} of`;
  return fmt.op(form.operator);
}
function expression(form) {
  if (form.operator === "Input" || form.operator === "Const") return formText(form);
  const attributes = Object.entries(form.attributes).map(([key, text]) => `${key}: ${fmt.clip(text, 24)}`);
  return `${formText(form)}(${[...form.children.map((id) => fmt.clip(className(id), 34)), ...attributes].join(", ")})`;
}

const ROW = 24, TOP = 30;
let shownDepth = data.depth, constants = false, svg, world, zoom, chosenClass = data.root;

function drawEgraph(section) {
  const pane = make("div", { class: "pane", id: "pane-egraph" });
  section.append(pane, make("div", { class: "side" }));
  section.querySelector(".side").style.width = "480px";
  const depths = make("select", { onchange: (e) => { shownDepth = +e.target.value; layout(); } },
    ...d3.range(0, data.depth + 1).map((n) => make("option", { value: n, selected: n === shownDepth }, `${n} deep`)));
  pane.append(make("div", { class: "title" }, fmt.clip(data.node, 60), make("span", {}, data.target === "native" ? "for kernels" : "as an ONNX model"), depths,
      make("label", { title: "Draw values that are known before the program runs" }, make("input", { type: "checkbox", onchange: (e) => { constants = e.target.checked; layout(); } }), "constants")),
    make("div", { class: "zoom" },
      make("button", { title: "Zoom in", onclick: () => svg.call(zoom.scaleBy, 1.4) }, "+"),
      make("button", { title: "Zoom out", onclick: () => svg.call(zoom.scaleBy, 1 / 1.4) }, "−"),
      make("button", { title: "Show all", onclick: () => fit(true) }, "fit")));
  svg = d3.select(pane).append("svg");
  world = svg.append("g");
  zoom = d3.zoom().scaleExtent([0.05, 4]).on("zoom", ({ transform }) => world.attr("transform", transform));
  svg.call(zoom).on("dblclick.zoom", null);
  layout();
  showClass(data.root);
}

let size = [0, 0];
function layout() {
  const shown = data.classes.filter((found) => found.distance <= shownDepth && (constants || !found.constant || found.id === data.root)), ids = new Set(shown.map((found) => found.id));
  const g = new dagre.graphlib.Graph().setGraph({ rankdir: "TB", nodesep: 26, ranksep: 44, ranker: "tight-tree" }).setDefaultEdgeLabel(() => ({}));
  for (const found of shown) {
    found.head = fmt.clip(className(found.id), 40);
    const rows = found.forms.map((form) => textWidth(formText(form)) + textWidth(form.own === null ? "" : money(form.own), 10.5) + 46);
    found.width = Math.max(120, textWidth(found.head, 11, "600") + 24, textWidth(fmt.shape(found.type), 10) + 24, ...rows);
    found.height = TOP + 12 + found.forms.length * ROW + 8;
    g.setNode(String(found.id), { width: found.width, height: found.height });
  }
  const wires = [];
  for (const found of shown) found.forms.forEach((form, row) => new Set(form.children).forEach((child) => {
    if (child === null || !ids.has(child) || child === found.id) return;
    g.setEdge(String(found.id), String(child));
    wires.push({ found, form, row, child: classes.get(child) });
  }));
  dagre.layout(g);
  size = [g.graph().width, g.graph().height];
  world.selectAll("*").remove();
  shown.forEach((found) => Object.assign(found, g.node(String(found.id))));
  const lines = world.append("g");
  for (const { found, form, row, child } of wires) {
    const y = found.y - found.height / 2 + TOP + 12 + row * ROW + ROW / 2 - 1, right = child.x >= found.x;
    const a = { x: found.x + (right ? 1 : -1) * (found.width / 2 - 8), y }, b = { x: child.x, y: child.y - child.height / 2 };
    const out = right ? 22 : -22;
    lines.append("path").attr("class", `edge${form.used ? " chosen" : ""}`).attr("d", `M${a.x},${a.y}C${a.x + out * 2},${a.y} ${b.x},${b.y - 42} ${b.x},${b.y}`).datum({ form });
    lines.append("path").attr("class", "arrow").attr("d", `M${b.x - 3.5},${b.y - 6}h7l-3.5,6z`);
  }
  for (const found of shown) {
    const box = world.append("g").attr("class", `eclass${found.id === data.root ? " root" : ""}`).attr("transform", `translate(${found.x - found.width / 2},${found.y - found.height / 2})`);
    box.append("rect").attr("class", "box").attr("width", found.width).attr("height", found.height).attr("rx", 8).style("fill", "var(--group)");
    box.append("text").attr("x", found.width / 2).attr("y", 16).attr("text-anchor", "middle").style("font-size", "11px").style("font-weight", 600).style("fill", "var(--ink)").text(found.head);
    box.append("text").attr("x", found.width / 2).attr("y", 30).attr("text-anchor", "middle").style("font-size", "10px").style("fill", "var(--dim)").text(fmt.shape(found.type));
    box.append("rect").attr("class", "head").attr("width", found.width).attr("height", TOP + 8).on("click", () => showClass(found.id));
    found.forms.forEach((form, row) => {
      const line = box.append("g").attr("class", `enode${form.used ? " chosen" : ""}${form.own === null && !found.constant ? " barred" : ""}`).attr("transform", `translate(8,${TOP + 12 + row * ROW})`);
      line.append("rect").attr("width", found.width - 16).attr("height", ROW - 4).attr("rx", 4);
      if (form.rule) line.append("rect").attr("width", 5).attr("height", ROW - 4).attr("rx", 2).style("fill", ruleColor(form.rule)).style("stroke", "none");
      line.append("text").attr("x", 12).attr("y", 14).text(formText(form));
      line.append("text").attr("class", "cost").attr("x", found.width - 22).attr("y", 14).attr("text-anchor", "end").text(form.own === null ? "" : money(form.own));
      line.on("click", () => showClass(found.id, form.id));
      tipped(line, () => [expression(form), form.rule ? `made by ${form.rule}` : form.origins.length ? `in the model: ${form.origins.join(", ")}` : "in the model", form.change ? `the whole graph would cost ${delta(form.change)}` : "", form.reason]);
    });
  }
  fit();
}

function fit(whole = false) {
  const { width, height } = svg.node().getBoundingClientRect(), root = classes.get(data.root);
  const all = Math.min((width - 30) / size[0], (height - 60) / size[1]), k = Math.min(1.1, whole ? all : Math.max(all, 0.62));
  const x = size[0] * k <= width - 20 ? (width - size[0] * k) / 2 : width / 2 - root.x * k;
  svg.call(zoom.transform, d3.zoomIdentity.translate(x, 48).scale(k));
}

function showClass(id, form = null) {
  chosenClass = id;
  const found = classes.get(id), side = document.querySelector(".side"), winner = found.forms.find((f) => f.chosen);
  const tried = found.forms.filter((f) => !f.chosen && f.change !== null && !found.constant), next = d3.least(tried, (f) => f.change);
  let why = "No form of it can be used.";
  if (found.constant) why = "Its value is known before the program runs: it is evaluated once and stored, so the form hardly matters.";
  else if (winner && !found.used) why = `The result does not need this value. If it did, ${formText(winner)} would compute it.`;
  else if (winner && next) why = `${formText(winner)} was chosen. With the next best form, ${formText(next)}, the whole graph would cost ${money(Math.abs(next.change))} ${next.change < 0 ? "less, but extraction did not find that combination" : "more"}.`;
  else if (winner) why = found.forms.length > 1 ? `${formText(winner)} was chosen: no other form can be used.` : `${formText(winner)} is the only form that was found.`;
  const body = found.forms.map((f) => {
    const rule = f.rule ? make("button", { class: "link", onclick: () => toggle(f) }, f.rule) : f.origins.length ? f.origins.map((o) => short(o)).join(", ") : "";
    const holder = make("div");
    const toggle = () => {
      const text = (data.rule_texts || {})[f.rule];
      holder.replaceChildren(...(holder.childElementCount || !text ? [] : [make("div", { class: "name" }, `${text.file}, ${text.class}`), make("pre", {}, text.text)]));
    };
    const line = make("tr", { class: f.id === form ? "at" : "" },
      make("td", {}, f.used ? "✓" : ""),
      make("td", { class: "wrap" }, make("div", {}, expression(f)), make("div", { class: "name" }, f.rule ? "by " : f.origins.length ? "in the model: " : "", rule), make("div", { class: "name" }, f.reason), holder),
      make("td", { class: "n" }, money(f.own)), make("td", { class: "n" }, f.used ? "0" : delta(f.change)));
    if (f.id === form) line.style.background = "var(--group)";
    return line;
  });
  const needed = [...new Set(found.forms.flatMap((f) => f.children))].filter((c) => c !== null && classes.has(c));
  const assumed = Object.entries(data.likely_sizes || {}).map(([name, n]) => `${name} = ${n}`).join(", ");
  side.replaceChildren(
    make("h3", {}, className(id)), make("div", { class: "name" }, `${found.type} · ${found.forms.length} form${found.forms.length > 1 ? "s" : ""}${found.hidden > 0 ? `, ${found.hidden} more equal or left out` : ""}${id === data.root ? " · the value asked for" : ""}`),
    make("p", {}, why),
    make("table", {}, make("thead", {}, make("tr", {}, make("th"), make("th", {}, "form"), make("th", { class: "n", title: "predicted cost of the node itself" }, "own"), make("th", { class: "n", title: "change of the whole graph's cost if this form were used" }, "whole"))), make("tbody", {}, ...body)),
    needed.length ? make("h4", {}, "values that its forms need") : "",
    ...needed.map((c) => make("div", {}, make("button", { class: "link", onclick: () => showClass(c) }, className(c)), make("span", { class: "name" }, ` ${fmt.shape(classes.get(c).type)}`))),
    make("h4", {}, "how to read it"),
    make("p", { class: "note" }, "A dashed box is an e-class: a value, with all forms of it that the rules found equal. Each row is a form, with its own predicted cost; its lines lead to the values that it reads. "
      + `Green is what the result computes, pale rows cannot be used in it. “Whole” is what the whole graph would cost more with that form: work that other values share counts once.${assumed ? ` Costs assume ${assumed}.` : ""} Click a row or the head of a box.`),
    id !== data.root ? make("button", { onclick: () => showClass(data.root) }, "back to the value asked for") : "");
  world.selectAll("g.enode").classed("at", false);
  hideTip();
}

document.querySelector("header").append(
  make("h1", {}, data.title, make("small", {}, "equal forms of a value")),
  fact("e-graph", `${fmt.count(data.egraph.nodes)} e-nodes in ${fmt.count(data.egraph.classes)} classes`),
  fact("shown", `${fmt.count(data.classes.length)} classes, ${fmt.count(d3.sum(data.classes, (c) => c.forms.length))} forms`),
  fact("predicted cost of the whole", money(data.cost)),
  make("span", { class: "space" }), themeButton());
addTab("egraph", "Forms", drawEgraph);
startTabs();
document.querySelector("nav").remove();
