// What the flame graph shows: single calls over time, or all calls of one call path as one frame.

function framesOverTime(data) {
  const { calls, rows } = data;
  return {
    lanes: data.lanes,
    end: data.wall,
    lane: calls.lane,
    start: calls.start,
    time: calls.time,
    depth: calls.depth,
    row: (at) => calls.row[at],
    name: (at) => rows[calls.row[at]].name,
    kind: (at) => rows[calls.row[at]].kind,
    describe: (at) =>
      `${rows[calls.row[at]].name}\n${formatTime(calls.time[at])}, itself ${formatTime(calls.self[at])}, ` +
      `at ${formatTime(calls.start[at])}`,
  };
}

// A path with children is as wide as its time; its children are ordered by time, the longest first.
function framesByPath(data) {
  const { paths, rows, lines } = data;
  const count = paths.row.length;
  const children = Array.from({ length: count }, () => []);
  const roots = data.lanes.map(() => []);
  for (let at = 0; at < count; at++) {
    (paths.parent[at] < 0 ? roots[paths.lane[at]] : children[paths.parent[at]]).push(at);
  }
  const start = new Array(count);
  const depth = new Array(count);
  const wholes = roots.map((pending) => {
    const place = (siblings, from, level) => {
      for (const at of siblings.sort((a, b) => paths.time[b] - paths.time[a])) {
        start[at] = from;
        depth[at] = level;
        from += paths.time[at];
      }
      return from;
    };
    const whole = place(pending, 0, 0);
    const waiting = [...pending];
    while (waiting.length) {
      const at = waiting.pop();
      place(children[at], start[at], depth[at] + 1);
      waiting.push(...children[at]);
    }
    return whole;
  });
  const name = (at) => (paths.row[at] < 0 ? lines[-1 - paths.row[at]] : rows[paths.row[at]].name);
  return {
    lanes: data.lanes,
    end: Math.max(...wholes, 0),
    lane: paths.lane,
    start,
    time: paths.time,
    depth,
    name,
    row: (at) => paths.row[at],
    kind: (at) => (paths.row[at] < 0 ? "line" : rows[paths.row[at]].kind),
    describe: (at) =>
      `${name(at)}\n${formatTime(paths.time[at])}, itself ${formatTime(paths.self[at])}, ` +
      `${formatCount(paths.count[at])} calls, ${formatShare(paths.time[at], wholes[paths.lane[at]])} of its thread`,
  };
}
