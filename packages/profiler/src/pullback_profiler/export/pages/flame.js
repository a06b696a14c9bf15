// The flame graph: frames on a canvas, one band of rows for each thread or stream of a device.

const ROW = 19; // height of a frame with its gap, in pixels
const HEAD = 22; // height of the axis, and of a band's name
const MAX_DEPTH = 150; // rows of one band: deeper frames are not drawn
const KINDS = {
  op: { hue: 212, name: "op" },
  node: { hue: 28, name: "backward" },
  engine: { hue: 265, grey: true, name: "engine" },
  block: { hue: 145, name: "your block" },
  line: { hue: 48, name: "line of the program" },
  kernel: { hue: 325, name: "device" },
  memory: { hue: 0, grey: true, name: "memory" },
};
const darkMode = matchMedia("(prefers-color-scheme: dark)");

function shortName(name) {
  return name
    .replace(/^autograd::engine::evaluate_function: /, "evaluate ")
    .replace(/pullback::(autograd::)?/, "")
    .replace(/^.*[/\\](?=[^/\\]*\(\d+\): )/, "");
}

// Names of one kind differ a little in lightness, the same in every drawing.
function colour(kind, name) {
  const { hue, grey } = KINDS[kind];
  let hash = 7;
  for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) % 997;
  const saturation = grey ? 9 : darkMode.matches ? 38 : 68;
  const lightness = (darkMode.matches ? 30 : 74) + (hash % 9);
  return `hsl(${hue} ${saturation}% ${lightness}%)`;
}

// Frames are arrays of one length: lane, start, time, depth, and functions of a frame's number.
class FlameGraph {
  constructor(canvas, { onSelect, onRange }) {
    this.canvas = canvas;
    this.onSelect = onSelect;
    this.onRange = onRange;
    this.filter = "";
    this.colours = new Map();
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    darkMode.addEventListener("change", () => {
      this.colours.clear();
      this.draw();
    });
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", hideTooltip);
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.drag(event));
  }

  show(frames) {
    this.frames = frames;
    this.selected = -1;
    this.end = frames.end || 1;
    this.tops = [];
    let top = HEAD;
    const rows = frames.lanes.map(() => 0);
    for (let at = 0; at < frames.lane.length; at++) {
      const lane = frames.lane[at];
      rows[lane] = Math.max(rows[lane], Math.min(frames.depth[at], MAX_DEPTH) + 1);
    }
    rows.forEach((count) => {
      this.tops.push(count ? top + HEAD : null);
      top += count ? HEAD + ROW * count : 0;
    });
    this.height = top + 4;
    this.zoom(0, this.end);
  }

  zoom(start, end) {
    const least = this.end * 1e-6;
    const width = Math.min(Math.max(end - start, least), this.end);
    this.start = Math.max(0, Math.min(start, this.end - width));
    this.scale = width;
    this.onRange(this.start, this.start + width);
    this.draw();
  }

  reset() {
    this.zoom(0, this.end);
  }

  draw() {
    if (!this.frames) return;
    const width = this.canvas.parentElement.clientWidth;
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = width * ratio;
    this.canvas.height = this.height * ratio;
    const paper = this.canvas.getContext("2d");
    paper.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const [text, soft, line, accent] = ["--text", "--soft", "--line", "--accent"].map((name) => style.getPropertyValue(name));
    paper.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    paper.textBaseline = "middle";
    this.pixels = width / this.scale;
    this.drawAxis(paper, width, soft, line);
    this.drawFrames(paper, width, text);
    if (this.selected >= 0) {
      const [x, y, w] = this.box(this.selected);
      paper.strokeStyle = accent;
      paper.lineWidth = 2;
      paper.strokeRect(x + 1, y + 1, Math.max(w - 2, 1), ROW - 3);
    }
  }

  drawAxis(paper, width, soft, line) {
    paper.fillStyle = soft;
    paper.strokeStyle = line;
    for (const time of ticks(this.start, this.start + this.scale, Math.max(2, width / 130))) {
      const x = (time - this.start) * this.pixels;
      paper.beginPath();
      paper.moveTo(x, 4);
      paper.lineTo(x, this.height);
      paper.stroke();
      if (x < width - 50) paper.fillText(trimmed(formatTime(time)), x + 4, HEAD / 2);
    }
    this.frames.lanes.forEach((label, lane) => {
      if (this.tops[lane] !== null) paper.fillText(label, 2, this.tops[lane] - HEAD / 2);
    });
  }

  drawFrames(paper, width, text) {
    const { frames, filter } = this;
    const covered = new Map(); // up to which pixel a row is drawn: what is narrower is left out
    for (let at = 0; at < frames.lane.length; at++) {
      if (frames.depth[at] > MAX_DEPTH) continue;
      const [x, y, w] = this.box(at);
      if (x + w < 0 || x > width) continue;
      if (w < 1 && x + w <= (covered.get(y) ?? -1)) continue;
      covered.set(y, Math.max(covered.get(y) ?? -1, x + Math.max(w, 1)));
      const name = frames.name(at);
      paper.globalAlpha = filter && !name.toLowerCase().includes(filter) ? 0.22 : 1;
      paper.fillStyle = this.colourOf(frames.kind(at), name);
      const left = Math.max(x, -2);
      const right = Math.min(x + w, width + 2);
      paper.fillRect(left, y, Math.max(right - left - (w > 3 ? 1 : 0), 0.7), ROW - 1);
      if (right - left > 26) this.drawLabel(paper, shortName(name), Math.max(left, 0), y, right, text);
    }
    paper.globalAlpha = 1;
  }

  drawLabel(paper, label, left, y, right, text) {
    const room = Math.floor((right - left - 8) / 6);
    paper.fillStyle = text;
    paper.fillText(label.length > room ? `${label.slice(0, Math.max(room - 1, 1))}…` : label, left + 4, y + ROW / 2);
  }

  colourOf(kind, name) {
    const key = kind + name;
    if (!this.colours.has(key)) this.colours.set(key, colour(kind, name));
    return this.colours.get(key);
  }

  box(at) {
    const { start, time, depth, lane } = this.frames;
    return [(start[at] - this.start) * this.pixels, this.tops[lane[at]] + ROW * depth[at], time[at] * this.pixels];
  }

  frameAt(event) {
    const time = this.start + event.offsetX / this.pixels;
    const slack = 1 / this.pixels;
    let found = -1;
    for (let at = 0; at < this.frames.lane.length; at++) {
      const start = this.frames.start[at];
      if (time < start || time > start + Math.max(this.frames.time[at], slack)) continue;
      const y = this.box(at)[1];
      if (event.offsetY >= y && event.offsetY < y + ROW) found = at;
    }
    return found;
  }

  hover(event) {
    if (event.buttons) return;
    const at = this.frameAt(event);
    if (at < 0) hideTooltip();
    else showTooltip(this.frames.describe(at), event.clientX, event.clientY);
  }

  click(event) {
    if (this.dragged) return;
    const at = this.frameAt(event);
    if (at >= 0) this.select(at, true);
  }

  select(at, zoomed) {
    this.selected = at;
    if (zoomed) this.zoom(this.frames.start[at], this.frames.start[at] + this.frames.time[at]);
    else this.reveal(at);
    speak(this.frames.describe(at));
    this.onSelect(at);
  }

  // Move and scroll so far that a frame is in view.
  reveal(at) {
    const { start, time } = this.frames;
    const scroll = this.canvas.parentElement;
    const top = this.box(at)[1];
    if (top < scroll.scrollTop) scroll.scrollTop = top - HEAD;
    if (top + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + 2 * ROW - scroll.clientHeight;
    const inside = start[at] + time[at] > this.start && start[at] < this.start + this.scale;
    if (inside) this.draw();
    else this.zoom(start[at] + time[at] / 2 - this.scale / 2, start[at] + time[at] / 2 + this.scale / 2);
  }

  key(event) {
    const { lane, depth, start, time } = this.frames;
    const at = this.selected;
    if (event.key === "Escape") return this.reset();
    if (event.key === "Enter" && at >= 0) return this.select(at, true);
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    if (at < 0) return lane.length ? this.select(0, false) : undefined;
    const level = depth[at] + ({ ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0);
    const near = (other) => {
      if (lane[other] !== lane[at] || depth[other] !== level || other === at) return false;
      if (event.key === "ArrowLeft") return start[other] <= start[at];
      if (event.key === "ArrowRight") return start[other] >= start[at];
      if (event.key === "ArrowUp") return start[other] <= start[at] && start[other] + time[other] >= start[at] + time[at];
      return start[other] >= start[at] && start[other] <= start[at] + time[at];
    };
    let next = -1;
    const later = event.key === "ArrowLeft" || event.key === "ArrowUp";
    for (let other = 0; other < lane.length; other++) {
      if (near(other) && (next < 0 || start[other] > start[next] === later)) next = other;
    }
    if (next >= 0) this.select(next, false);
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const factor = Math.exp(event.deltaY / 300);
    const centre = this.start + event.offsetX / this.pixels;
    this.zoom(centre - (centre - this.start) * factor, centre + (this.start + this.scale - centre) * factor);
  }

  drag(event) {
    const from = event.clientX;
    const { start, scale } = this;
    this.dragged = false;
    const move = (moved) => {
      if (Math.abs(moved.clientX - from) < 4 && !this.dragged) return;
      this.dragged = true;
      hideTooltip();
      const shift = (from - moved.clientX) / this.pixels;
      this.zoom(start + shift, start + shift + scale);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
  }
}
