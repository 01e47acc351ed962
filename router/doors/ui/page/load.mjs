// The server's load over the last minutes: a bounded list of readings of /metrics, and the figures
// that the page draws of them. Knows no DOM.

import {difference, histogram, quantile, rate, stateOf, sum} from './metrics.mjs';

export const POINTS_MAX = 90;
// Latencies are those of the requests of so many seconds.
const WINDOW_S = 60;

function reading(families, at) {
  const kv = (state) => sum(families, 'weft_kv_blocks', {state});
  return {
    at,
    state: stateOf(families, 'weft_server_state', 'state'),
    running: sum(families, 'weft_num_requests_running'),
    waiting: sum(families, 'weft_num_requests_waiting'),
    kv: {used: kv('used'), cached: kv('cached'), free: kv('free')},
    generated: sum(families, 'weft_generation_tokens_total'),
    prompted: sum(families, 'weft_prompt_tokens_total'),
    batch: histogram(families, 'weft_batch_size', {phase: 'decode'}),
    firstToken: histogram(families, 'weft_time_to_first_token_seconds'),
    interToken: histogram(families, 'weft_inter_token_latency_seconds'),
  };
}

const quantiles = (later, earlier) => {
  const between = difference(later, earlier);
  return {p50: quantile(between, 0.5), p95: quantile(between, 0.95), count: between.count};
};

export class Load {
  #readings = [];
  #points = [];

  // `at`: seconds. Returns the figures of now.
  add(families, at) {
    const now = reading(families, at);
    const last = this.#readings[this.#readings.length - 1] ?? null;
    const restarted = last !== null && now.generated < last.generated;
    if (restarted) this.#readings = [];
    this.#readings.push(now);
    // One reading from before the window stays, as what the window's figures start from.
    while (this.#readings.length > 2 && this.#readings[1].at <= at - WINDOW_S) {
      this.#readings.shift();
    }
    const first = this.#readings.length > 1 ? this.#readings[0] : null;
    const before = restarted ? null : last;
    const steps = before === null ? null : difference(now.batch, before.batch);
    const seconds = before === null ? 0 : at - before.at;
    const blocks = now.kv.used + now.kv.cached + now.kv.free;
    // Without an earlier reading nobody knows how old what was counted is.
    const none = {p50: null, p95: null, count: 0};
    const point = {
      at,
      state: now.state,
      running: now.running,
      waiting: now.waiting,
      kv: now.kv,
      kvShare: blocks > 0 ? now.kv.used / blocks : 0,
      rows: steps !== null && steps.count > 0 ? steps.sum / steps.count : 0,
      generatedRate: before === null ? null : rate(now.generated, before.generated, seconds),
      promptedRate: before === null ? null : rate(now.prompted, before.prompted, seconds),
      firstToken: first === null ? none : quantiles(now.firstToken, first.firstToken),
      interToken: first === null ? none : quantiles(now.interToken, first.interToken),
    };
    this.#points.push(point);
    if (this.#points.length > POINTS_MAX) this.#points.shift();
    return point;
  }

  // Oldest first, at most POINTS_MAX.
  get points() {
    return this.#points;
  }
}
