// One message of the conversation on the page: what a user wrote, or an answer as it streams in.

import {copyButton, make} from './dom.mjs';
import {MarkdownView} from './render.mjs';
import {TokenReader} from './tokens.mjs';
import {TokenView} from './token_view.mjs';

let count = 0;

function frame(kind, title) {
  const id = `message-${++count}`;
  const actions = make('div', {class: 'actions'});
  const body = make('div', {class: 'body'});
  const node = make('article', {class: `message ${kind}`, 'aria-labelledby': id},
      make('div', {class: 'message-head'}, make('h3', {id}, title), actions), body);
  return {node, actions, body};
}

// A button that asks the model anew: not to be pressed while it answers.
function askButton(label, text, click) {
  return make('button', {type: 'button', class: 'quiet asks', 'aria-label': label, click}, text);
}

export class UserMessage {
  role = 'user';

  // `onEdit(text)`: it was changed and is to be sent again.
  constructor(text, onEdit) {
    this.text = text;
    Object.assign(this, frame('user', 'You'));
    this.editButton = askButton('Edit this message', 'Edit', () => this.#edit(onEdit));
    this.actions.append(copyButton('this message', () => this.text), this.editButton);
    this.#show();
  }

  #show() {
    this.body.replaceChildren(make('p', {class: 'plain'}, this.text));
  }

  #edit(onEdit) {
    if (this.body.querySelector('textarea') !== null) return;
    const box = make('textarea', {rows: Math.min(12, this.text.split('\n').length + 1),
                                  'aria-label': 'Message'});
    box.value = this.text;
    const leave = () => {
      this.#show();
      this.editButton.focus();
    };
    const sendButton = make('button', {type: 'button', class: 'asks', click: () => send()}, 'Send');
    const send = () => {
      if (box.value.trim() === '' || sendButton.disabled) return;
      this.text = box.value;
      this.#show();
      onEdit();
    };
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') leave();
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    this.body.replaceChildren(box, make('div', {class: 'edit-foot'},
        make('button', {type: 'button', class: 'quiet', click: leave}, 'Cancel'), sendButton));
    box.focus();
  }
}

export class Answer {
  role = 'assistant';
  text = '';
  #reader = new TokenReader();
  #tokens = new TokenView();
  #due = 0;
  #busy = false;

  // `onRetry()`; `colours`: shown as tokens; `onGrow(grow)` runs what makes the page grow.
  constructor(onRetry, colours, onGrow) {
    Object.assign(this, frame('answer', 'Model'));
    this.onGrow = onGrow;
    this.prose = make('div', {class: 'prose'});
    this.markdown = new MarkdownView(this.prose);
    this.notes = make('div', {class: 'notes'});
    this.toggle = make('button', {type: 'button', class: 'quiet', 'aria-pressed': String(colours),
                                  hidden: true, click: () => this.showTokens(this.prose.hidden)},
                       'Tokens');
    this.actions.append(this.toggle, copyButton('this answer', () => this.text),
                        askButton('Retry: ask for another answer', 'Retry', onRetry));
    this.body.append(this.prose, this.#tokens.node, this.notes);
    this.#setBusy(true);
    this.showTokens(!colours);
  }

  #setBusy(busy) {
    this.#busy = busy;
    this.node.setAttribute('aria-busy', String(busy));
  }

  // `prose`: as text, else as tokens, where there are any.
  showTokens(prose) {
    const tokens = !prose && (this.#tokens.size > 0 || this.#busy);
    this.prose.hidden = tokens;
    this.#tokens.node.hidden = !tokens;
    this.toggle.setAttribute('aria-pressed', String(tokens));
  }

  add(text, entries, ids) {
    this.text += text;
    for (const [at, entry] of entries.entries()) {
      this.#tokens.add(this.#reader.read(entry, ids[at]));
    }
    if (entries.length > 0) this.toggle.hidden = false;
    // Nothing came to colour: the text it is.
    if (entries.length === 0 && this.#tokens.size === 0 && this.prose.hidden) this.showTokens(true);
    if (this.#due === 0) this.#due = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#due = 0;
    this.onGrow(() => this.markdown.show(this.text));
  }

  // `lines`: what it took.
  end(lines, extra = []) {
    if (this.#due !== 0) cancelAnimationFrame(this.#due);
    this.#setBusy(false);
    this.#draw();
    if (this.#tokens.size === 0) this.showTokens(true);
    this.notes.prepend(make('p', {class: 'stats'},
        ...lines.map((line) => make('span', {}, line)), ...extra));
  }

  fail(message, ...more) {
    this.notes.append(make('div', {class: 'error'}, make('p', {}, message), ...more));
  }
}
