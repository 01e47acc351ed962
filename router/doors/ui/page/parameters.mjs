// What a request may carry and how far each number goes: the ranges of docs/API.md, which a test
// holds against this table. The server checks again; this says it beside the field, and sooner.

const SEED_MIN = -(2n ** 63n);
const SEED_MAX = 2n ** 64n - 1n;
export const STOPS_MAX = 16;
export const STOP_BYTES_MAX = 1024;

// `open`: the least value itself is outside. `usual`: what holds where the field is empty.
export const PARAMETERS = [
  {name: 'temperature', label: 'Temperature', kind: 'number', min: 0, max: 100, step: 0.1,
   usual: '1', hint: '0 takes the likeliest token'},
  {name: 'max_tokens', label: 'Max tokens', kind: 'whole', min: 1, max: 2 ** 31 - 1, step: 1,
   usual: 'what fits', hint: 'new tokens at most'},
  {name: 'top_p', label: 'Top-p', kind: 'number', min: 0, open: true, max: 1, step: 0.05,
   usual: '1'},
  {name: 'top_k', label: 'Top-k', kind: 'whole', min: 0, max: 1048576, step: 1, usual: '0 = off'},
  {name: 'min_p', label: 'Min-p', kind: 'number', min: 0, max: 1, step: 0.01, usual: '0'},
  {name: 'typical_p', label: 'Typical-p', kind: 'number', min: 0, open: true, max: 1, step: 0.05,
   usual: '1'},
  {name: 'repetition_penalty', label: 'Repetition penalty', short: 'Repetition', kind: 'number',
   min: 0.01, max: 10, step: 0.05, usual: '1'},
  {name: 'presence_penalty', label: 'Presence penalty', short: 'Presence', kind: 'number',
   min: -2, max: 2, step: 0.1, usual: '0'},
  {name: 'frequency_penalty', label: 'Frequency penalty', short: 'Frequency', kind: 'number',
   min: -2, max: 2, step: 0.1, usual: '0'},
  {name: 'seed', label: 'Seed', kind: 'seed', usual: 'drawn', hint: 'any 64-bit number'},
  {name: 'stop', label: 'Stop strings', kind: 'lines', usual: 'one a line; \\n is a line break'},
];

export function rangeText({min, max, open, kind, name}) {
  if (kind === 'seed') return 'a whole number of 64 bits';
  if (name === 'max_tokens') return 'a whole number from 1 on';
  const what = kind === 'whole' ? 'a whole number' : 'a number';
  return open ? `${what} above ${min}, at most ${max}` : `${what} from ${min} to ${max}`;
}

function readSeed(text) {
  if (!/^[+-]?\d{1,20}$/.test(text)) return null;
  const value = BigInt(text.replace('+', ''));
  return value >= SEED_MIN && value <= SEED_MAX ? value : null;
}

const ESCAPES = {n: '\n', t: '\t', '\\': '\\'};

function readLines(text) {
  const lines = text.split('\n').filter((line) => line !== '')
      .map((line) => line.replace(/\\([nt\\])/g, (_, c) => ESCAPES[c]));
  if (lines.length > STOPS_MAX) return {error: `must be at most ${STOPS_MAX} lines`};
  const encoder = new TextEncoder();
  if (lines.some((line) => encoder.encode(line).length > STOP_BYTES_MAX)) {
    return {error: `must be at most ${STOP_BYTES_MAX} bytes each`};
  }
  return lines.length > 0 ? {value: lines} : {};
}

// {} for an empty field, {value}, or {error} in words that follow the field's name.
export function readParameter(parameter, text) {
  if (parameter.kind === 'lines') return readLines(text);
  const trimmed = text.trim();
  if (trimmed === '') return {};
  if (parameter.kind === 'seed') {
    const value = readSeed(trimmed);
    return value === null ? {error: `must be ${rangeText(parameter)}`} : {value};
  }
  const value = Number(trimmed);
  const {min, max, open, kind} = parameter;
  const good = Number.isFinite(value) && value >= min && value <= max &&
      !(open && value === min) && (kind !== 'whole' || Number.isInteger(value));
  return good ? {value} : {error: `must be ${rangeText(parameter)}`};
}

// The box of the JSON schema: {} when empty, {value: response_format}, or {error}.
export function readSchema(text) {
  if (text.trim() === '') return {};
  let schema;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    return {error: `is not JSON: ${error.message}`};
  }
  if (schema === null || typeof schema !== 'object' || Array.isArray(schema)) {
    return {error: 'must be a JSON object, as {"type": "object"}'};
  }
  return {value: {type: 'json_schema', json_schema: {name: 'answer', strict: true, schema}}};
}

// The body of a request as JSON text. `values`: by a parameter's name. A seed may be beyond what a
// number of JavaScript holds, so its digits are written as they are.
export function chatBody({messages, values, responseFormat, topLogprobs}) {
  const {seed, ...rest} = values;
  const body = {
    messages, ...rest, stream: true, stream_options: {include_usage: true}, return_token_ids: true,
  };
  if (responseFormat !== undefined) body.response_format = responseFormat;
  if (topLogprobs !== undefined) Object.assign(body, {logprobs: true, top_logprobs: topLogprobs});
  const text = JSON.stringify(body);
  return seed === undefined ? text : `${text.slice(0, -1)},"seed":${seed}}`;
}

// Which field of the page a server's `param` is about, or null.
export function fieldOf(param) {
  if (param === null) return null;
  const first = param.split(/[.[]/)[0];
  if (['response_format', 'json_schema', 'grammar'].includes(first)) return 'schema';
  if (first === 'top_logprobs' || first === 'logprobs') return 'top_logprobs';
  if (first === 'max_completion_tokens') return 'max_tokens';
  return PARAMETERS.some(({name}) => name === first) ? first : null;
}
