// The conversation: takes what the user writes, asks the server, shows the answer while it streams.
// It is kept in this page's memory alone.

import {streamChat} from './api.mjs';
import {announce, byId, make} from './dom.mjs';
import {Answer, UserMessage} from './message.mjs';
import {chatBody, fieldOf} from './parameters.mjs';
import {AnswerClock} from './stats.mjs';

// What is read out of an answer once it is complete.
const SPOKEN_MAX = 600;
// So near to its end the log follows what comes.
const FOLLOW_PX = 48;

const EXAMPLES = [
  'Tell me about the sea in three sentences.',
  'Write a haiku about spring rain.',
  'List three uses of a paper clip, as a table.',
];

const seconds = () => performance.now() / 1000;

export class Chat {
  #entries = [];
  #abort = null;
  #log = byId('log');
  #prompt = byId('prompt');

  // `showField(name)`: brings a field of the settings before the user.
  constructor(settings, showField) {
    this.settings = settings;
    this.showField = showField;
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#prompt.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') this.stop();
    });
    byId('stop').addEventListener('click', () => this.stop());
    byId('clear').addEventListener('click', () => this.#clear());
    byId('examples').append(...EXAMPLES.map((text) => make('li', {},
        make('button', {type: 'button', class: 'example', click: () => this.#start(text)}, text))));
  }

  get busy() {
    return this.#abort !== null;
  }

  stop() {
    this.#abort?.abort();
  }

  #submit() {
    const text = this.#prompt.value;
    if (text.trim() === '' || this.busy) return;
    if (this.#start(text)) this.#prompt.value = '';
  }

  // False when a setting is wrong, which the user sees then.
  #start(text) {
    const request = this.busy ? null : this.#settle();
    if (request === null) return false;
    const entry = new UserMessage(text, () => this.#ask(entry));
    this.#entries.push(entry);
    byId('messages').append(entry.node);
    this.#ask(entry, request);
    return true;
  }

  #settle() {
    const request = this.settings.collect();
    if (request.wrong === undefined) return request;
    this.showField(request.wrong);
    announce(`${this.settings.label(request.wrong)} is wrong.`);
    return null;
  }

  // Takes away what follows `last` and has the model answer it.
  async #ask(last, request = this.#settle()) {
    if (request === null || this.busy) return;
    this.#cut(last);
    const answer = new Answer(() => this.#ask(last), request.topLogprobs !== undefined,
                              (grow) => this.#follow(grow));
    const body = chatBody({messages: this.#messages(), ...request});
    this.#entries.push(answer);
    this.#follow(() => byId('messages').append(answer.node), true);
    this.#abort = new AbortController();
    this.#showBusy();
    announce('The model answers.');
    const clock = new AnswerClock(seconds());
    const said = {seed: request.values.seed ?? null, error: null};
    try {
      for await (const chunk of streamChat(body, this.settings.key, this.#abort.signal)) {
        this.#take(chunk, answer, clock, said);
      }
    } catch (error) {
      said.error = error;
    }
    this.#abort = null;
    this.#finish(answer, clock, said);
    this.#showBusy();
  }

  #take(chunk, answer, clock, said) {
    if (chunk.isToken) clock.token(seconds());
    clock.finish = chunk.finish ?? clock.finish;
    clock.usage = chunk.usage ?? clock.usage;
    // One that was given may be longer than what a number of JavaScript holds.
    said.seed ??= chunk.seed;
    if (chunk.isToken) {
      this.#follow(() => answer.add(chunk.text, chunk.tokens, chunk.ids));
    }
  }

  #finish(answer, clock, {seed, error}) {
    const stopped = error !== null && error.name === 'AbortError';
    if (stopped) clock.finish = 'stopped by you';
    this.#follow(() => {
      answer.end(error === null || clock.tokens > 0 || stopped ? clock.lines() : [],
                 seed === null ? [] : [this.#seedButton(seed)]);
      if (error !== null && !stopped) this.#showError(answer, error);
    });
    if (error === null || stopped) this.#announceAnswer(answer, stopped);
  }

  #announceAnswer(answer, stopped) {
    const {text} = answer;
    const cut = text.length > SPOKEN_MAX ? `${text.slice(0, SPOKEN_MAX)} …` : text;
    announce(`${stopped ? 'Stopped.' : 'Answer:'} ${cut}`);
  }

  #seedButton(seed) {
    const text = String(seed);
    return make('button', {type: 'button', class: 'quiet seed', title: 'Use this seed from now on',
                           click: () => {
      this.settings.setSeed(text);
      announce(`Seed ${text} is set.`);
    }}, `seed ${text}`);
  }

  #showError(answer, error) {
    const field = error.status === 401 ? 'key' : fieldOf(error.param ?? null);
    const later = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : '';
    const message = `${error.message}${later}`;
    const more = [];
    if (field !== null) {
      const text = field === 'key' ? 'Enter a key' : `Go to “${this.settings.label(field)}”`;
      more.push(make('button', {type: 'button', click: () => this.showField(field)}, text));
      this.settings.setError(field, error.message);
    }
    answer.fail(message, ...more);
    announce(`Error: ${message}`);
  }

  // What the model is told: what was said and answered, and the system prompt in front.
  #messages() {
    const messages = this.#entries.filter(({role, text}) => role === 'user' || text !== '')
        .map(({role, text}) => ({role, content: text}));
    const system = this.settings.system;
    return system.trim() === '' ? messages : [{role: 'system', content: system}, ...messages];
  }

  #cut(last) {
    const keep = this.#entries.indexOf(last) + 1;
    for (const {node} of this.#entries.splice(keep)) node.remove();
  }

  #clear() {
    this.stop();
    this.#entries = [];
    byId('messages').replaceChildren();
    this.#showBusy();
    this.#prompt.focus();
  }

  // Lets the page grow and keeps its end in sight, unless the user looks at something above.
  #follow(grow, always = false) {
    const log = this.#log;
    const follows = always || log.scrollHeight - log.scrollTop - log.clientHeight < FOLLOW_PX;
    grow();
    if (follows) log.scrollTop = log.scrollHeight;
  }

  #showBusy() {
    const {busy} = this;
    const stop = byId('stop'), send = byId('send');
    const focused = document.activeElement;
    byId('empty').hidden = this.#entries.length > 0;
    byId('clear').disabled = this.#entries.length === 0;
    stop.hidden = !busy;
    send.hidden = busy;
    for (const button of document.querySelectorAll('.asks')) button.disabled = busy;
    // The focus of what is gone.
    if (busy && (focused === send || focused === document.body || !focused.isConnected)) {
      stop.focus();
    } else if (!busy && focused === stop) {
      this.#prompt.focus();
    }
  }
}
