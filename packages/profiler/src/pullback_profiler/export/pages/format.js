// Numbers as text, and elements whose text is never read as HTML.

const byId = (id) => document.getElementById(id);

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function rounded(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

function inUnits(value, units) {
  const [size, unit] = units.find(([limit]) => Math.abs(value) >= limit) || units[units.length - 1];
  return `${rounded(value / size)} ${unit}`;
}

const TIME_UNITS = [[1e6, "s"], [1e3, "ms"], [1, "µs"]];
const MEMORY_UNITS = [[2 ** 30, "GB"], [2 ** 20, "MB"], [2 ** 10, "KB"]];
const FLOP_UNITS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"], [1, ""]];

const formatTime = (microseconds) => inUnits(microseconds, TIME_UNITS);
const formatCount = (count) => count.toLocaleString("en");
const formatShare = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(2)} %` : "–");
const formatMemory = (bytes) => (Math.abs(bytes) < 1024 ? `${bytes} B` : inUnits(bytes, MEMORY_UNITS));
const formatFlops = (flops, unit = "FLOP") => (flops > 0 ? inUnits(flops, FLOP_UNITS) + unit : "–");

// "1.5 s" for "1.500 s" and "20 ms" for "20.00 ms", as axes have it.
const trimmed = (text) => text.replace(/(\.\d*?)0+ /, (_, kept) => (kept === "." ? " " : `${kept} `));

// Numbers for an axis: round ones from low to high, about `count` of them.
function ticks(low, high, count, base = 10) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const factors = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = power * factors.find((factor) => power * factor >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high * (1 + 1e-9); at += step) found.push(at);
  return found;
}

function showTooltip(text, x, y) {
  const tooltip = byId("tooltip");
  tooltip.textContent = text;
  tooltip.hidden = false;
  const room = innerWidth - tooltip.offsetWidth - 8;
  tooltip.style.left = `${Math.max(8, Math.min(x + 14, room))}px`;
  const below = y + 16 + tooltip.offsetHeight < innerHeight;
  tooltip.style.top = `${Math.max(8, below ? y + 16 : y - 12 - tooltip.offsetHeight)}px`;
}

function hideTooltip() {
  byId("tooltip").hidden = true;
}

function speak(text) {
  byId("spoken").textContent = text;
}
