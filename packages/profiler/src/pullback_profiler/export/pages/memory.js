// Memory over time: a step line for each device, its peak marked.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 74, right: 16, top: 24, bottom: 22 };

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

class MemoryChart {
  constructor(parent, series, end) {
    this.series = series;
    this.end = Math.max(end, ...series.times.slice(-1), 1e-3);
    this.range = [0, this.end];
    this.chosen = -1;
    this.peakAt = series.bytes.reduce((best, bytes, at, all) => (bytes > (all[best] ?? 0) ? at : best), -1);
    const peak = this.peakAt < 0 ? "nothing" : `${formatMemory(series.peak)} at ${formatTime(series.times[this.peakAt])}`;
    this.svg = shape("svg", { tabindex: 0, role: "img", "aria-label": `Memory on ${series.device} over time; peak: ${peak}. Left and right go through the changes.` });
    parent.append(element("div", { className: "chart" },
      element("div", {}, element("strong", {}, series.device), ` peak ${peak}, ${formatCount(series.changes)} changes`), this.svg));
    if (series.changes > series.times.length) {
      parent.append(element("p", { className: "note" },
        `Of ${formatCount(series.changes)} changes on ${series.device}, the extremes are drawn: ${formatCount(series.times.length)} points.`));
    }
    this.svg.addEventListener("mousemove", (event) => this.point(event));
    this.svg.addEventListener("mouseleave", () => this.choose(-1));
    this.svg.addEventListener("blur", () => this.choose(-1));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
    this.draw();
  }

  setRange(start, end) {
    this.range = [start, end];
    this.draw();
  }

  x(time) {
    const [start, end] = this.range;
    return MARGIN.left + ((time - start) / (end - start)) * (this.width - MARGIN.left - MARGIN.right);
  }

  y(bytes) {
    return this.height - MARGIN.bottom - ((bytes - this.low) / (this.high - this.low)) * (this.height - MARGIN.top - MARGIN.bottom);
  }

  draw() {
    const { times, bytes } = this.series;
    this.width = this.svg.clientWidth || 900;
    this.height = this.svg.clientHeight || 190;
    this.low = bytes.reduce((least, value) => Math.min(least, value), 0);
    this.high = Math.max(this.series.peak, this.low + 1) * 1.02;
    const [start, end] = this.range;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.replaceChildren();
    for (const value of ticks(this.low, this.high, 4, 2)) {
      this.svg.append(
        shape("line", { class: "grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: this.y(value), y2: this.y(value) }),
        shape("text", { x: MARGIN.left - 8, y: this.y(value) + 4, "text-anchor": "end" }, trimmed(formatMemory(value))));
    }
    for (const value of ticks(start, end, 6)) {
      const anchor = this.x(value) > this.width - 40 ? "end" : "middle";
      this.svg.append(shape("text", { x: this.x(value), y: this.height - 5, "text-anchor": anchor }, trimmed(formatTime(value))));
    }
    let held = 0;
    let path = "";
    for (let at = 0; at < times.length; at++) {
      if (times[at] > end) break;
      if (times[at] >= start) path += `H${this.x(times[at]).toFixed(1)}V${this.y(bytes[at]).toFixed(1)}`;
      else held = bytes[at];
    }
    path = `M${MARGIN.left},${this.y(held).toFixed(1)}${path}H${this.width - MARGIN.right}`;
    const base = this.y(0);
    this.svg.append(
      shape("path", { class: "area", d: `${path}V${base}H${MARGIN.left}Z` }),
      shape("path", { class: "steps", d: path }));
    this.drawPeak(start, end);
    if (this.chosen >= 0) {
      const x = this.x(times[this.chosen]);
      this.svg.append(shape("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: this.height - MARGIN.bottom }));
    }
  }

  drawPeak(start, end) {
    const time = this.series.times[this.peakAt];
    if (this.peakAt < 0 || time < start || time > end) return;
    const x = this.x(time);
    const anchor = x > this.width - 140 ? "end" : x < MARGIN.left + 60 ? "start" : "middle";
    this.svg.append(
      shape("circle", { class: "peak", cx: x, cy: this.y(this.series.peak), r: 3.5 }),
      shape("text", { class: "peak", x, y: this.y(this.series.peak) - 8, "text-anchor": anchor }, `peak ${formatMemory(this.series.peak)}`));
  }

  // The last change at or before a time, -1 before the first.
  changeAt(time) {
    let low = 0;
    let high = this.series.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.series.times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  point(event) {
    const [start, end] = this.range;
    const across = (event.offsetX - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    this.choose(this.changeAt(start + across * (end - start)), event.clientX, event.clientY);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(this.series.times.length - 1, this.chosen + step));
    const box = this.svg.getBoundingClientRect();
    this.choose(at, box.left + this.x(this.series.times[at]), box.top + MARGIN.top);
    speak(byId("tooltip").textContent);
  }

  choose(at, x, y) {
    this.chosen = at in this.series.times ? at : -1;
    this.draw();
    if (this.chosen < 0) return hideTooltip();
    const { times, bytes, events } = this.series;
    showTooltip(`${formatMemory(bytes[at])} at ${formatTime(times[at])}\n${events[at]}`, x, y);
  }
}

function drawMemory(allSeries, end) {
  const parent = byId("memory");
  if (allSeries.length === 0) parent.append(element("p", { className: "note" }, "No memory of tensors was taken or given back."));
  const charts = allSeries.map((series) => new MemoryChart(parent, series, end));
  parent.append(element("p", { className: "note" }, "Counted from the start of recording: memory that was held before is not in it."));
  return charts;
}
