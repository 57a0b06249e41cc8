// The page of a run: its head, and the tabs for which there is data.
"use strict";

function drawRules(section) {
  const near = data.near_misses || {}, all = [...rules.values()];
  const refused = (r) => Math.max(0, r.matches - r.applied);
  const ratio = (r) => (near[r.name] ? near[r.name].matched / near[r.name].parts : 0);
  const views = {
    "in the result": all.filter((r) => r.in_result), "changed the e-graph": all.filter((r) => r.applied),
    "matched, but refused": all.filter((r) => r.matches && !r.applied), "near misses": all.filter((r) => near[r.name] && ratio(r) >= 0.4), "all rules": all,
  };
  const why = (r) => (near[r.name] ? `${near[r.name].matched} of ${near[r.name].parts} parts hold at ${near[r.name].node}${near[r.name].others ? ` and ${near[r.name].others} more` : ""}: ${near[r.name].reason}` : r.reason);
  const table = sortedTable([
    { head: "rule", value: (r) => make("span", {}, chip(ruleColor(r.name)), r.name), key: (r) => r.name },
    { head: "class", value: (r) => ((data.rule_texts || {})[r.name] || {}).class || "", key: (r) => ((data.rule_texts || {})[r.name] || {}).class || "" },
    { head: "nodes made", n: 1, value: (r) => r.in_result, key: (r) => r.in_result, title: "nodes of both results that it helped to make" },
    { head: "fired", n: 1, value: (r) => fmt.count(r.applied), key: (r) => r.applied, title: "matches that changed the e-graph" },
    { head: "refused", n: 1, value: (r) => fmt.count(refused(r)), key: refused, title: "matches that changed nothing: a condition did not hold, or the form was known" },
    { head: "seconds", n: 1, value: (r) => fmt.seconds(r.seconds), key: (r) => r.seconds },
    { head: "where it came closest, or why it was refused", wrap: 1, value: (r) => fmt.clip(why(r) || "", 220), key: ratio },
  ], [], { open: (r) => [make("div", { class: "wrap" }, why(r) || ""), ...ruleDetails(r.name)], first: 2 });
  const filter = make("input", { type: "search", placeholder: "Filter by name", oninput: () => fill() });
  const which = make("select", { onchange: () => fill() }, ...Object.entries(views).map(([title, found]) => make("option", { value: title }, `${title} (${found.length})`)));
  const fill = () => table.refill(views[which.value].filter((r) => r.name.includes(filter.value)));
  section.append(make("div", { class: "keys" }, which, filter),
    note("A rule fires where its pattern and its conditions hold. Click a row for the rule itself. The result has the cheapest form of every value, so a rule that fired need not show in it."), table);
  fill();
}

function drawErrors(section) {
  const verify = data.verify || {};
  if (!Object.keys(verify).length) return section.append(note("The results were not compared with those of the model (--no-verify)."));
  const verdict = verify.ok === null ? "Nothing was compared" : verify.ok ? "The results agree" : "The results differ";
  section.append(note(`${verdict}. Both results ran on the same random inputs as the model in ${verify.oracle}, ${verify.compared} run${verify.compared === 1 ? "" : "s"}; rules of the class ${verify.numerics} were admitted. The scaled error is the largest difference divided by the largest magnitude of the output.`));
  for (const text of [...(verify.failures || []), ...(verify.skipped || [])]) section.append(make("p", { class: "note" }, text));
  const names = { model: "optimized model", program: "program" };
  const rows = Object.entries(verify.outputs || {}).flatMap(([candidate, outputs]) => Object.entries(outputs).map(([output, found]) => ({ candidate: names[candidate] || candidate, output, ...found })));
  const bar = (x, limit) => {
    if (x === null) return "";
    const scale = d3.scaleLog().domain([1e-9, 1]).range([0, 220]).clamp(true), found = make("div", { class: "bar" });
    found.style.width = `${x ? scale(x) : 1}px`;
    if (limit !== null && x > limit) found.style.background = "var(--bad)";
    return found;
  };
  section.append(sortedTable([
    { head: "output", wrap: 1, value: (r) => r.output, key: (r) => r.output }, { head: "computed by", value: (r) => r.candidate, key: (r) => r.candidate },
    { head: "largest error", n: 1, value: (r) => fmt.error(r.max_abs), key: (r) => r.max_abs }, { head: "scaled", n: 1, value: (r) => fmt.error(r.max_rel), key: (r) => r.max_rel },
    { head: "allowed", n: 1, value: (r) => (r.allowed === null ? "none" : fmt.error(r.allowed)) }, { head: "scaled error, from 1e-9 to 1", value: (r) => bar(r.max_rel, r.allowed) },
  ], rows));
}

function drawRun(section) {
  const pairs = (title, entries) => entries.length && section.append(make("h2", {}, title), make("table", {}, make("tbody", {}, ...entries.map(([key, value]) => make("tr", {}, make("td", {}, key), make("td", { class: "wrap" }, value))))));
  const longest = d3.max(Object.entries(data.seconds || {}), ([, s]) => s) || 1;
  pairs("Time of the stages", Object.entries(data.seconds || {}).map(([stage, s]) => {
    const bar = make("div", { class: "bar" }), line = make("div", {}, fmt.seconds(s), bar);
    bar.style.width = `${Math.max(1, (360 * s) / longest)}px`;
    return [stage, line];
  }));
  if (data.bench) pairs(`Measured on ${data.bench.threads} thread${data.bench.threads > 1 ? "s" : ""}`, Object.entries(data.bench.engines).map(([name, t]) => [name, `${fmt.seconds(t.median)} (${fmt.seconds(t.p10)} to ${fmt.seconds(t.p90)}, ${t.runs} runs)`]));
  const sizes = Object.entries(data.likely_sizes || {});
  pairs("Sizes that predictions assume", sizes.map(([name, size]) => [name, String(size)]));
  if (data.egraph) {
    const { classes, nodes, iterations, stop_reason, limits, unscheduled } = data.egraph;
    pairs("E-graph", [["e-nodes", fmt.count(nodes)], ["classes", fmt.count(classes)], ["iterations", String(iterations)], ["ended", stop_reason.replace(/_/g, " ")],
      ...limits.map((met) => ["budget used up", `${met.rule || met.ruleset}: ${met.limit}`]), ...unscheduled.map((name) => ["not in the schedule", name])]);
    const { method, bound, gap } = data.extraction;
    pairs("Extraction", [["method", method], ["proven lower bound", bound === null ? "none" : fmt.seconds(bound)], ["the result is above it by at most", gap === null ? "unknown" : fmt.percent(gap)]]);
  }
  pairs("Operators without a native kernel", Object.entries(data.fallbacks || {}).map(([op, n]) => [op, `${n} node${n > 1 ? "s" : ""}`]));
  pairs("Outputs", Object.entries(data.outputs || {}));
}

/** The extents of free sizes after a prefix, such as `, if batch = 1`; three of them at most, empty without any. */
function shortList(sizes, prefix) {
  const shown = Object.entries(sizes || {}).map(([name, size]) => `${name} = ${size}`);
  return shown.length ? `${prefix}${shown.slice(0, 3).join(", ")}${shown.length > 3 ? ", …" : ""}` : "";
}

function drawHead() {
  const header = document.querySelector("header"), verify = data.verify || {}, profile = data.profile;
  const facts = [];
  if (data.nodes_before !== undefined) {
    facts.push(fact("nodes", `${fmt.count(data.nodes_before)} → ${fmt.count(data.nodes_after)}`, fmt.change(data.nodes_before, data.nodes_after)));
    const assumed = shortList(data.likely_sizes, ", if ");
    facts.push(fact(`predicted for an ONNX runtime${assumed}`, `${fmt.seconds(data.cost_before)} → ${fmt.seconds(data.cost_after)}`, fmt.change(data.cost_before, data.cost_after)));
  }
  if (profile) facts.push(fact(`measured, ${profile.threads} thread${profile.threads > 1 ? "s" : ""}${shortList(profile.sizes, ", ")}`, fmt.seconds(profile.seconds)));
  for (const [name, t] of Object.entries((data.bench || {}).engines || {})) facts.push(fact(name, fmt.seconds(t.median)));
  if (data.memory) facts.push(fact("arena", fmt.bytes(data.memory.size)));
  if (data.nodes_before !== undefined) {
    const state = verify.ok === undefined || verify.ok === null ? ["not verified", ""] : verify.ok ? [`✓ ${fmt.error(verify.max_rel)}`, "good"] : ["failed", "bad"];
    facts.push(fact(verify.ok ? "verified, scaled error" : "verification", state[0], "", state[1]));
  }
  header.append(make("h1", {}, data.title, make("small", {}, "optimized by rewrite")), ...facts, make("span", { class: "space" }), themeButton());
}

drawHead();
if (graphs.model) addTab("graph", "Graph", drawGraphTab);
if (Object.keys(graphs).length) addTab("cost", "Cost", drawCost);
if (data.timeline) addTab("timeline", "Timeline", drawTimeline);
if (data.profile) addTab("roofline", "Roofline", drawRoofline);
if (data.memory) addTab("memory", "Memory", drawMemory);
if (rules.size) addTab("rules", "Rules", drawRules);
if (data.verify) addTab("errors", "Errors", drawErrors);
if (data.seconds) addTab("run", "Run", drawRun);
startTabs();
