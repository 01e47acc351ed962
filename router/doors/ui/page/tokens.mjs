// The tokens of an answer with their probabilities: what to write for each and how to colour it.

// Below these probabilities a token is coloured by the next stronger colour.
const STEPS = [0.9, 0.5, 0.2, 0.05];

// 0 (as good as sure) .. 4 (hardly to be expected).
export function surprise(logprob) {
  const probability = Math.exp(logprob);
  let step = 0;
  while (step < STEPS.length && probability < STEPS[step]) ++step;
  return step;
}

export function percent(logprob) {
  const share = 100 * Math.exp(logprob);
  if (share >= 99.95) return '100 %';
  if (share >= 10) return `${share.toFixed(0)} %`;
  if (share >= 0.1) return `${share.toFixed(1)} %`;
  return '< 0.1 %';
}

function hex(bytes) {
  return bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, '0')).join(' ');
}

// Text as it can be read in one line: what has no ink gets some.
export function visible(text) {
  return text.replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/\r/g, '␍')
      .replace(/^ | $/g, '␣')
      .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '·');
}

// A token alone, as for a list of alternatives: text, or bytes that are no whole character.
export function tokenText({token, bytes}) {
  if (!Array.isArray(bytes)) return visible(String(token ?? ''));
  try {
    return visible(new TextDecoder('utf-8', {fatal: true, ignoreBOM: true})
        .decode(new Uint8Array(bytes)));
  } catch {
    return `‹${hex(bytes)}›`;
  }
}

// Writes tokens in their order. A character of several tokens is the last one's text; those before
// it show their bytes.
export class TokenReader {
  #decoder = new TextDecoder('utf-8', {ignoreBOM: true});

  read(entry, id) {
    const own = Array.isArray(entry.bytes) ?
        this.#decoder.decode(new Uint8Array(entry.bytes), {stream: true}) :
        String(entry.token ?? '');
    const part = own === '' && entry.bytes?.length > 0;
    return {
      text: part ? `‹${hex(entry.bytes)}›` : own,
      part,
      name: tokenText(entry),
      id,
      logprob: Number(entry.logprob),
      alternatives: (entry.top_logprobs ?? []).map(
          (one) => ({name: tokenText(one), logprob: Number(one.logprob)})),
    };
  }
}

// What a screen reader says of a token.
export function spoken({name, logprob, alternatives}) {
  const others = alternatives.map((one) => `${one.name} ${percent(one.logprob)}`).join(', ');
  return `${name}, ${percent(logprob)}${others === '' ? '' : `; likeliest: ${others}`}`;
}
