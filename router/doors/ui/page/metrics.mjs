// Reads the Prometheus text format (version 0.0.4) and works out what changed between two readings.

const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*,?\s*/y;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$/;
const ESCAPES = {n: '\n', '"': '"', '\\': '\\'};

function readLabels(text) {
  const labels = {};
  LABEL.lastIndex = 0;
  for (let match; LABEL.lastIndex < text.length && (match = LABEL.exec(text)) !== null;) {
    labels[match[1]] = match[2].replace(/\\(.)/g, (all, c) => ESCAPES[c] ?? all);
  }
  return labels;
}

function readNumber(text) {
  if (/^[+]?inf/i.test(text)) return Infinity;
  if (/^-inf/i.test(text)) return -Infinity;
  return Number(text);
}

// Map of a name to its series, [{labels, value}]. Lines that are none are left out.
export function parseMetrics(text) {
  const families = new Map();
  for (const line of text.split('\n')) {
    if (line === '' || line[0] === '#') continue;
    const match = SAMPLE.exec(line);
    if (match === null) continue;
    const [, name, labels, value] = match;
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({labels: readLabels(labels ?? ''), value: readNumber(value)});
  }
  return families;
}

const fits = (labels, wanted) =>
    Object.entries(wanted).every(([name, value]) => labels[name] === value);

// Sum of the series of `name` that carry the labels; 0 where there is none.
export function sum(families, name, wanted = {}) {
  let total = 0;
  for (const {labels, value} of families.get(name) ?? []) {
    if (fits(labels, wanted)) total += value;
  }
  return total;
}

// The label's value of the one series that is 1, as weft_server_state has it; null where none is.
export function stateOf(families, name, label) {
  const found = (families.get(name) ?? []).find(({value}) => value === 1);
  return found?.labels[label] ?? null;
}

// {count, sum, buckets: [[upper bound, cumulative count] ...]}, summed over all series.
export function histogram(families, name, wanted = {}) {
  const counts = new Map();
  for (const {labels, value} of families.get(`${name}_bucket`) ?? []) {
    if (!fits(labels, wanted)) continue;
    const bound = readNumber(labels.le ?? '');
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  return {
    count: sum(families, `${name}_count`, wanted),
    sum: sum(families, `${name}_sum`, wanted),
    buckets: [...counts].sort((a, b) => a[0] - b[0]),
  };
}

// What came between two readings of a histogram. A server that started anew counts from zero.
export function difference(later, earlier) {
  if (earlier === null || later.count < earlier.count) return later;
  const before = new Map(earlier.buckets);
  return {
    count: later.count - earlier.count,
    sum: later.sum - earlier.sum,
    buckets: later.buckets.map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)]),
  };
}

// The q-quantile by linear interpolation inside its bucket, as histogram_quantile does; null
// without observations. In the last bucket it is that bucket's lower bound.
export function quantile({count, buckets}, q) {
  if (count <= 0 || buckets.length === 0) return null;
  const rank = q * buckets[buckets.length - 1][1];
  let lower = 0, below = 0;
  for (const [bound, cumulative] of buckets) {
    if (cumulative >= rank && cumulative > below) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * (rank - below) / (cumulative - below);
    }
    lower = bound;
    below = cumulative;
  }
  return lower;
}

// A counter's increase by second; null where it went back or no time passed.
export function rate(later, earlier, seconds) {
  return seconds > 0 && later >= earlier ? (later - earlier) / seconds : null;
}
