// What an answer took, as the client saw it: times of its own clock, counts of the server's.

import {duration, number} from './format.mjs';

const ENDS = {stop: 'ended by itself', length: 'reached the limit'};

export class AnswerClock {
  #sent;
  #first = null;
  #last = null;
  #tokens = 0;
  usage = null;
  finish = null;

  // `now` in seconds, as in all of these.
  constructor(now) {
    this.#sent = now;
  }

  token(now) {
    this.#first ??= now;
    this.#last = now;
    ++this.#tokens;
  }

  get firstTokenSeconds() {
    return this.#first === null ? null : this.#first - this.#sent;
  }

  get tokens() {
    return this.usage?.completion_tokens ?? this.#tokens;
  }

  // After the first token, which stands for the prompt; null while there is nothing to divide.
  get tokensPerSecond() {
    const seconds = this.#last - this.#first;
    return this.tokens > 1 && seconds > 0 ? (this.tokens - 1) / seconds : null;
  }

  // Lines for the foot of the answer.
  lines() {
    const lines = [`${number(this.tokens)} tokens`];
    if (this.#first !== null) lines.push(`first after ${duration(this.firstTokenSeconds)}`);
    if (this.tokensPerSecond !== null) lines.push(`${number(this.tokensPerSecond)} tokens/s`);
    if (this.usage !== null) {
      const cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
      lines.push(`prompt ${number(this.usage.prompt_tokens)}` +
                 (cached > 0 ? ` (${number(cached)} cached)` : ''));
    }
    if (this.finish !== null) lines.push(ENDS[this.finish] ?? this.finish);
    return lines;
  }
}
