"use strict";
// The tasks' table and what opens below a row. Everything in the data is text: it is only ever set as textContent.
const data = JSON.parse(document.getElementById("data").textContent);
const KINDS = { timed: "good", untimed: "good", failed: "bad", rejected: "bad", unjudged: "fair", "not attempted": "fair" };
const STEP = 200; // rows that are made at a time
const several = data.runs.length > 1;

const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== undefined && child !== ""));
  return node;
};
const draw = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
const byId = (id) => document.getElementById(id);
const pill = (state, words = state) => make("span", { class: `pill ${KINDS[state] || "fair"}` }, words);
const number = (value, digits = 3) => value === undefined || value === null ? "–"
  : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
const times = (value) => value === undefined || value === null ? "–" : `${value.toFixed(2)}×`;

const best = (task, run) => task.runs[run] && task.runs[run].kernels[0];
const speedup = (task, run) => best(task, run)?.speedups?.[baseline()];
const median = (task, run) => best(task, run)?.outcome === "timed" ? best(task, run).times.kernel?.median : undefined;
const floorShare = (task, run) => best(task, run)?.floor?.share;
const state = (task, run) => task.runs[run]?.state;

const columns = [
  { name: "task", text: (task) => task.id, key: (task) => task.id, up: true },
  { name: "level", text: (task) => task.level || "–", key: (task) => task.level, number: true, up: true },
  ...(several ? [] : [{ name: "tags", text: (task) => task.tags.join(" "), key: (task) => task.tags.join(" "), up: true }]),
  ...data.runs.flatMap((run, place) => [
    { name: "outcome", run, node: (task) => outcomeCell(task, place), key: (task) => Object.keys(KINDS).indexOf(state(task, place)), up: true },
    { name: "µs", run, text: (task) => number(median(task, place), 4), key: (task) => median(task, place), number: true, up: true },
    { name: "speed-up", run, text: (task) => times(speedup(task, place)), key: (task) => speedup(task, place), number: true,
      slow: (task) => speedup(task, place) < 1 },
    ...(several ? [] : [{ name: "roofline", run, text: (task) => floorShare(task, place) === undefined ? "–" : `${Math.round(100 * floorShare(task, place))} %`,
      key: (task) => floorShare(task, place), number: true }]),
  ]),
  ...(several ? data.runs.slice(1).map((run, place) => ({
    name: "ratio", run: `${run} / ${data.runs[0]}`, number: true,
    text: (task) => times(ratio(task, place + 1)), key: (task) => ratio(task, place + 1), slow: (task) => ratio(task, place + 1) < 1,
  })) : []),
];
const ratio = (task, run) => speedup(task, run) && speedup(task, 0) ? speedup(task, run) / speedup(task, 0) : undefined;
const outcomeCell = (task, run) => {
  if (!task.runs[run]) return "–";
  const kernels = task.runs[run].kernels;
  const right = kernels.filter((kernel) => kernel.outcome === "timed" || kernel.outcome === "untimed").length;
  const words = task.runs[run].state === "failed" ? (kernels[0].status || "failed").replaceAll("_", " ") : task.runs[run].state;
  return make("span", {}, pill(task.runs[run].state, words), kernels.length > 1 ? ` ${right}/${kernels.length}` : "");
};

const order = { column: columns[0], up: true };
let limit = STEP;
const opened = new Set();
const baseline = () => byId("baseline").value;
const chosen = () => {
  const [words, level, tag, outcome] = ["find", "level", "tag", "state"].map((id) => byId(id).value.trim().toLowerCase());
  return data.tasks.map((task, place) => ({ task, place })).filter(({ task }) =>
    (!words || task.id.toLowerCase().includes(words)) && (!level || String(task.level) === level) &&
    (!tag || task.tags.concat(task.dtypes).some((name) => name.toLowerCase() === tag)) &&
    (!outcome || task.runs.some((run) => run && run.state === outcome)));
};
const compare = (a, b) => {
  const [left, right] = [order.column.key(a.task), order.column.key(b.task)];
  if (left === right || (left === undefined && right === undefined)) return a.place - b.place;
  if (left === undefined || right === undefined) return left === undefined ? 1 : -1; // what has no value comes last
  const less = typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) < 0 : left < right; // 2 before 10
  return (less ? -1 : 1) * (order.up ? 1 : -1);
};
const show = () => {
  const rows = chosen().sort(compare);
  const on = new Set(rows.map(({ place }) => place));
  byId("tasks").tBodies[0].replaceChildren(...rows.slice(0, limit).flatMap(({ task, place }) => rowOf(task, place)));
  byId("shown").textContent = rows.length === data.tasks.length ? `${rows.length}` : `${rows.length} of ${data.tasks.length}`;
  byId("more").hidden = rows.length <= limit;
  byId("more").textContent = `${rows.length - limit} more`;
  for (const dot of document.querySelectorAll("circle[data-task]")) dot.classList.toggle("off", !on.has(Number(dot.dataset.task)));
  for (const [place, column] of columns.entries()) {
    const head = byId("tasks").tHead.rows[0].cells[place];
    if (column === order.column) head.setAttribute("aria-sort", order.up ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
};
const rowOf = (task, place) => {
  const row = make("tr", { class: "row", tabindex: "0", "data-row": place, "aria-expanded": opened.has(place) }, ...columns.map((column) =>
    make("td", { class: [column.number ? "n" : "", column.slow?.(task) ? "slower" : ""].join(" ") }, column.node ? column.node(task) : String(column.text(task)))));
  const toggle = () => { opened.has(place) ? opened.delete(place) : opened.add(place); show(); document.querySelector(`[data-row="${place}"]`)?.focus({ preventScroll: true }); };
  row.addEventListener("click", toggle);
  row.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
  if (!opened.has(place)) return [row];
  row.classList.add("open");
  return [row, make("tr", { class: "details", "data-details": place }, make("td", { class: "inside", colspan: columns.length }, insideOf(task)))];
};

const insideOf = (task) => make("div", { class: "kernels" }, ...task.runs.flatMap((result, run) =>
  result ? result.kernels.map((kernel) => kernelOf(kernel, run)) : [make("div", { class: "kernel" }, make("h4", {}, data.runs[run]), "not in this run")]));
const kernelOf = (kernel, run) => {
  const title = [several ? data.runs[run] : "", kernel.maker, kernel.sample ? `sample ${kernel.sample}` : ""].filter(Boolean).join(" · ");
  const wide = data.tasks.length && !several;
  return make("div", { class: wide ? "kernel wide" : "kernel" },
    make("h4", {}, pill(kernel.outcome, (kernel.status || kernel.outcome).replaceAll("_", " ")), title, kernel.rule ? make("span", { class: "pill bad" }, kernel.rule) : ""),
    make("p", { class: "soft" }, kernel.summary || ""),
    ...(kernel.times ? [timesTable(kernel), strips(kernel)] : []),
    ...verdictsOf(kernel), ...transcriptOf(kernel), ...sourceOf(kernel), costOf(kernel));
};
const timesTable = (kernel) => make("div", { class: "scroll" }, make("table", {},
  make("tr", {}, ...["callable", "median µs", "quartiles µs", "host µs", "speed-up", "samples"].map((name, place) => make("th", { class: place ? "n" : "" }, name))),
  ...Object.entries(kernel.times).map(([name, timing]) => make("tr", {},
    make("td", {}, name, timing.error ? make("small", {}, timing.error) : ""), make("td", { class: "n" }, number(timing.median, 5)),
    make("td", { class: "n" }, (timing.quartiles || []).map((value) => number(value, 4)).join("–") || "–"),
    make("td", { class: "n" }, number(timing.host)), make("td", { class: "n" }, times(kernel.speedups?.[name])),
    make("td", { class: "n" }, String(timing.count || 0))))));
const strips = (kernel) => {
  const timed = Object.entries(kernel.times).filter(([, timing]) => timing.samples);
  const floor = kernel.floor?.us;
  const all = timed.flatMap(([, timing]) => timing.samples).concat(floor || []);
  const [low, high] = [Math.min(...all) * 0.98, Math.max(...all) * 1.02];
  const [width, left, step] = [560, 96, 34];
  const x = (value) => left + (Math.log(value / low) / Math.log(high / low)) * (width - left - 12);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${timed.length * step + 26}`, role: "img", "aria-label": "Samples" });
  const text = (words, attributes) => { const node = draw("text", attributes); node.textContent = words; svg.append(node); };
  for (const value of ticks(low, high)) {
    svg.append(draw("line", { class: "grid", x1: x(value), x2: x(value), y1: 2, y2: timed.length * step }));
    text(`${number(value)}`, { class: "axis", x: x(value), y: timed.length * step + 16, "text-anchor": "middle" });
  }
  timed.forEach(([name, timing], row) => {
    const group = draw("g", { class: `k${name === "kernel" ? 1 : 8}` });
    timing.samples.forEach((value, place) => group.append(draw("circle", { class: "dot", cx: x(value), cy: row * step + 17 + ((place * 7) % 11) - 5, r: 2.2 })));
    group.append(draw("path", { class: "line", d: `M${x(timing.median)} ${row * step + 6}v22` }));
    svg.append(group);
    text(name.slice(0, 14), { x: left - 8, y: row * step + 21, "text-anchor": "end" });
  });
  if (floor) svg.append(draw("line", { class: "roof", x1: x(floor), x2: x(floor), y1: 0, y2: timed.length * step, "stroke-dasharray": "4 3" }));
  return make("figure", { class: "samples" }, make("div", { class: "scroll", tabindex: "0" }, svg), make("figcaption", {}, "Samples in µs, logarithmic; bars are medians",
    floor ? `, the dashed line the floor, ${number(floor)} µs (${kernel.floor.kind || "measured"})` : "", "."));
};
const ticks = (low, high) => {
  for (const leads of [[1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9], [1, 1.5, 2, 3, 4, 5, 7], [1, 2, 5], [1]]) {
    const steps = [-1, 0, 1, 2, 3, 4, 5, 6].flatMap((power) => leads.map((lead) => Number((lead * 10 ** power).toPrecision(3))));
    const inside = steps.filter((value) => value >= low && value <= high);
    if (inside.length > 1 && inside.length < 10) return inside;
  }
  return [0.1, 0.5, 0.9].map((part) => Number((low * (high / low) ** part).toPrecision(3)));
};
const verdictsOf = (kernel) => !kernel.verdicts ? [] : [make("h5", {}, "Verdicts"), make("ul", {}, ...kernel.verdicts.map((verdict) => make("li", {},
  make("b", {}, verdict.stage), ` ${verdict.status.replaceAll("_", " ")}${verdict.seconds ? `, ${number(verdict.seconds)} s` : ""}: ${verdict.summary}`,
  ...(verdict.details.length ? [make("ul", {}, ...verdict.details.map((line) => make("li", {}, line)))] : []),
  ...(verdict.log_tail ? [make("pre", { class: "log" }, verdict.log_tail)] : []))))];
const transcriptOf = (kernel) => [
  ...(kernel.transcript ? [make("h5", {}, "Transcript"), make("ul", {}, ...kernel.transcript.map((line) => make("li", {}, line)))] : []),
  ...(kernel.links ? [make("p", {}, ...Object.entries(kernel.links).flatMap(([name, link]) => [make("a", { href: link }, name), " "]))] : [])];
const sourceOf = (kernel) => {
  if (!kernel.source) return [];
  const lines = kernel.source.split("\n");
  const box = make("details", {}, make("summary", {}, `Kernel, ${lines.length} lines`));
  box.addEventListener("toggle", () => { // coloured when it is looked at
    if (box.open && box.children.length === 1) box.append(make("div", { class: "source mono", tabindex: "0" }, make("ol", {}, ...coloured(kernel.source))));
  });
  return [box];
};
const costOf = (kernel) => {
  const parts = Object.entries(kernel.seconds || {}).map(([name, seconds]) => `${name} ${number(seconds)} s`);
  if (kernel.cost) parts.push(`$${(kernel.cost.dollars || 0).toFixed(2)}`, `${kernel.cost.turns} turns`, `${kernel.cost.input_tokens + kernel.cost.output_tokens} tokens`);
  if (kernel.ran_on) parts.push(`ran on ${kernel.ran_on}`);
  return make("p", { class: "soft note" }, parts.join(" · "));
};
const TOKEN = /("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(#[^\n]*)|\b(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)\b|\b(0[xX][0-9a-fA-F_]+|\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?)\b/g;
const coloured = (source) => {
  const lines = [make("li")];
  const put = (text, kind) => text.split("\n").forEach((part, place) => {
    if (place) lines.push(make("li"));
    if (part) lines.at(-1).append(kind ? make("span", { class: kind }, part) : part);
  });
  let end = 0;
  for (const found of source.matchAll(TOKEN)) {
    put(source.slice(end, found.index));
    put(found[0], found[1] ? "string" : found[2] ? "comment" : found[3] ? "keyword" : "number");
    end = found.index + found[0].length;
  }
  put(source.slice(end));
  return lines;
};

const options = (id, values) => byId(id).append(...values.map((value) => make("option", { value }, value)));
const unique = (values) => [...new Set(values)].sort((a, b) => (a < b ? -1 : 1));
options("level", unique(data.tasks.map((task) => task.level).filter(Boolean)));
options("tag", unique(data.tasks.flatMap((task) => task.tags.concat(task.dtypes))));
options("state", Object.keys(KINDS).filter((name) => data.tasks.some((task) => task.runs.some((run) => run && run.state === name))));
options("baseline", data.baselines.map((name) => name));
byId("baseline").hidden = data.baselines.length === 0;
for (const option of byId("baseline").options) option.textContent = `against ${option.value}`;
byId("tasks").tHead.append(make("tr", {}, ...columns.map((column) => {
  const button = make("button", { type: "button" }, column.name);
  button.addEventListener("click", () => { order.up = order.column === column ? !order.up : Boolean(column.up); order.column = column; show(); });
  return make("th", { class: column.number ? "n" : "" }, button, several && column.run ? make("small", {}, column.run) : "");
})));
for (const id of ["find", "level", "tag", "state", "baseline"]) byId(id).addEventListener("input", () => { limit = STEP; show(); });
byId("more").addEventListener("click", () => { limit += 5 * STEP; show(); });
for (const dot of document.querySelectorAll("circle[data-task]")) dot.addEventListener("click", () => {
  const place = Number(dot.dataset.task);
  for (const id of ["find", "level", "tag", "state"]) byId(id).value = "";
  byId("find").value = data.tasks[place].id;
  opened.add(place);
  show();
  document.querySelector(`[data-row="${place}"]`)?.scrollIntoView({ block: "start" });
});
show();
