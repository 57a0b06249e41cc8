// The charts of a run: cost as an icicle, kernels over time, the roofline, the arena.
"use strict";

function chart(holder, height, margin = { top: 12, right: 16, bottom: 34, left: 58 }) {
  const width = Math.max(400, holder.getBoundingClientRect().width || 900);
  const div = d3.select(holder.appendChild(make("div", { class: "chart" })));
  const svg = div.append("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("height", height);
  return { svg, width, height, inner: { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom } };
}
function axisLabel(svg, x, y, text, anchor = "middle", turn = 0) {
  svg.append("text").attr("class", "dim").attr("text-anchor", anchor).attr("transform", `translate(${x},${y}) rotate(${turn})`).style("fill", "var(--dim)").text(text);
}
// The first text that fits into the room, the last one clipped if need be; empty if hardly a letter fits.
function fitting(room, ...texts) {
  const found = texts.find((text) => textWidth(text, 11) <= room);
  if (found !== undefined) return found;
  const last = texts[texts.length - 1], letters = Math.floor((room / textWidth(last, 11)) * last.length) - 1;
  return letters < 3 ? "" : fmt.clip(last, letters);
}
const keys = (pairs) => make("div", { class: "keys" }, ...pairs.map(([color, text]) => make("span", {}, chip(color), text)));
const note = (text) => make("p", { class: "note" }, text);

// --- cost: boxes of the graph, then operators or kernels ---

function costTree(graph, weight, measured) {
  const groups = graph.groups.map((group) => ({ name: group.name || "all", children: [], group }));
  graph.groups.forEach((group, i) => group.parent >= 0 && groups[group.parent].children.push(groups[i]));
  graph.nodes.forEach((node, i) => {
    const value = weight(node, i);
    if (value > 0) groups[node.group].children.push({ name: measured ? measured(node) : `${fmt.op(node.operator)}`, node: i, value });
  });
  return d3.hierarchy(groups[0]).sum((d) => d.value || 0).sort((a, b) => b.value - a.value);
}

function drawCost(section) {
  const charged = new Map();
  if (graphs.native) {
    kernels.forEach((kernel) => {
      const at = kernel.nodes.map((name) => nodeIndex.native.get(name)).find((i) => i !== undefined);
      if (at !== undefined) charged.set(at, { kernel, value: (charged.has(at) ? charged.get(at).value : 0) + kernel.seconds });
    });
  }
  const choices = [
    ...(charged.size ? [["native", "measured, by kernel", (node, i) => (charged.get(i) || {}).value || 0]] : []),
    ...Object.keys(graphs).map((name) => [name, `predicted, ${TITLES[name]}`, (node) => node.cost || 0]),
  ];
  if (!choices.length) return section.append(note("No graph in this report."));
  const holder = make("div"), tables = make("div");
  const show = (i) => {
    const [name, , weight] = choices[i], graph = graphs[name], measured = i === 0 && charged.size > 0;
    holder.replaceChildren();
    icicle(holder, costTree(graph, weight, measured ? (node) => charged.get(nodeIndex.native.get(node.name)).kernel.kernels.join(" + ") : null), name, measured);
    const rows = graph.nodes.map((node, at) => ({ node, at, value: weight(node, at) })).filter((row) => row.value > 0);
    const total = d3.sum(rows, (row) => row.value);
    const byOp = d3.rollups(rows, (v) => ({ n: v.length, value: d3.sum(v, (r) => r.value) }), (row) => (measured ? charged.get(row.at).kernel.kernels.join(" + ") : fmt.op(row.node.operator)));
    tables.replaceChildren(
      make("div", {}, make("h2", {}, measured ? "By kernel" : "By operator"), sortedTable([
        { head: measured ? "kernel" : "operator", value: ([op]) => op, key: ([op]) => op }, { head: "nodes", n: 1, value: ([, v]) => v.n, key: ([, v]) => v.n },
        { head: "time", n: 1, value: ([, v]) => fmt.seconds(v.value), key: ([, v]) => v.value }, { head: "share", n: 1, value: ([, v]) => fmt.percent(v.value / total) }],
      d3.sort(byOp, ([, v]) => -v.value).slice(0, 25))),
      make("div", {}, make("h2", {}, "Most expensive nodes"), sortedTable([
        { head: "node", wrap: 1, value: (row) => goLink(name, row.at), key: (row) => row.node.name },
        { head: "time", n: 1, value: (row) => fmt.seconds(row.value), key: (row) => row.value }, { head: "share", n: 1, value: (row) => fmt.percent(row.value / total) }],
      d3.sort(rows, (row) => -row.value).slice(0, 25))));
  };
  const select = make("select", { onchange: (e) => show(+e.target.value) }, ...choices.map(([, title], i) => make("option", { value: i }, title)));
  tables.className = "split";
  const sizes = Object.entries(data.likely_sizes || {}).map(([name, size]) => `${name} = ${size}`).join(", ");
  section.append(make("div", { class: "keys" }, make("label", {}, "time: ", select)),
    note(`Width is time; a row is a box inside the box above it. Click a box to look into it, the top row to go back.${sizes ? ` Predictions assume ${sizes}.` : ""}`), holder, tables);
  show(0);
}

function icicle(holder, root, name, measured) {
  const row = 24, depth = root.height + 1, { svg, width } = chart(holder, depth * row + 4, { top: 0, right: 0, bottom: 0, left: 0 });
  d3.partition().size([width, depth * row])(root);
  let focus = root;
  const x = d3.scaleLinear().domain([0, width]).range([0, width]);
  const color = (d) => {
    if (d.data.node === undefined) return "var(--group)";
    const node = graphs[name].nodes[d.data.node];
    return measured ? templateColor(kernels[kernelOf.get(node.name)].kernels[0]) : operatorColor(fmt.op(node.operator));
  };
  const shown = root.descendants().filter((d) => d.x1 - d.x0 > 0.15);
  const cell = svg.selectAll("g").data(shown).join("g");
  cell.append("rect").attr("class", "cell").attr("height", row - 1).attr("rx", 2).attr("fill", (d) => (d.data.node === undefined ? color(d) : `color-mix(in srgb, ${color(d)} 55%, var(--paper))`)).style("stroke", (d) => (d.data.node === undefined ? "var(--line)" : "var(--paper)"));
  cell.append("text").attr("y", 16).style("pointer-events", "none");
  const text = (d) => `${d.data.name} ${fmt.seconds(d.value)}`;
  const place = () => {
    cell.attr("display", (d) => (d.x1 > focus.x0 && d.x0 < focus.x1 ? null : "none"));
    cell.attr("transform", (d) => `translate(${Math.max(0, x(d.x0))},${d.y0})`);
    const size = (d) => Math.max(0.5, Math.min(width, x(d.x1)) - Math.max(0, x(d.x0)) - 1);
    cell.select("rect").attr("width", size);
    cell.select("text").attr("x", 5).text((d) => {
      const room = size(d) - 10;
      if (room < 22) return "";
      return fitting(room, text(d), d.data.name);
    });
  };
  cell.on("click", (event, d) => {
    if (d.data.node !== undefined) {
      openTab("graph");
      return select({ name, node: d.data.node }, true);
    }
    focus = d === focus && d.parent ? d.parent : d;
    x.domain([focus.x0, focus.x1]);
    place();
  });
  tipped(cell, (d) => [d.data.node === undefined ? d.data.name : `${d.data.name}: ${graphs[name].nodes[d.data.node].name}`, `${fmt.seconds(d.value)}, ${fmt.percent(d.value / root.value)}`, d.data.node === undefined ? "" : "click to see it in the graph"]);
  place();
}

// --- kernels over time ---

const firstNode = (kernel) => (graphs.native ? kernel.nodes.map((name) => nodeIndex.native.get(name)).find((i) => i !== undefined) : undefined);

function drawTimeline(section) {
  const spans = data.timeline, profile = data.profile, end = d3.max(spans, (s) => s.start + s.seconds) || 1;
  const lanes = d3.max(spans, (s) => s.thread) + 1, row = 46;
  section.append(note(`One run of ${fmt.seconds(end)} on ${profile.threads} thread${profile.threads > 1 ? "s" : ""}; the median of ${profile.runs} runs is ${fmt.seconds(profile.seconds)}, of which ${fmt.seconds(profile.between)} passed between kernels. Turn the wheel to zoom, drag to move, click a kernel to see its nodes.`));
  const totals = d3.sort(d3.rollups(kernels, (v) => d3.sum(v, (k) => k.seconds), (k) => k.kernels[0]), ([, s]) => -s);
  section.append(keys(totals.slice(0, 14).map(([name, s]) => [templateColor(name), `${name} ${fmt.percent(s / profile.seconds)}`])));
  const { svg, inner, width } = chart(section, lanes * row + 50, { top: 8, right: 16, bottom: 34, left: 70 });
  const base = d3.scaleLinear().domain([0, end]).range([inner.left, inner.right]);
  svg.append("clipPath").attr("id", "lanes").append("rect").attr("x", inner.left).attr("width", inner.right - inner.left).attr("height", inner.bottom);
  for (let i = 0; i < lanes; i++) axisLabel(svg, inner.left - 8, inner.top + i * row + 22, `thread ${i}`, "end");
  const axis = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${inner.bottom})`);
  const cell = svg.append("g").attr("clip-path", "url(#lanes)").selectAll("g").data(spans).join("g");
  cell.append("rect").attr("class", "cell").attr("y", (s) => inner.top + s.thread * row).attr("height", row - 10).attr("rx", 2).attr("fill", (s) => templateColor(kernels[s.kernel].kernels[0]));
  cell.append("text").attr("y", (s) => inner.top + s.thread * row + 22).style("fill", "#fff").style("pointer-events", "none");
  const place = (x) => {
    const left = (s) => x(s.start), size = (s) => Math.max(0.6, x(s.start + s.seconds) - x(s.start));
    cell.attr("display", (s) => (left(s) + size(s) < inner.left || left(s) > inner.right ? "none" : null));
    cell.select("rect").attr("x", left).attr("width", size);
    cell.select("text").attr("x", (s) => Math.max(inner.left, left(s)) + 4).text((s) => (size(s) > textWidth(s.template, 11) + 8 ? s.template : ""));
    axis.call(d3.axisBottom(x).ticks(8).tickFormat((t) => fmt.seconds(t)));
  };
  tipped(cell, (s) => {
    const kernel = kernels[s.kernel];
    return [`${s.template}: ${fmt.seconds(s.seconds)}`, kernel.operators.map(fmt.op).join(", "), kernel.nodes[0] || "", kernel.shape ? `result ${kernel.shape.join("×") || "scalar"}` : "", `bound by ${kernel.bound}`];
  });
  cell.on("click", (event, s) => goTo(kernels[s.kernel]));
  svg.call(d3.zoom().scaleExtent([1, 400]).translateExtent([[0, 0], [width, 10]]).extent([[0, 0], [width, 10]]).on("zoom", ({ transform }) => place(transform.rescaleX(base))));
  place(base);
  const total = d3.sum(kernels, (k) => k.seconds) + profile.between;
  const rate = (amount, seconds) => (amount && seconds ? (amount / seconds / 1e9).toFixed(1) : ""); // a branch may not run
  section.append(make("h2", {}, "Kernels"), sortedTable([
    { head: "kernel", value: (k) => make("span", {}, chip(templateColor(k.kernels[0])), k.kernels.join(" + ")), key: (k) => k.kernels.join(" + ") },
    { head: "operators", wrap: 1, value: (k) => k.operators.map(fmt.op).join(", "), key: (k) => k.operators.join() },
    { head: "first node", wrap: 1, value: (k) => (firstNode(k) === undefined ? k.nodes[0] || "" : goLink("native", firstNode(k), k.nodes[0])), key: (k) => k.nodes[0] || "" },
    { head: "result", value: (k) => (k.shape ? k.shape.join("×") || "scalar" : "") },
    { head: "time", n: 1, value: (k) => fmt.seconds(k.seconds), key: (k) => k.seconds },
    { head: "share", n: 1, value: (k) => fmt.percent(k.seconds / total), key: (k) => k.seconds },
    { head: "GFLOP/s", n: 1, value: (k) => rate(k.flops, k.seconds), key: (k) => k.flops / k.seconds },
    { head: "GB/s", n: 1, value: (k) => rate(k.bytes, k.seconds), key: (k) => k.bytes / k.seconds },
    { head: "of the limit", n: 1, value: (k) => fmt.percent(Math.max(k.least_compute, k.least_memory) / k.seconds), key: (k) => Math.max(k.least_compute, k.least_memory) / k.seconds },
    { head: "bound", value: (k) => k.bound, key: (k) => k.bound },
  ], kernels, { first: -1 }));
}

function goTo(kernel) {
  const node = firstNode(kernel);
  if (node === undefined) return;
  openTab("graph");
  select({ name: "native", node }, true);
}

// --- the roofline ---

function drawRoofline(section) {
  const { machine, threads } = data.profile;
  const levels = ["L1", "L2", "L3", "DRAM"], shared = (level) => (level < 2 ? threads : 1 + 0.5 * (threads - 1));
  const peak = machine.flops * threads, rates = machine.bandwidths.map((rate, level) => rate * shared(level));
  const dots = kernels.filter((k) => k.flops > 0 && k.bytes > 0 && k.seconds > 0).map((k) => ({ k, x: k.flops / k.bytes, y: k.flops / k.seconds }));
  const left = kernels.filter((k) => !(k.flops > 0 && k.bytes > 0));
  section.append(note(`Each dot is a kernel: its arithmetic per byte, and the rate that it reached; its area is its share of the run. A kernel cannot be above the peak of ${threads} thread${threads > 1 ? "s" : ""}, nor above the line of the memory that holds its data. `
    + `The limits are ${machine.source === "calibrated" ? "measured on this machine" : "assumed for this kind of machine; rewrite calibrate measures them"}. Algorithms that save multiplications, such as Winograd's, and products of narrower numbers may pass the peak.`
    + (left.length ? ` Not shown: ${left.length} kernel${left.length > 1 ? "s" : ""} without arithmetic, ${fmt.seconds(d3.sum(left, (k) => k.seconds))} in all.` : "")));
  if (!dots.length) return section.append(note("No kernel computes with numbers."));
  const boundColor = { compute: PALETTE[0], L1: PALETTE[3], L2: PALETTE[4], L3: PALETTE[1], DRAM: PALETTE[2], launch: "#8795a1", python: PALETTE[5] };
  section.append(keys([...new Set(dots.map((d) => d.k.bound))].sort().map((bound) => [boundColor[bound], `bound by ${bound}`])));
  const { svg, inner } = chart(section, Math.max(380, Math.min(620, innerHeight - 290)), { top: 14, right: 90, bottom: 44, left: 70 });
  const xs = d3.extent(dots, (d) => d.x), ys = d3.extent(dots, (d) => d.y);
  const x = d3.scaleLog().domain([Math.min(xs[0] / 2, 0.1), Math.max(xs[1] * 2, (peak / rates[3]) * 2)]).range([inner.left, inner.right]);
  const y = d3.scaleLog().domain([Math.max(Math.min(ys[0] / 2, peak / 1000), ys[0] / 2), Math.max(peak, ys[1]) * 1.8]).range([inner.bottom, inner.top]).clamp(true);
  const si = (v) => d3.format(".3~s")(v).replace("G", " G").replace("M", " M").replace("k", " k").replace("T", " T");
  svg.append("g").attr("class", "axis").attr("transform", `translate(0,${inner.bottom})`).call(d3.axisBottom(x).ticks(6, "~g"));
  svg.append("g").attr("class", "axis").attr("transform", `translate(${inner.left},0)`).call(d3.axisLeft(y).ticks(6, "~s").tickFormat((v) => (/^[125]/.test(v.toExponential()) ? si(v) : "")));
  axisLabel(svg, (inner.left + inner.right) / 2, inner.bottom + 36, "arithmetic per byte of traffic (flop/byte)");
  axisLabel(svg, 16, (inner.top + inner.bottom) / 2, "flop/s", "middle", -90);
  const line = d3.line();
  svg.append("path").attr("class", "roof").attr("d", line([[x(peak / rates[0]), y(peak)], [inner.right, y(peak)]]));
  axisLabel(svg, inner.right + 6, y(peak) + 4, `peak ${si(peak)}`, "start");
  const placed = [];
  rates.forEach((rate, level) => {
    const [low, high] = x.domain(), from = Math.max(low, y.domain()[0] / rate), to = Math.min(high, peak / rate);
    if (to <= from) return;
    svg.append("path").attr("class", "roof memory").attr("d", line([[x(from), y(rate * from)], [x(to), y(rate * to)]]));
    const start = y(rate * from), shift = placed.filter((other) => Math.abs(other - start) < 14).length * 110; // of equal labels
    const at = x.invert(x(from * 1.12) + shift), angle = -Math.atan2(y(rate * from) - y(rate * to), x(to) - x(from)) * (180 / Math.PI);
    svg.append("text").attr("transform", `translate(${x(at)},${y(rate * at) - 4}) rotate(${angle})`).style("fill", "var(--dim)").text(`${levels[level]} ${si(rate)}B/s`);
    placed.push(start);
  });
  const total = d3.sum(kernels, (k) => k.seconds), r = d3.scaleSqrt().domain([0, d3.max(dots, (d) => d.k.seconds)]).range([2.5, 22]);
  const dot = svg.append("g").selectAll("circle").data(d3.sort(dots, (d) => -d.k.seconds)).join("circle").attr("class", "dot")
    .attr("cx", (d) => x(d.x)).attr("cy", (d) => y(d.y)).attr("r", (d) => r(d.k.seconds)).attr("fill", (d) => boundColor[d.k.bound]);
  tipped(dot, ({ k, x: intensity, y: rate }) => [`${k.kernels.join(" + ")}: ${k.operators.map(fmt.op).join(", ")}`, k.nodes[0] || "", `${si(rate)}flop/s at ${intensity.toPrecision(3)} flop/byte`,
    `${fmt.seconds(k.seconds)}, ${fmt.percent(k.seconds / total)} of the kernels`, `${fmt.percent(Math.max(k.least_compute, k.least_memory) / k.seconds)} of the limit, bound by ${k.bound}`]);
  dot.on("click", (event, d) => goTo(d.k));
}

// --- the arena ---

// Ticks at multiples of a power of two, about six.
function byteTicks(size) {
  const step = 2 ** Math.max(0, Math.round(Math.log2(size / 6)));
  return d3.range(0, size + 1, step);
}

function drawMemory(section) {
  const { buffers, size, bound, steps, weights } = data.memory;
  section.append(note(`The arena holds the values between kernels: ${fmt.bytes(size)}, at least ${fmt.bytes(bound)} are in use at once. Weights take ${fmt.bytes(weights)} beside it. Each rectangle is a buffer: from the step that writes it to the last one that reads it, at its offset. Inputs and outputs are in memory of the caller.`));
  if (!buffers.length) return section.append(note("This program needs no arena."));
  const { svg, inner } = chart(section, Math.max(320, Math.min(600, innerHeight - 260)), { top: 14, right: 20, bottom: 44, left: 78 });
  const x = d3.scaleLinear().domain([0, steps.length]).range([inner.left, inner.right]);
  const y = d3.scaleLinear().domain([0, size]).range([inner.bottom, inner.top]);
  svg.append("g").attr("class", "axis").attr("transform", `translate(0,${inner.bottom})`).call(d3.axisBottom(x).ticks(10));
  svg.append("g").attr("class", "axis").attr("transform", `translate(${inner.left},0)`).call(d3.axisLeft(y).tickValues(byteTicks(size)).tickFormat((n) => (n ? fmt.bytes(n).replace(".0 ", " ") : "0")));
  axisLabel(svg, (inner.left + inner.right) / 2, inner.bottom + 36, "step of the program");
  const tint = d3.scaleSequential([0, 1], d3.interpolateCool), hue = (name) => { let h = 7; for (const c of name) h = (h * 31 + c.charCodeAt(0)) % 997; return tint(h / 997); };
  const cell = svg.append("g").selectAll("g").data(buffers).join("g");
  const left = (b) => x(b.first), wide = (b) => Math.max(1.5, x(b.last + 1) - x(b.first) - 0.5), tall = (b) => Math.max(0.8, y(b.offset) - y(b.offset + b.size));
  cell.append("rect").attr("class", "cell").attr("x", left).attr("y", (b) => y(b.offset + b.size)).attr("width", wide).attr("height", tall).attr("fill", (b) => hue(b.name)).attr("fill-opacity", 0.75);
  cell.filter((b) => tall(b) > 13 && wide(b) > 44).append("text").attr("x", (b) => left(b) + 4).attr("y", (b) => y(b.offset + b.size) + 12).style("fill", "#0b1218").style("pointer-events", "none").text((b) => {
    return fitting(wide(b) - 8, `${b.name} ${fmt.bytes(b.size)}`, b.name);
  });
  svg.append("path").attr("class", "limit").attr("d", `M${inner.left},${y(bound)}H${inner.right}`);
  axisLabel(svg, inner.right - 4, y(bound) - 4, bound < size ? `least possible ${fmt.bytes(bound)}` : "the least possible", "end");
  tipped(cell, (b) => [b.name, `${fmt.bytes(b.size)} at ${fmt.bytes(b.offset)}`, `written by step ${b.first}: ${steps[b.first] || ""}`, `last read by step ${b.last}: ${steps[b.last] || "after the last"}`]);
  section.append(make("h2", {}, "Largest buffers"), sortedTable([
    { head: "value", wrap: 1, value: (b) => b.name, key: (b) => b.name }, { head: "size", n: 1, value: (b) => fmt.bytes(b.size), key: (b) => b.size },
    { head: "offset", n: 1, value: (b) => fmt.bytes(b.offset), key: (b) => b.offset }, { head: "steps", n: 1, value: (b) => `${b.first}–${b.last}`, key: (b) => b.first },
  ], d3.sort(buffers, (b) => -b.size).slice(0, 30)));
}
