// The form of settings: key, system prompt, sampling, JSON schema, token colours. Values stay in
// this tab (sessionStorage), the key in an entry of its own, and nothing is written anywhere else.

import {byId, make} from './dom.mjs';
import {PARAMETERS, rangeText, readParameter, readSchema} from './parameters.mjs';

const KEY = 'weft.key', VALUES = 'weft.settings';
export const ALTERNATIVES = {name: 'top_logprobs', label: 'Alternatives', kind: 'whole', min: 0,
                             max: 20, step: 1, usual: '5'};

// Of tokens.mjs' surprise().
const LEGEND = ['90 %', '50 %', '20 %', '5 %', 'less'];

function read(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name, text) {
  try {
    if (text === '') {
      sessionStorage.removeItem(name);
    } else {
      sessionStorage.setItem(name, text);
    }
  } catch {
    // Storage is denied: the field itself has it until the page is left.
  }
}

export class Settings {
  #fields = new Map();
  #form = byId('settings-form');

  // `onColours(on)`: the switch of token colours.
  constructor(onColours) {
    this.onColours = onColours;
    this.#build();
    this.#load();
    this.#form.addEventListener('submit', (event) => event.preventDefault());
    this.#form.addEventListener('input', (event) => this.#changed(event.target));
    byId('reset').addEventListener('click', () => this.#reset());
  }

  get key() {
    return this.#fields.get('key').input.value.trim();
  }

  get system() {
    return this.#fields.get('system').input.value;
  }

  get colours() {
    return this.#fields.get('colours').input.checked;
  }

  // {values, responseFormat, topLogprobs}, or {wrong: the first field that is}, which then says so.
  collect() {
    const values = {};
    let wrong = null, responseFormat, topLogprobs;
    const take = (name, result, put) => {
      this.setError(name, result.error ?? '');
      if (result.error !== undefined) wrong ??= name;
      if (result.value !== undefined) put(result.value);
    };
    for (const parameter of PARAMETERS) {
      take(parameter.name, this.#readField(parameter), (value) => {
        values[parameter.name] = value;
      });
    }
    take('schema', readSchema(this.#fields.get('schema').input.value), (value) => {
      responseFormat = value;
    });
    take(ALTERNATIVES.name, this.#readField(ALTERNATIVES), (value) => {
      topLogprobs = value;
    });
    if (wrong !== null) return {wrong};
    return {values, responseFormat,
            topLogprobs: this.colours ? topLogprobs ?? Number(ALTERNATIVES.usual) : undefined};
  }

  label(name) {
    return PARAMETERS.find((one) => one.name === name)?.label ?? this.#fields.get(name).label;
  }

  focus(name) {
    const {input} = this.#fields.get(name);
    const group = input.closest('details');
    if (group !== null) group.open = true;
    input.focus({preventScroll: true});
    // With what is said of it.
    input.closest('.field').scrollIntoView({block: 'center'});
  }

  // `text` '' takes an error away.
  setError(name, text) {
    const {input, error} = this.#fields.get(name);
    error.textContent = text;
    error.hidden = text === '';
    if (text === '') {
      input.removeAttribute('aria-invalid');
    } else {
      input.setAttribute('aria-invalid', 'true');
      const group = input.closest('details');
      if (group !== null) group.open = true;
    }
  }

  setSeed(text) {
    const {input} = this.#fields.get('seed');
    input.value = text;
    this.#changed(input);
  }

  // Limits of the model that is served.
  showInfo(info) {
    const {about} = this.#fields.get('max_tokens');
    about.textContent = `${info.max_total_tokens} with the prompt`;
  }

  #readField(parameter) {
    const {input} = this.#fields.get(parameter.name);
    // A number field that holds no number says that it is empty.
    if (input.validity.badInput) return {error: `must be ${rangeText(parameter)}`};
    return readParameter(parameter, input.value);
  }

  #add(name, label, input, {hint, wide = false} = {}) {
    const id = `field-${name}`;
    const error = make('p', {id: `${id}-error`, class: 'field-error', hidden: true});
    input.id = id;
    input.name = name;
    input.setAttribute('aria-describedby',
                       hint === undefined ? error.id : `${id}-hint ${error.id}`);
    const about = make('p', {id: `${id}-hint`, class: 'hint'}, hint ?? '');
    this.#fields.set(name, {input, error, label, about});
    return make('div', {class: wide ? 'field wide' : 'field'},
        make('label', {for: id}, label), input,
        hint === undefined ? null : about, error);
  }

  #parameter(parameter) {
    const {name, kind, min, max, open, step, usual, hint} = parameter;
    const label = parameter.short ?? parameter.label;
    if (kind === 'lines') {
      const box = make('textarea', {rows: 2, placeholder: usual, spellcheck: false});
      return this.#add(name, label, box, {wide: true});
    }
    const input = kind === 'seed' ?
        make('input', {type: 'text', inputmode: 'numeric', placeholder: usual, spellcheck: false}) :
        make('input', {type: 'number', step, placeholder: usual, inputmode: 'decimal',
                       min: open ? undefined : min, max: name === 'max_tokens' ? undefined : max,
                       title: rangeText(parameter)});
    return this.#add(name, label, input, {hint});
  }

  #build() {
    const key = make('input', {type: 'password', placeholder: 'if the server asks for one',
                               autocomplete: 'off', spellcheck: false});
    const colours = make('input', {type: 'checkbox', id: 'field-colours', name: 'colours'});
    this.#fields.set('colours', {input: colours, error: make('p'), label: 'Token colours'});
    const some = (names) => names.map(
        (name) => this.#parameter(PARAMETERS.find((one) => one.name === name)));
    this.#form.append(
        this.#add('key', 'API key', key,
                  {wide: true, hint: 'Kept in this tab until it is closed.'}),
        this.#add('system', 'System prompt',
                  make('textarea', {rows: 3, placeholder: 'none'}), {wide: true}),
        make('div', {class: 'fields'}, ...some(['temperature', 'max_tokens'])),
        make('details', {open: true}, make('summary', {}, 'Sampling'),
             make('div', {class: 'fields'}, ...some(['top_p', 'top_k', 'min_p', 'typical_p'])),
             make('fieldset', {class: 'fields three'}, make('legend', {}, 'Penalties'),
                  ...some(['repetition_penalty', 'presence_penalty', 'frequency_penalty'])),
             make('div', {class: 'fields'}, ...some(['seed', 'stop']))),
        make('details', {}, make('summary', {}, 'JSON schema'),
             this.#add('schema', 'Schema of the answer',
                       make('textarea', {rows: 6, spellcheck: false, class: 'mono',
                                         placeholder: '{"type": "object", …}'}),
                       {wide: true, hint: 'Sent as response_format; empty: free text.'})),
        make('details', {open: true}, make('summary', {}, 'Tokens'),
             make('div', {class: 'fields'},
                  make('div', {class: 'field check wide'}, colours,
                       make('label', {for: 'field-colours'}, 'Colour by probability')),
                  this.#parameter(ALTERNATIVES)),
             make('p', {class: 'legend'}, 'Likely at', ...LEGEND.map((text, step) =>
                 make('span', {class: `token s${step}`}, text)))));
  }

  #load() {
    let values = {};
    try {
      values = JSON.parse(read(VALUES) ?? '{}');
    } catch {
      // Somebody else's: left alone until the next change.
    }
    for (const [name, {input}] of this.#fields) {
      if (name === 'key') {
        input.value = read(KEY) ?? '';
      } else if (input.type === 'checkbox') {
        input.checked = values[name] === true;
      } else if (typeof values[name] === 'string') {
        input.value = values[name];
      }
    }
  }

  #changed(input) {
    if (input.name === 'key') {
      write(KEY, input.value.trim());
    } else {
      this.#save();
    }
    if (input.name === 'colours') {
      this.onColours(input.checked);
    } else if (this.#fields.has(input.name)) {
      this.setError(input.name, '');
    }
  }

  #save() {
    const values = {};
    for (const [name, {input}] of this.#fields) {
      if (name !== 'key') values[name] = input.type === 'checkbox' ? input.checked : input.value;
    }
    write(VALUES, JSON.stringify(values));
  }

  // All but the key.
  #reset() {
    for (const [name, {input}] of this.#fields) {
      if (name === 'key') continue;
      if (input.type === 'checkbox') {
        input.checked = false;
      } else {
        input.value = '';
      }
      this.setError(name, '');
    }
    this.#save();
    this.onColours(false);
  }
}
