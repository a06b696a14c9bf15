// Puts the parts of the report together.

const data = JSON.parse(byId("data").textContent);
const views = { merged: framesByPath(data), time: framesOverTime(data) };
let view = "merged";

function addTotals() {
  const totals = [
    ["Recorded", formatTime(data.wall)],
    ["Self CPU time", formatTime(data.selfCpu)],
    ...(data.selfDevice > 0 ? [[`Self ${data.device} time`, formatTime(data.selfDevice)]] : []),
    ["Events", formatCount(data.count)],
    ["Names", formatCount(data.rows.length)],
    ...data.memory.map((series) => [`Peak memory, ${series.device}`, formatMemory(series.peak)]),
  ];
  byId("title").textContent = data.title;
  byId("totals").append(...totals.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
}

function addLegend() {
  const kinds = new Set(data.rows.map((row) => row.kind));
  if (data.lines.length) kinds.add("line");
  kinds.delete("memory");
  const shown = [];
  for (const [kind, { name }] of Object.entries(KINDS)) {
    if (!kinds.has(kind)) continue;
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = colour(kind, "");
    shown.push(element("li", {}, swatch, name));
  }
  byId("legend").replaceChildren(...shown);
}

function notes() {
  const { calls, paths, asynchronous } = data.left;
  const said = [];
  if (view === "time" && calls) {
    said.push(`The ${formatCount(data.calls.row.length)} longest of ${formatCount(data.calls.row.length + calls)} calls are drawn; all count in the table, in the details and in the merged graph.`);
  }
  if (view === "merged" && paths) {
    said.push(`The ${formatCount(data.paths.row.length)} longest of ${formatCount(data.paths.row.length + paths)} call paths are drawn.`);
  }
  if (asynchronous) said.push(`${formatCount(asynchronous)} blocks that ended in another thread are in the table alone.`);
  if (views[view].depth.some((depth) => depth > MAX_DEPTH)) said.push(`Frames deeper than ${MAX_DEPTH} are not drawn.`);
  byId("flame-note").textContent = said.join(" ");
  byId("flame-note").hidden = said.length === 0;
}

addTotals();
addLegend();
byId("memory-section").hidden = !data.recorded.memory;
const charts = data.recorded.memory ? drawMemory(data.memory, data.wall) : [];

const graph = new FlameGraph(byId("flame"), {
  onSelect: (at) => {
    const row = views[view].row(at);
    if (row < 0) detail.line(views[view], at);
    else selectRow(row, view === "time" ? at : -1);
  },
  onRange: (start, end) => {
    if (view === "time") charts.forEach((chart) => chart.setRange(start, end));
  },
});
const detail = new Detail(data, {
  onSelect: (row) => selectRow(row),
  onCall: (call) => graph.select(call, false),
});
const averages = new Averages(data, (row) => {
  selectRow(row);
  speak(`Details of ${data.rows[row].name}`);
});

function selectRow(row, call = -1) {
  detail.name(row, call);
  averages.choose(row);
}

function showView(name) {
  if (view === "time") charts.forEach((chart) => chart.setRange(0, chart.end));
  view = name;
  byId("show-merged").setAttribute("aria-pressed", String(name === "merged"));
  byId("show-time").setAttribute("aria-pressed", String(name === "time"));
  notes();
  graph.show(views[name]);
}

byId("show-merged").addEventListener("click", () => showView("merged"));
byId("show-time").addEventListener("click", () => showView("time"));
byId("reset").addEventListener("click", () => graph.reset());
byId("filter").addEventListener("input", (event) => {
  averages.filter = graph.filter = event.target.value.trim().toLowerCase();
  averages.draw();
  graph.draw();
});
darkMode.addEventListener("change", () => {
  addLegend();
  averages.draw();
});
showView("merged");
if (data.rows.length) {
  const most = (row) => Math.max(row.selfCpu, row.selfDevice);
  selectRow(data.rows.reduce((best, row, at) => (most(row) > most(data.rows[best]) ? at : best), 0));
} else {
  detail.show(element("p", {}, "Nothing was recorded."));
}
