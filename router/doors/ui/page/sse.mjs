// Server-sent events, as the HTML standard reads them (9.2.6), of a stream that arrives in pieces.

export class SseParser {
  #rest = '';
  #data = [];
  #started = false;

  // Takes the next piece of text; returns the data of the events that are complete now. Comments
  // and fields other than `data` say nothing here.
  push(text) {
    if (!this.#started && text !== '') {
      this.#started = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    const events = [];
    this.#rest += text;
    let from = 0;
    for (;;) {
      const end = this.#lineEnd(from);
      if (end === null) break;
      this.#line(this.#rest.slice(from, end.at), events);
      from = end.next;
    }
    this.#rest = this.#rest.slice(from);
    return events;
  }

  // A CR at the end of a piece may be half of a CRLF: the line waits.
  #lineEnd(from) {
    for (let at = from; at < this.#rest.length; ++at) {
      const c = this.#rest[at];
      if (c === '\n') return {at, next: at + 1};
      if (c !== '\r') continue;
      if (at + 1 === this.#rest.length) return null;
      return {at, next: this.#rest[at + 1] === '\n' ? at + 2 : at + 1};
    }
    return null;
  }

  #line(line, events) {
    if (line === '') {
      if (this.#data.length > 0) events.push(this.#data.join('\n'));
      this.#data = [];
    } else if (line === 'data') {
      this.#data.push('');
    } else if (line.startsWith('data:')) {
      this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
  }
}
