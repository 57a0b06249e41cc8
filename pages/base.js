// What all pages share: the data, formats, colors, the tooltip, tabs, tables. Text is only ever set as text, never as HTML.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

const fmt = {
  count: d3.format(","),
  seconds(s) {
    if (s === null || s === undefined || !isFinite(s)) return "–";
    if (s === 0) return "0";
    const [scale, unit] = s < 1e-6 ? [1e9, "ns"] : s < 1e-3 ? [1e6, "µs"] : s < 1 ? [1e3, "ms"] : [1, "s"];
    const x = s * scale;
    return `${x >= 100 ? d3.format(",.0f")(x) : x >= 10 ? x.toFixed(1) : x.toFixed(2)} ${unit}`;
  },
  bytes(n) {
    for (const unit of ["B", "KiB", "MiB"]) {
      if (n < 1024) return unit === "B" ? `${n} B` : `${n.toFixed(1)} ${unit}`;
      n /= 1024;
    }
    return `${n.toFixed(1)} GiB`;
  },
  percent: (x) => (isFinite(x) ? `${(100 * x).toFixed(Math.abs(x) < 0.0995 ? 1 : 0)} %` : "–"),
  error: (x) => (x === null || x === undefined ? "no number" : x === 0 ? "0" : x.toExponential(1)),
  change(before, after) {
    if (!before) return "";
    const x = (after - before) / before;
    return `${x > 0 ? "+" : x < 0 ? "−" : "±"}${Math.abs(100 * x).toFixed(Math.abs(x) < 0.0995 ? 1 : 0)} %`;
  },
  clip: (text, most) => (text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`),
  shape(type) {
    if (/\], /.test(type)) return type.split(/(?<=\]), /).map(fmt.shape).join(", "); // of several outputs
    const found = /^(\w+)\[(.*)\]$/.exec(type || "");
    if (!found) return type || "";
    const dims = found[2].split(", ").join("×");
    return `${dims || "scalar"}${found[1] === "f32" ? "" : ` ${found[1]}`}`;
  },
  op: (name) => name.replace(/^rewrite\./, ""),
};

const NONE = "var(--same)";
const PALETTE = [
  "#4269d0", "#e08a00", "#d6455d", "#2f9e8f", "#7fae2e", "#a463f2", "#e377c2", "#9c6b4e", "#17becf", "#c9b000", "#5b8c5a",
  "#8c6bb1", "#f28e2b", "#1f77b4", "#b2526b", "#00a07a",
];
function palette(names) {
  const colors = new Map(names.map((name, i) => [name, PALETTE[i % PALETTE.length]]));
  return (name) => colors.get(name) || "#8795a1";
}

// Elements of the document: make("td", {class: "n"}, "text", otherElement, …).
function make(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) found.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) found.setAttribute(key, value === true ? "" : value);
  }
  found.append(...children.filter((child) => child !== null && child !== undefined));
  return found;
}
const chip = (color) => {
  const found = make("span", { class: "chip" });
  found.style.background = color;
  return found;
};

const tip = document.body.appendChild(make("div", { id: "tip" }));
function showTip(event, head, ...lines) {
  tip.replaceChildren(make("b", {}, head), ...lines.filter(Boolean).map((line) => make("span", {}, line)));
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 8))}px`;
}
const hideTip = () => (tip.style.display = "none");
function tipped(selection, text) {
  return selection.on("pointermove", (event, d) => showTip(event, ...text(d))).on("pointerleave", hideTip);
}

const canvas = document.createElement("canvas").getContext("2d");
const widths = new Map();
function textWidth(text, size = 12, weight = "") {
  const key = `${weight}${size}|${text}`;
  if (!widths.has(key)) {
    canvas.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
    widths.set(key, canvas.measureText(text).width);
  }
  return widths.get(key);
}

// A table whose columns sort. columns: {head, value(row) → text or element, key(row) → what sorts, n: a number}
function sortedTable(columns, rows, { open = null, first = -1 } = {}) {
  const body = make("tbody");
  let by = first, down = true;
  const heads = columns.map((column, i) =>
    make("th", {
      class: `${column.n ? "n " : ""}${column.key ? "sortable" : ""}`, tabindex: column.key ? 0 : null, title: column.title,
      onclick: () => sort(i), onkeydown: (e) => e.key === "Enter" && sort(i),
    }, column.head));
  function sort(i) {
    if (!columns[i].key) return;
    [down, by] = [by === i ? !down : Boolean(columns[i].n), i];
    fill();
  }
  function fill(found = rows) {
    rows = found;
    heads.forEach((head, i) => (i === by ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    const order = by < 0 ? rows : d3.sort(rows, (a, b) => (down ? d3.descending : d3.ascending)(columns[by].key(a), columns[by].key(b)));
    body.replaceChildren(...order.map((row) => {
      const line = make("tr", open ? { class: "row", tabindex: 0 } : {},
        ...columns.map((column) => make("td", { class: `${column.n ? "n" : ""}${column.wrap ? " wrap" : ""}` }, column.value(row))));
      if (open) {
        const toggle = () => {
          if (line.nextSibling && line.nextSibling.dataset.opened) line.nextSibling.remove();
          else line.after(make("tr", { "data-opened": "1" }, make("td", { colspan: columns.length }, ...open(row))));
        };
        line.addEventListener("click", toggle);
        line.addEventListener("keydown", (e) => e.key === "Enter" && toggle());
      }
      return line;
    }));
  }
  fill();
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
  table.refill = fill;
  return table;
}

// Tabs: sections of <main>, each drawn when it is first opened.
const tabs = [];
function addTab(id, title, draw) {
  tabs.push({ id, title, draw, drawn: false });
}
function openTab(id) {
  for (const tab of tabs) {
    const on = tab.id === id, section = document.getElementById(tab.id);
    section.classList.toggle("open", on);
    tab.button.setAttribute("aria-selected", on);
    if (on && !tab.drawn) {
      tab.drawn = true;
      tab.draw(section);
    }
  }
  if (location.hash.slice(1) !== id) history.replaceState(null, "", `#${id}`);
}
function startTabs(note = "") {
  const nav = document.querySelector("nav"), main = document.querySelector("main");
  for (const tab of tabs) {
    tab.button = make("button", { role: "tab", onclick: () => openTab(tab.id) }, tab.title);
    nav.append(tab.button);
    main.append(make("section", { id: tab.id, class: tab.id === "graph" || tab.id === "egraph" ? "" : "prose" }));
  }
  const asked = location.hash.slice(1);
  openTab(tabs.some((tab) => tab.id === asked) ? asked : tabs[0].id);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
function themeButton() {
  return make("button", { title: "Dark or light", onclick: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark") }, "◐");
}
function fact(label, value, note = "", kind = "") {
  return make("div", { class: "fact" }, make("small", {}, label), make("b", { class: kind }, value), note ? make("em", { class: note.startsWith("+") ? "worse" : "" }, note) : null);
}
