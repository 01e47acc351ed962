// An answer as a row of its tokens, each coloured by its probability; what else could have come
// stands in a tip beside the token that the pointer or the focus is on. One stop for the Tab key,
// arrow keys inside.

import {byId, make} from './dom.mjs';
import {percent, spoken, surprise, visible} from './tokens.mjs';

const MARGIN = 8;
// So long a pointer may take from the token to its tip.
const LEAVE_MS = 150;

class Tip {
  #node = byId('tooltip');
  #timer = 0;
  #target = null;

  constructor() {
    this.#node.addEventListener('pointerenter', () => clearTimeout(this.#timer));
    this.#node.addEventListener('pointerleave', () => this.hide());
    document.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || this.#node.hidden) return;
      this.hide();
      event.stopImmediatePropagation();
    }, {capture: true});
    // A focus that moves on scrolls what it is in: the tip goes with its token.
    window.addEventListener('scroll', () => {
      if (!this.#node.hidden) this.#place();
    }, {capture: true, passive: true});
  }

  show(target, token) {
    clearTimeout(this.#timer);
    const id = token.id === undefined ? '' : `id ${token.id}`;
    this.#node.replaceChildren(
        make('p', {class: 'tip-head'}, make('span', {class: 'mono'}, token.name),
             make('span', {}, `${percent(token.logprob)} · ${token.logprob.toFixed(3)}`),
             make('span', {}, id)),
        make('ul', {}, ...token.alternatives.map((one) => this.#row(one, token))));
    this.#node.hidden = false;
    this.#target = target;
    this.#place();
  }

  #row({name, logprob}, token) {
    const bar = make('span', {class: 'tip-bar'});
    bar.style.width = `${Math.max(1, 100 * Math.exp(logprob))}%`;
    const chosen = name === token.name && logprob === token.logprob;
    return make('li', {class: chosen ? 'chosen' : ''}, make('span', {class: 'mono'}, name),
                make('span', {class: 'tip-track'}, bar), make('span', {}, percent(logprob)));
  }

  #place() {
    const box = this.#target.getClientRects()[0];
    const seen = this.#target.closest('.log')?.getBoundingClientRect();
    if (box === undefined || seen === undefined || box.bottom < seen.top || box.top > seen.bottom) {
      this.hide();
      return;
    }
    const {width, height} = this.#node.getBoundingClientRect();
    const below = box.bottom + height + MARGIN < window.innerHeight;
    const left = Math.min(Math.max(MARGIN, box.left), window.innerWidth - width - MARGIN);
    this.#node.style.left = `${left}px`;
    this.#node.style.top = `${below ? box.bottom + 2 : Math.max(MARGIN, box.top - height - 2)}px`;
  }

  hideSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.hide(), LEAVE_MS);
  }

  hide() {
    clearTimeout(this.#timer);
    this.#node.hidden = true;
  }
}

let tip = null;

export class TokenView {
  #tokens = [];
  #current = 0;

  constructor() {
    tip ??= new Tip();
    this.node = make('div', {
      class: 'tokens', role: 'listbox', 'aria-orientation': 'horizontal',
      'aria-label': 'Tokens of the answer; arrow keys go from one to the next',
      keydown: (event) => this.#move(event),
      pointerover: (event) => this.#show(event.target),
      pointerout: () => tip.hideSoon(),
      focusin: (event) => this.#focused(event.target),
      focusout: () => tip.hideSoon(),
    });
  }

  get size() {
    return this.#tokens.length;
  }

  add(token) {
    const at = this.#tokens.length;
    const option = make('span', {
      class: `token s${surprise(token.logprob)}${token.part ? ' part' : ''}`, role: 'option',
      tabindex: at === 0 ? 0 : -1, 'aria-label': spoken(token), 'data-at': at,
      'aria-selected': 'false',
    }, this.#shown(token));
    this.#tokens.push(token);
    this.node.append(option);
  }

  // Line breaks are both seen and made.
  #shown({text}) {
    const breaks = text.replace(/[^\n]/g, '').length;
    if (breaks === 0) return text === '' ? '∅' : text;
    if (text.trim() === '') return `${visible(text)}${'\n'.repeat(breaks)}`;
    return text.replace(/\n/g, '↵\n');
  }

  #option(at) {
    return this.node.children[at];
  }

  #at(target) {
    const option = target.closest?.('.token');
    return option === null || option === undefined ? -1 : Number(option.dataset.at);
  }

  #show(target) {
    const at = this.#at(target);
    if (at >= 0) tip.show(this.#option(at), this.#tokens[at]);
  }

  #focused(target) {
    const at = this.#at(target);
    if (at < 0) return;
    this.#option(this.#current).tabIndex = -1;
    this.#current = at;
    this.#option(at).tabIndex = 0;
    this.#show(target);
  }

  #move(event) {
    const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity,
                   End: Infinity};
    const step = steps[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const to = Math.min(Math.max(this.#current + step, 0), this.#tokens.length - 1);
    this.#option(to)?.focus();
    this.#option(to)?.scrollIntoView({block: 'nearest'});
  }
}
