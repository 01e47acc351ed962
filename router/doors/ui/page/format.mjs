// Numbers as the page writes them.

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  if (seconds >= 10) return `${seconds.toFixed(0)} s`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  const ms = 1000 * seconds;
  return ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(1)} ms`;
}

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (Number.isInteger(value) || value >= 100) {
    return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f');
  }
  return value.toFixed(1);
}

// 134515008 is 135 M.
export function large(value) {
  if (!Number.isFinite(value)) return '–';
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M']]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return number(value);
}
