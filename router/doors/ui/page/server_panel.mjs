// The panel of the server: its model and limits of /info, its load of /metrics, asked every two
// seconds while somebody can see the page.

import {fetchInfo, fetchMetrics} from './api.mjs';
import {figure, Lines, niceMax, Shares, Strip} from './chart.mjs';
import {byId, make} from './dom.mjs';
import {duration, large, number} from './format.mjs';
import {Load, POINTS_MAX} from './load.mjs';
import {parseMetrics} from './metrics.mjs';

const POLL_MS = 2000;
// An answer that takes longer is none.
const PATIENCE_MS = 8000;

const FACTS = [
  ['Model', (info) => info.model_id],
  ['Family', (info) => info.model_family],
  ['Parameters', (info) => large(info.parameters)],
  ['Type, device', (info) => `${info.model_dtype}, ${info.model_device_type}`],
  ['Shards', (info) => number(info.shards)],
  ['Vocabulary', (info) => number(info.vocab_size)],
  ['Tokens of a request', (info) => number(info.max_total_tokens)],
  ['Requests at once', (info) => number(info.max_concurrent_requests)],
  ['Version', (info) => `${info.version} (${String(info.sha ?? '').slice(0, 12)})`],
];

const STATES = {
  starting: 'starting', loading: 'loading the model', warming: 'warming up', ready: 'ready',
  recovering: 'recovering', draining: 'shutting down', unreachable: 'not reachable',
};

export class ServerPanel {
  #load = new Load();
  #paused = false;
  #metricsOff = false;
  #info = null;
  #timer = 0;

  // `onInfo(info)`: the model is known, or another one.
  constructor(onInfo) {
    this.onInfo = onInfo;
    this.notice = make('p', {class: 'notice', role: 'status'});
    this.figures = this.#makeFigures();
    this.pictures = make('div', {class: 'pictures'},
        ...Object.values(this.figures).map(({node}) => node));
    this.facts = make('dl', {class: 'facts'});
    byId('server-body').append(this.notice, this.pictures, this.facts);
    this.#say('');
    const pause = byId('pause');
    pause.addEventListener('click', () => {
      this.#paused = !this.#paused;
      pause.setAttribute('aria-pressed', String(this.#paused));
      if (!this.#paused) this.#now();
    });
    document.addEventListener('visibilitychange', () => this.#now());
  }

  start() {
    this.#now();
  }

  #makeFigures() {
    const lines = ['key-0', 'key-1'];
    return {
      batch: figure('Batch, queue', new Strip(), ['runs', 'waits']),
      requests: figure('Requests', new Lines(2, POINTS_MAX), lines),
      speed: figure('Tokens/s', new Lines(2, POINTS_MAX), lines),
      kv: figure('KV blocks', new Shares(['used', 'cached', 'free']), ['used', 'cached', 'free']),
      kvHistory: figure('KV in use', new Lines(1, POINTS_MAX)),
      firstToken: figure('First token', new Lines(2, POINTS_MAX), lines),
      interToken: figure('Between tokens', new Lines(2, POINTS_MAX), lines),
    };
  }

  #now() {
    clearTimeout(this.#timer);
    if (document.visibilityState === 'visible' && !this.#paused) this.#poll();
  }

  async #poll() {
    await this.#ask();
    clearTimeout(this.#timer);
    if (document.visibilityState === 'visible' && !this.#paused) {
      this.#timer = setTimeout(() => this.#poll(), POLL_MS);
    }
  }

  async #ask() {
    let state = 'ready';
    try {
      const info = await fetchInfo(AbortSignal.timeout(PATIENCE_MS));
      if (JSON.stringify(info) !== JSON.stringify(this.#info)) this.#showInfo(info);
    } catch (error) {
      state = error.status === 503 ? 'loading' : 'unreachable';
    }
    if (!this.#metricsOff && state !== 'unreachable') state = await this.#askMetrics() ?? state;
    this.#showState(state);
  }

  // The server's state by its metrics, or null.
  async #askMetrics() {
    try {
      const families = parseMetrics(await fetchMetrics(AbortSignal.timeout(PATIENCE_MS)));
      const point = this.#load.add(families, performance.now() / 1000);
      this.#say('');
      this.#show(point);
      return point.state;
    } catch (error) {
      this.#metricsOff = error.status === 404;
      this.#say(this.#metricsOff ?
          'No pictures of the load: this server was started with --public-ops=false, and its ' +
          'metrics are on its admin port (--admin-port).' :
          `The metrics cannot be read: ${error.message}`);
      this.pictures.hidden = this.#metricsOff;
      return null;
    }
  }

  #say(text) {
    if (this.notice.textContent !== text) this.notice.textContent = text;
    this.notice.hidden = text === '';
  }

  #showState(state) {
    const pill = byId('state'), text = STATES[state] ?? state;
    pill.dataset.state = state;
    if (byId('state-text').textContent !== text) byId('state-text').textContent = text;
  }

  #showInfo(info) {
    this.#info = info;
    this.facts.replaceChildren(...FACTS.map(([name, value]) =>
        make('div', {}, make('dt', {}, name), make('dd', {}, String(value(info) ?? '–')))));
    this.onInfo(info);
  }

  #show(now) {
    const points = this.#load.points;
    const all = (get) => points.map(get);
    const most = (values) => Math.max(0, ...values.filter((value) => value !== null));
    const {batch, requests, kv, kvHistory, speed, firstToken, interToken} = this.figures;

    batch.setValues(`${number(now.running)} running`, `${number(now.waiting)} waiting`,
                    `${number(now.rows)} in a step`);
    batch.picture.show(now.running, now.waiting,
        `${now.running} requests run, ${now.waiting} wait; ` +
        `${number(now.rows)} sequences in a decode step`);

    const running = all((p) => p.running), waiting = all((p) => p.waiting);
    this.#showLines(requests, [running, waiting], number,
        Math.max(most(running), most(waiting), 4),
        ['running', 'waiting'],
        `Requests over the last minutes: at most ${most(running)} running and ` +
        `${most(waiting)} waiting`);

    const generated = all((p) => p.generatedRate), prompted = all((p) => p.promptedRate);
    this.#showLines(speed, [generated, prompted], number,
        Math.max(most(generated), most(prompted), 10),
        [`${number(now.generatedRate)} out`, `${number(now.promptedRate)} in`],
        `Tokens in a second: ${number(now.generatedRate)} generated, at most ` +
        `${number(most(generated))}; ${number(now.promptedRate)} of prompts`);

    const {used, cached, free} = now.kv;
    kv.setValues(`${number(used)} used`, `${number(cached)} cached`, `${number(free)} free`);
    kv.picture.show([used, cached, free],
        `KV blocks: ${used} in use, ${cached} cached, ${free} free`);
    const share = (value) => `${(100 * value).toFixed(0)} %`;
    const shares = all((p) => p.kvShare);
    this.#showLines(kvHistory, [shares], share, 1, [share(now.kvShare)],
        `Share of KV blocks in use: ${share(now.kvShare)}, at most ${share(most(shares))}`);

    this.#showLatency(firstToken, 'Time to first token', all((p) => p.firstToken), 0.1);
    this.#showLatency(interToken, 'Time between two tokens', all((p) => p.interToken), 0.01);
  }

  #showLines(shown, series, format, most, values, label) {
    const max = niceMax(most);
    shown.setValues(...values);
    shown.setScale(format(max));
    shown.picture.show(series, max, label);
  }

  // Median filled, 95th percentile as a line.
  #showLatency(shown, name, values, least) {
    const now = values[values.length - 1];
    const p50 = values.map((value) => value.p50), p95 = values.map((value) => value.p95);
    this.#showLines(shown, [p50, p95], duration,
        Math.max(least, ...p95.filter((value) => value !== null)),
        [`median ${duration(now.p50)}`, `p95 ${duration(now.p95)}`],
        now.p50 === null ? `${name}: no request in the last minute` :
        `${name} in the last minute: median ${duration(now.p50)}, 95th percentile ` +
        `${duration(now.p95)}`);
  }
}
