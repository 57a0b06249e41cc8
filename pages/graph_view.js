// A graph as nested boxes. Each box is laid out on its own (dagre) when it is first opened, with a port for every value
// that enters or leaves it, so that a change recomputes only the boxes around it.
"use strict";

const NODE_HEIGHT = 36, HEAD = 30, PAD = 14, PORT = 8;
const MOST_LINES = 4; // a value that enters a box and is read by more boxes inside is written beside them

class GraphView {
  constructor(pane, graph, { colors, onSelect, onToggle }) {
    Object.assign(this, { graph, colors, onSelect, onToggle });
    this.pane = d3.select(pane);
    this.svg = this.pane.append("svg").attr("tabindex", 0).attr("aria-label", "graph");
    this.world = this.svg.append("g");
    this.zoom = d3.zoom().scaleExtent([0.03, 4]).on("zoom", ({ transform }) => {
      this.world.attr("transform", transform);
      this.svg.classed("far", transform.k < 0.42);
    });
    this.svg.call(this.zoom).on("dblclick.zoom", null).on("click", () => onSelect(null));
    this.index();
    this.open = new Set([0]);
    this.openSome();
    this.related = new Set();
    this.selected = null;
    this.highlight = null;
  }

  // --- what is in which box ---

  index() {
    const { nodes, groups, inputs, outputs, types } = this.graph;
    this.boxes = groups.map((group, i) => ({ id: `g${i}`, group: i, name: group.name, kind: group.kind, parent: group.parent, children: [], count: 0 }));
    this.leaves = nodes.map((node, i) => ({ id: `n${i}`, node: i, parent: node.group, data: node }));
    this.alike = d3.rollup(groups.slice(1), (found) => found.length, (group) => group.kind);
    const placed = new Set();
    this.leaves.forEach((leaf) => {
      let child = leaf;
      for (let at = leaf.parent; at >= 0; at = this.boxes[at].parent) {
        this.boxes[at].count += 1;
        if (!placed.has(child.id)) {
          placed.add(child.id);
          this.boxes[at].children.push(child);
        }
        child = this.boxes[at];
      }
    });
    this.makers = new Map();
    this.leaves.forEach((leaf) => leaf.data.outputs.forEach((value) => value && this.makers.set(value, leaf)));
    this.ports = [];
    const port = (values, direction) => {
      const many = values.length > 6;
      for (const found of many ? [values] : values.map((value) => [value])) {
        const label = many ? `${found.length} ${direction}s` : fmt.clip(found[0], 30);
        const leaf = { id: `${direction}${this.ports.length}`, port: direction, parent: 0, label, sub: many ? "" : fmt.shape(types[found[0]]), values: found };
        this.ports.push(leaf);
        this.boxes[0].children[direction === "input" ? "unshift" : "push"](leaf);
        if (direction === "input") found.forEach((value) => this.makers.has(value) || this.makers.set(value, leaf));
      }
    };
    const read = new Set(nodes.flatMap((node) => node.inputs));
    port(inputs.filter((value) => read.has(value) || outputs.includes(value)), "input");
    port(outputs, "output");
    this.edges = [];
    const link = (from, to, value) => from && from !== to && this.edges.push({ from, to, value });
    this.leaves.forEach((leaf) => new Set(leaf.data.inputs).forEach((value) => value && link(this.makers.get(value), leaf, value)));
    this.ports.filter((leaf) => leaf.port === "output").forEach((leaf) => leaf.values.forEach((value) => link(this.makers.get(value), leaf, value)));
    this.path = (leaf) => {
      const found = [];
      for (let at = leaf.parent; at >= 0; at = this.boxes[at].parent) found.unshift(at);
      return found;
    };
    // Inside each box: its edges, and the ports of values that cross its border.
    this.boxes.forEach((box) => Object.assign(box, { inner: [], enter: new Map(), leave: new Map() }));
    for (const edge of this.edges) {
      const a = [...this.path(edge.from).map((i) => this.boxes[i]), edge.from], b = [...this.path(edge.to).map((i) => this.boxes[i]), edge.to];
      let same = 0;
      while (a[same + 1] === b[same + 1] && same + 2 < Math.min(a.length, b.length)) same += 1;
      a[same].inner.push({ from: a[same + 1], to: b[same + 1], edge });
      for (let i = same + 1; i < a.length - 1; i++) this.cross(a[i].leave, edge.value, a[i + 1]);
      for (let i = same + 1; i < b.length - 1; i++) this.cross(b[i].enter, edge.value, b[i + 1]);
    }
  }

  cross(ports, value, child) {
    if (!ports.has(value)) ports.set(value, new Set());
    ports.get(value).add(child);
  }

  // Opens boxes from the outside in while the picture stays small.
  openSome() {
    let shown = this.boxes[0].children.length;
    const pending = [0];
    while (pending.length) {
      for (const child of this.boxes[pending.shift()].children) {
        if (child.group === undefined || shown + child.children.length - 1 > 30) continue;
        this.open.add(child.group);
        shown += child.children.length - 1;
        pending.push(child.group);
      }
    }
  }

  // Opens the boxes that another view of the same model has open.
  openLike(view) {
    const keys = new Set([...view.open].map((group) => view.key(group)));
    this.boxes.forEach((box) => keys.has(this.key(box.group)) && this.open.add(box.group));
  }

  key(group) {
    const found = [];
    for (let at = group; at > 0; at = this.boxes[at].parent) found.unshift(this.boxes[at].name);
    return found.join("\0");
  }

  // --- layout ---

  size(box) {
    if (box.port) {
      return [Math.max(48, textWidth(box.label, 11) + 20, textWidth(box.sub, 10) + 20), box.sub ? 34 : 24];
    }
    if (box.node !== undefined) {
      const sub = fmt.clip(fmt.shape(this.graph.types[box.data.outputs.find(Boolean)]), 34);
      Object.assign(box, { label: fmt.clip(fmt.op(box.data.operator), 34), sub });
      return [Math.max(62, textWidth(box.label) + 24, textWidth(sub, 10) + 24), sub ? NODE_HEIGHT : 26];
    }
    const alike = this.alike.get(box.kind);
    box.label = fmt.clip(box.name, 36);
    box.sub = `${fmt.count(box.count)} nodes${alike > 1 ? ` · 1 of ${alike} alike` : ""}`;
    return [Math.max(110, textWidth(box.label, 12, "600") + 48, textWidth(box.sub, 10) + 30), 46];
  }

  layout(group) {
    const box = this.boxes[group];
    if (box.done) return;
    const g = new dagre.graphlib.Graph({ multigraph: false });
    const many = box.children.length > 45;
    g.setGraph({ rankdir: "TB", nodesep: 18, edgesep: 10, ranksep: 22, ranker: many ? "longest-path" : "network-simplex" });
    g.setDefaultEdgeLabel(() => ({}));
    for (const child of box.children) {
      const opened = child.group !== undefined && this.open.has(child.group);
      if (opened) this.layout(child.group);
      else [child.width, child.height] = this.size(child);
      g.setNode(child.id, { width: child.width, height: child.height });
    }
    const pairs = new Map();
    for (const { from, to, edge } of box.inner) {
      const id = `${from.id}|${to.id}`;
      if (!pairs.has(id)) pairs.set(id, { from, to, edges: [] });
      pairs.get(id).edges.push(edge);
    }
    for (const pair of pairs.values()) g.setEdge(pair.from.id, pair.to.id);
    const inside = group > 0;
    const tagged = (name, children) => name === "enter" && children.size > MOST_LINES;
    box.tags = [];
    const side = (ports, name) => inside && [...ports].forEach(([value, children], i) => {
      const id = `${name}${i}`;
      g.setNode(id, { width: PORT, height: 1 });
      if (!tagged(name, children)) children.forEach((child) => (name === "enter" ? g.setEdge(id, child.id) : g.setEdge(child.id, id)));
    });
    side(box.enter, "enter");
    side(box.leave, "leave");
    dagre.layout(g);
    const { width, height } = g.graph();
    const head = inside ? HEAD : 0;
    const named = inside ? [...box.enter].filter(([, children]) => tagged("enter", children)).map(([value]) => textWidth(this.tag(value), 10)) : [];
    const beside = named.length ? Math.max(...named) + 8 : 0; // room for the names of values whose edges are not drawn
    box.width = Math.max((isFinite(width) ? width : 0) + 2 * PAD + beside, inside ? textWidth(box.name, 12, "600") + 60 : 0);
    box.height = (isFinite(height) ? height : 0) + head + PAD;
    const left = (box.width + beside - (isFinite(width) ? width : 0)) / 2;
    const moved = (p) => ({ x: p.x + left, y: p.y + head });
    for (const child of box.children) Object.assign(child, moved(g.node(child.id)));
    box.portX = { enter: new Map(), leave: new Map() };
    const bend = (from, to) => (g.hasEdge(from, to) ? g.edge(from, to).points : []).slice(1, -1).map(moved);
    box.routes = [];
    if (inside) {
      for (const name of ["enter", "leave"]) {
        [...box[name]].forEach(([value, children], i) => {
          const x = g.node(`${name}${i}`).x + left;
          box.portX[name].set(value, x);
          if (tagged(name, children)) {
            children.forEach((child) => box.tags.push({ child, value }));
            box.tags.push({ x, value });
            return;
          }
          children.forEach((child) => {
            const border = { x, y: name === "enter" ? 0 : box.height };
            const at = this.end(child, value, name === "enter" ? "enter" : "leave");
            const ids = name === "enter" ? [`enter${i}`, child.id] : [child.id, `leave${i}`];
            const middle = bend(...ids);
            const points = name === "enter" ? [border, ...middle, at] : [at, ...middle, border];
            box.routes.push({ points, values: [value], last: name === "enter" && this.isClosed(child) });
          });
        });
      }
    }
    for (const { from, to, edges } of pairs.values()) {
      const middle = bend(from.id, to.id);
      const back = to.y < from.y;
      const ends = d3.groups(edges, (edge) => `${this.end(from, edge.value, "leave").x}|${this.end(to, edge.value, "enter").x}`);
      for (const [, same] of ends) {
        const a = this.end(from, same[0].value, "leave"), b = this.end(to, same[0].value, "enter");
        box.routes.push({ points: back ? [a, b] : [a, ...middle, b], values: [...new Set(same.map((edge) => edge.value))], last: this.isClosed(to) });
      }
    }
    box.done = true;
  }

  // What stands for the edges of a value that many boxes read: its producer.
  tag(value) {
    const maker = this.makers.get(value);
    return `${fmt.clip(maker && maker.data ? fmt.op(maker.data.operator) : value, 18)} →`;
  }

  isClosed(child) {
    return child.group === undefined || !this.open.has(child.group);
  }

  // The point at which an edge of a value meets the border of a box.
  end(child, value, side) {
    const edge = side === "enter" ? -child.height / 2 : child.height / 2;
    const x = this.isClosed(child) ? undefined : this.boxes[child.group].portX[side].get(value);
    return { x: x === undefined ? child.x : child.x - child.width / 2 + x, y: child.y + edge };
  }

  // --- drawing ---

  draw() {
    this.layout(0);
    this.world.selectAll("*").remove();
    this.drawn = new Map();
    this.drawBox(this.boxes[0], this.world);
    this.mark();
  }

  drawBox(box, layer) {
    const line = d3.line((p) => p.x, (p) => p.y).curve(d3.curveMonotoneY);
    const straight = d3.line((p) => p.x, (p) => p.y).curve(d3.curveBasis);
    const wires = layer.append("g");
    for (const child of box.children) this.drawChild(child, layer);
    const heights = new Map();
    for (const tag of box.tags || []) {
      const number = heights.get(tag.child) || 0;
      heights.set(tag.child, number + 1);
      const [x, y] = tag.child ? [tag.child.x - tag.child.width / 2 - 5, tag.child.y - tag.child.height / 2 + 10 + 11 * number] : [tag.x, 24];
      const mark = wires.append("text").attr("class", "tag").attr("x", x).attr("y", y).attr("text-anchor", tag.child ? "end" : "middle").text(this.tag(tag.value));
      tipped(mark, () => [tag.value, this.graph.types[tag.value] || "?", "read by many boxes here, so its edges are not drawn"]);
    }
    for (const route of box.routes) {
      const falls = route.points.every((p, i) => !i || p.y >= route.points[i - 1].y);
      const path = wires.append("path").datum(route).attr("class", `edge${route.values.length > 1 ? " many" : ""}`)
        .attr("d", (falls ? line : straight)(route.points));
      tipped(path, (d) => [d.values.length > 1 ? `${d.values.length} values` : d.values[0], ...d.values.slice(0, 8).map((v) => (d.values.length > 1 ? `${v}: ` : "") + (this.graph.types[v] || "")), d.values.length > 8 ? "…" : ""]);
      const end = route.points[route.points.length - 1];
      if (route.last) wires.append("path").attr("class", "arrow").attr("d", `M${end.x - 3.5},${end.y - 6}h7l-3.5,6z`);
    }
  }

  drawChild(child, layer) {
    const x = child.x - child.width / 2, y = child.y - child.height / 2, w = child.width, h = child.height;
    const g = layer.append("g").attr("transform", `translate(${x},${y})`);
    this.drawn.set(child.id, g);
    const text = (content, ty, kind, tx = w / 2, anchor = "middle") => g.append("text").attr("x", tx).attr("y", ty).attr("text-anchor", anchor).attr("class", kind).text(content);
    if (child.port) {
      g.attr("class", "port");
      g.append("rect").attr("width", w).attr("height", h).attr("rx", 11);
      text(child.label, child.sub ? 14 : 16, "");
      if (child.sub) text(child.sub, 27, "sub");
      tipped(g, () => [`${child.port}${child.values.length > 1 ? "s" : ""}`, ...child.values.slice(0, 12).map((v) => `${v}: ${this.graph.types[v] || "?"}`)]);
      return;
    }
    if (child.node !== undefined) {
      g.attr("class", "node");
      g.append("rect").attr("class", "body").attr("width", w).attr("height", h).attr("rx", 5);
      g.append("g").attr("class", "strip");
      text(child.label, child.sub ? 15 : 17, "", w / 2 + 3);
      if (child.sub) text(child.sub, 28, "sub", w / 2 + 3);
      g.on("click", (event) => { event.stopPropagation(); this.onSelect(child.node); });
      tipped(g, () => [child.data.operator, child.data.name, child.data.rules.length ? `made by ${child.data.rules.join(", ")}` : "as in the model", `predicted ${fmt.seconds(child.data.cost)}`]);
      return;
    }
    const opened = this.open.has(child.group);
    g.attr("class", `group${opened ? "" : " closed"}`);
    g.append("rect").attr("class", "box").attr("width", w).attr("height", h).attr("rx", 7);
    const head = g.append("g").attr("class", "head");
    head.append("rect").attr("width", w).attr("height", opened ? HEAD - 8 : h).attr("fill", "transparent");
    head.on("click", (event) => { event.stopPropagation(); hideTip(); this.toggle(child.group); });
    tipped(head, () => [child.name, child.sub || `${child.count} nodes`, ...this.summary(child), opened ? "click to close" : "click to open"]);
    text(opened ? "−" : "+", 17, "sign", 9, "start");
    if (opened) {
      text(fmt.clip(child.name, Math.max(8, Math.floor((w - 40) / 7.2))), 16, "", 22, "start");
      this.drawBox(this.boxes[child.group], g);
      return;
    }
    text(child.label, 17, "", w / 2 + 4);
    text(child.sub, 31, "sub");
    g.append("g").attr("class", "strip");
  }

  inside(box) {
    const found = [], pending = [...box.children];
    while (pending.length) {
      const child = pending.pop();
      if (child.node !== undefined) found.push(child);
      else if (child.group !== undefined) pending.push(...child.children);
    }
    return found;
  }

  summary(box) {
    const counts = d3.rollups(this.inside(box), (found) => found.length, (leaf) => fmt.op(leaf.data.operator));
    return [d3.sort(counts, ([, n]) => -n).slice(0, 6).map(([op, n]) => (n > 1 ? `${op} ×${n}` : op)).join(", ")];
  }

  // Colors, the selection, and what is related to it.
  mark() {
    for (const [id, g] of this.drawn) {
      const leaf = id.startsWith("n") ? this.leaves[+id.slice(1)] : null, box = id.startsWith("g") ? this.boxes[+id.slice(1)] : null;
      if (!leaf && !box) continue;
      const within = leaf ? [leaf] : this.open.has(box.group) ? [] : this.inside(box);
      g.classed("selected", leaf !== null && leaf.node === this.selected);
      g.classed("related", within.some((l) => this.related.has(l.node)) || (box && within.some((l) => l.node === this.selected)));
      g.classed("faded", this.highlight !== null && within.length > 0 && !within.some((l) => this.highlight(l.data)));
      if (leaf) {
        const colors = this.colors(leaf.data);
        g.select("rect.body").attr("fill", colors.length ? `color-mix(in srgb, ${colors[0]} 24%, var(--paper))` : "var(--paper)").attr("stroke", colors[0] || "var(--edge)");
        const strip = g.select("g.strip");
        strip.selectAll("*").remove();
        colors.slice(0, 6).forEach((color, i, all) => strip.append("rect").attr("x", 0).attr("y", 3 + (i * (leaf.height - 6)) / all.length)
          .attr("width", 5).attr("height", (leaf.height - 6) / all.length).attr("fill", color));
      } else if (within.length) {
        const counts = d3.rollups(within, (found) => found.length, (l) => this.colors(l.data)[0] || NONE);
        const strip = g.select("g.strip"), width = box.width - 16;
        strip.selectAll("*").remove();
        let at = 8;
        for (const [color, n] of d3.sort(counts, ([color, m]) => (color === NONE ? 1e9 : -m))) {
          strip.append("rect").attr("x", at).attr("y", box.height - 9).attr("height", 5).attr("width", (width * n) / within.length).attr("fill", color);
          at += (width * n) / within.length;
        }
      }
    }
    const chosen = this.selected === null ? null : this.leaves[this.selected];
    const values = new Set(chosen ? [...chosen.data.inputs, ...chosen.data.outputs].filter(Boolean) : []);
    this.world.selectAll("path.edge").classed("on", (d) => d.values.some((value) => values.has(value)));
  }

  // --- opening, closing, moving ---

  toggle(group, told = true) {
    const opens = !this.open.has(group);
    const before = this.place(this.boxes[group]);
    opens ? this.open.add(group) : this.open.delete(group);
    this.forget(group);
    this.draw();
    const after = this.place(this.boxes[group]);
    if (before && after) {
      const t = d3.zoomTransform(this.svg.node());
      this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(t.x + (before.x - after.x) * t.k, t.y + (before.y - after.y) * t.k).scale(t.k));
    }
    if (told) this.onToggle(this.key(group), opens);
  }

  follow(key, opens) {
    const found = this.boxes.find((box) => box.group > 0 && this.key(box.group) === key);
    if (found && this.open.has(found.group) !== opens && this.path(found).every((at) => this.open.has(at))) this.toggle(found.group, false);
  }

  forget(group) {
    for (let at = group; at >= 0; at = this.boxes[at].parent) this.boxes[at].done = false;
  }

  setAll(opens) {
    if (opens !== null) this.open = new Set(opens ? this.boxes.map((box) => box.group) : [0]);
    this.boxes.forEach((box) => (box.done = false));
    this.draw();
    this.fit();
  }

  // The top middle of a box in the picture; null if a box around it is closed.
  place(box) {
    if (this.path(box).some((at) => !this.open.has(at))) return null;
    let x = box.x || 0, y = (box.y || 0) - (box.height || 0) / 2;
    for (let at = box.parent; at > 0; at = this.boxes[at].parent) {
      x += this.boxes[at].x - this.boxes[at].width / 2;
      y += this.boxes[at].y - this.boxes[at].height / 2;
    }
    return { x, y };
  }

  reveal(node, scale = null) {
    const leaf = this.leaves[node], closed = this.path(leaf).filter((at) => !this.open.has(at));
    if (closed.length) {
      closed.forEach((at) => { this.open.add(at); this.forget(at); });
      this.draw();
    }
    this.center(this.place(leaf), scale);
  }

  // Shows where a node is without opening boxes: centers its outermost closed box.
  approach(node) {
    const leaf = this.leaves[node], closed = this.path(leaf).find((at) => !this.open.has(at));
    this.center(this.place(closed === undefined ? leaf : this.boxes[closed]));
  }

  center(at, scale = null) {
    const { width, height } = this.svg.node().getBoundingClientRect();
    const k = scale || Math.max(0.7, Math.min(1.1, d3.zoomTransform(this.svg.node()).k));
    this.svg.transition().duration(350).call(this.zoom.transform, d3.zoomIdentity.translate(width / 2 - at.x * k, height / 2 - (at.y + 18) * k).scale(k));
  }

  // The whole picture if it can be read so, else its beginning.
  fit(whole = false) {
    const { width, height } = this.svg.node().getBoundingClientRect();
    const box = this.boxes[0], room = width - 24, top = 44;
    const all = Math.min(room / box.width, (height - top - 16) / box.height);
    const k = Math.min(1.15, whole ? all : Math.max(all, Math.min(0.8, room / box.width), 0.3));
    const centered = box.width * k <= room;
    const x = centered ? (width - box.width * k) / 2 : this.beginning(width, k);
    this.svg.call(this.zoom.transform, d3.zoomIdentity.translate(x, top).scale(k));
  }

  beginning(width, k) {
    const first = d3.least(this.boxes[0].children, (child) => child.y - child.height / 2);
    return width / 2 - (first ? first.x : 0) * k;
  }
}
