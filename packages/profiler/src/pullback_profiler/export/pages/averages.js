// The table of averages: a row for each name, sorted by a click on a header.

const FIRST_ROWS = 300; // shown until all are asked for

function columnsOf(data) {
  const share = (part, whole) => ({ value: part, text: (row) => formatShare(part(row), whole), part: (row) => part(row) / whole });
  const time = (title, value) => ({ title, value, text: (row) => formatTime(value(row)) });
  const memory = (title, value) => ({ title, value, text: (row) => formatMemory(value(row)) });
  const columns = [
    { title: "Name", value: (row) => row.name, text: (row) => row.name },
    { title: "Calls", value: (row) => row.count, text: (row) => formatCount(row.count) },
    { title: "Self CPU %", ...share((row) => row.selfCpu, data.selfCpu) },
    time("Self CPU", (row) => row.selfCpu),
    { title: "CPU total %", ...share((row) => row.cpu, data.selfCpu) },
    time("CPU total", (row) => row.cpu),
    time("CPU mean", (row) => row.cpu / row.count),
  ];
  if (data.selfDevice > 0) {
    columns.push(
      { title: `Self ${data.device} %`, ...share((row) => row.selfDevice, data.selfDevice) },
      time(`Self ${data.device}`, (row) => row.selfDevice),
      time(`${data.device} total`, (row) => row.deviceTime));
  }
  if (data.recorded.memory) {
    columns.push(memory("CPU memory", (row) => row.cpuMemory), memory("Self CPU memory", (row) => row.selfCpuMemory));
    if (data.device && data.rows.some((row) => row.deviceMemory)) {
      columns.push(memory(`${data.device} memory`, (row) => row.deviceMemory), memory(`Self ${data.device} memory`, (row) => row.selfDeviceMemory));
    }
  }
  if (data.recorded.flops) columns.push({ title: "FLOPs", value: (row) => row.flops, text: (row) => formatFlops(row.flops) });
  return columns;
}

class Averages {
  constructor(data, onSelect) {
    this.data = data;
    this.onSelect = onSelect;
    this.columns = columnsOf(data);
    this.sorted = data.selfDevice > data.selfCpu ? 8 : 3; // by the time that is most of it
    this.rising = false;
    this.filter = "";
    this.all = false;
    this.chosen = -1;
    const head = element("tr", {});
    this.headers = this.columns.map((column, at) => {
      const button = element("button", { type: "button", onclick: () => this.sort(at) }, column.title);
      const header = element("th", { scope: "col" }, button);
      head.append(header);
      return header;
    });
    byId("averages").tHead.append(head);
    byId("show-all").addEventListener("click", () => {
      this.all = true;
      this.draw();
    });
    this.draw();
  }

  sort(at) {
    this.rising = at === this.sorted ? !this.rising : at === 0;
    this.sorted = at;
    this.draw();
  }

  choose(row) {
    this.lines.get(this.chosen)?.classList.remove("chosen");
    this.chosen = row;
    this.lines.get(row)?.classList.add("chosen");
  }

  draw() {
    const { rows } = this.data;
    const { value } = this.columns[this.sorted];
    const found = rows.map((_, at) => at).filter((at) => rows[at].name.toLowerCase().includes(this.filter));
    const sign = this.rising ? 1 : -1;
    found.sort((a, b) => {
      const [first, second] = [value(rows[a]), value(rows[b])];
      return sign * (first < second ? -1 : first > second ? 1 : 0);
    });
    this.headers.forEach((header, at) => {
      if (at === this.sorted) header.setAttribute("aria-sort", this.rising ? "ascending" : "descending");
      else header.removeAttribute("aria-sort");
    });
    const shown = this.all ? found : found.slice(0, FIRST_ROWS);
    this.lines = new Map(shown.map((at) => [at, this.rowOf(at)]));
    byId("averages").tBodies[0].replaceChildren(...this.lines.values());
    byId("shown").textContent = `${formatCount(shown.length)} of ${formatCount(rows.length)} names`;
    byId("show-all").hidden = shown.length === found.length;
  }

  rowOf(at) {
    const row = this.data.rows[at];
    const line = element("tr", { className: at === this.chosen ? "chosen" : "", onclick: () => this.onSelect(at) });
    this.columns.forEach((column, number) => {
      if (number === 0) {
        const swatch = element("span", { className: "swatch" });
        swatch.style.background = colour(row.kind, row.name);
        const button = element("button", { type: "button", className: "link", title: row.name }, row.name);
        line.append(element("td", {}, swatch, button));
        return;
      }
      const cell = element("td", {}, column.text(row));
      if (column.part) {
        cell.className = "share";
        cell.style.setProperty("--part", `${Math.max(0, Math.min(100, 100 * column.part(row))) || 0}%`);
      }
      line.append(cell);
    });
    return line;
  }
}
