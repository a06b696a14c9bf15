// Everything that is known of the calls of one name, of one call, or of a line of the program.

const partOf = (title, ...content) => [element("h3", {}, title), ...content];
const listOf = (pairs) => element("dl", {}, ...pairs.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
const stackOf = (frames) => element("ol", { className: "stack" }, ...frames.map((frame) => element("li", {}, frame)));

function heading(kind, name) {
  const swatch = element("span", { className: "swatch", title: KINDS[kind].name });
  swatch.style.background = colour(kind, name);
  return element("h2", {}, swatch, name);
}

function tableOf(headers, lines) {
  const row = (cells, tag) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  return element("table", {}, element("thead", {}, row(headers, "th")), element("tbody", {}, ...lines.map((cells) => row(cells, "td"))));
}

class Detail {
  constructor(data, { onSelect, onCall }) {
    this.data = data;
    this.onSelect = onSelect;
    this.onCall = onCall;
  }

  show(...content) {
    byId("detail").replaceChildren(...content);
  }

  link(row, count) {
    const { name } = this.data.rows[row];
    return [element("button", { type: "button", className: "link", onclick: () => this.onSelect(row) }, name), formatCount(count)];
  }

  // A line of the program, of which only the sum over its calls is known.
  line(frames, at) {
    const { time, count } = this.data.paths;
    this.show(heading("line", frames.name(at)), listOf([
      ["CPU total", formatTime(time[at])],
      ["Share of self CPU", formatShare(time[at], this.data.selfCpu)],
      ["Calls made from here", formatCount(count[at])],
    ]));
  }

  name(at, call = -1) {
    const row = this.data.rows[at];
    const content = [heading(row.kind, row.name)];
    if (call >= 0) content.push(...this.call(call));
    content.push(...partOf("All calls", this.numbers(row)));
    this.addShapes(content, row);
    this.addNames(content, row.kind === "node" || row.kind === "engine" ? "Forward" : "Backward", row.partners);
    this.addNames(content, "Called by", row.callers);
    this.addNames(content, "Calls inside", row.callees);
    for (const [number, stack] of row.stacks.entries()) {
      const title = number ? "" : "Where in the program: ";
      content.push(...partOf(`${title}${formatCount(stack.count)} calls, ${formatTime(stack.time)}`, stackOf(stack.frames)));
    }
    if (row.otherStacks) content.push(element("p", { className: "note" }, `and ${formatCount(row.otherStacks)} other places`));
    this.show(...content);
  }

  numbers(row) {
    const { data } = this;
    const pairs = [["Count", formatCount(row.count)]];
    if (row.kind !== "kernel") {
      pairs.push(
        ["Self CPU", `${formatTime(row.selfCpu)} (${formatShare(row.selfCpu, data.selfCpu)})`],
        ["CPU total", `${formatTime(row.cpu)} (${formatShare(row.cpu, data.selfCpu)})`]);
    }
    if (data.selfDevice > 0) {
      pairs.push(
        [`Self ${data.device}`, `${formatTime(row.selfDevice)} (${formatShare(row.selfDevice, data.selfDevice)})`],
        [`${data.device} total`, formatTime(row.deviceTime)]);
    }
    pairs.push(["Shortest call", formatTime(row.least)], ["Mean call", formatTime(row.mean)], ["Longest call", formatTime(row.most)]);
    if (data.recorded.memory) pairs.push(["CPU memory", formatMemory(row.cpuMemory)], ["Self CPU memory", formatMemory(row.selfCpuMemory)]);
    if (data.recorded.memory && row.deviceMemory) pairs.push([`${data.device} memory`, formatMemory(row.deviceMemory)]);
    if (row.flops > 0) {
      const seconds = (row.deviceTime || row.cpu) / 1e6;
      pairs.push(["FLOPs", formatFlops(row.flops)], ["Rate", seconds > 0 ? formatFlops(row.flops / seconds, "FLOP/s") : "–"]);
    }
    return listOf(pairs);
  }

  // One call, with the way to its partner in forward or backward.
  call(at) {
    const { calls, shapes, stacks, lanes } = this.data;
    const content = [listOf([
      ["Start", formatTime(calls.start[at])],
      ["Time", formatTime(calls.time[at])],
      ["Itself", formatTime(calls.self[at])],
      ["Ran in", lanes[calls.lane[at]]],
    ])];
    if (calls.shape[at] >= 0) content.push(element("p", { className: "stack" }, shapes[calls.shape[at]]));
    if (calls.stack[at] >= 0) content.push(stackOf(stacks[calls.stack[at]]));
    const partner = calls.partner[at];
    if (partner >= 0) {
      const name = this.data.rows[calls.row[partner]].name;
      content.push(element("p", {}, calls.start[partner] < calls.start[at] ? "Its forward: " : "Its backward: ",
        element("button", { type: "button", className: "link", onclick: () => this.onCall(partner) }, name)));
    }
    return partOf("This call", ...content);
  }

  addShapes(content, row) {
    if (row.shapes.length === 0) return;
    content.push(...partOf("Shapes of inputs", tableOf(["Shapes", "Calls", "Total", "Mean"],
      row.shapes.map(({ text, count, time }) => [text, formatCount(count), formatTime(time), formatTime(time / count)]))));
    if (row.otherShapes) content.push(element("p", { className: "note" }, `and ${formatCount(row.otherShapes)} others`));
  }

  addNames(content, title, counts) {
    if (counts.length) content.push(...partOf(title, tableOf(["Name", "Calls"], counts.map(([row, count]) => this.link(row, count)))));
  }
}
