// Markdown inside a paragraph: text in, a list of nodes out. No markup of HTML is known here, so it
// stays text. Every scan that fails is remembered, so that hostile text costs linear time.
//
// Nodes: {type: 'text' | 'code', text}, {type: 'break'}, {type: 'strong' | 'em' | 'del', children},
// {type: 'link', href, children}.

const DEPTH_MAX = 6;
const LABEL_MAX = 500;
const ADDRESS_MAX = 2048;
const SPECIAL = /[\\`*_~\[!\nh]/g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
const MARKS = [['**', 'strong'], ['__', 'strong'], ['~~', 'del'], ['*', 'em'], ['_', 'em']];

// The address of a link that a click may open, or null: other schemes run code or programs, and
// what is relative would be read as this server's own.
export function safeAddress(text) {
  if (text.length > ADDRESS_MAX) return null;
  let url;
  try {
    url = new URL(text);
  } catch {
    return null;
  }
  return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
}

class Reader {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
    this.nodes = [];
    this.plain = '';
    // What is not there from some place on: marks, runs of backticks, "](".
    this.missing = new Set();
    this.labelEnd = -1;
  }

  // The next place of `mark` from `from` on, or -1.
  find(mark, from) {
    if (this.missing.has(mark)) return -1;
    const found = this.text.indexOf(mark, from);
    if (found < 0) this.missing.add(mark);
    return found;
  }

  push(node) {
    if (this.plain !== '') this.nodes.push({type: 'text', text: this.plain});
    this.plain = '';
    if (node !== null) this.nodes.push(node);
  }

  inner(text) {
    return new Reader(text, this.depth + 1).read();
  }

  read() {
    while (this.at < this.text.length) {
      SPECIAL.lastIndex = this.at;
      const next = SPECIAL.exec(this.text);
      const end = next === null ? this.text.length : next.index;
      this.plain += this.text.slice(this.at, end);
      this.at = end;
      if (next !== null && !this.special(next[0])) this.plain += this.text[this.at++];
    }
    this.push(null);
    return this.nodes;
  }

  special(c) {
    if (c === '\\') return this.escape();
    if (c === '\n') return this.lineBreak();
    if (c === '`') return this.code();
    if (c === '[') return this.link(this.at);
    // A picture would be fetched from somewhere: it is shown as a link.
    if (c === '!') return this.text[this.at + 1] === '[' && this.link(this.at + 1);
    if (c === 'h') return this.address();
    return this.marked();
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === undefined || !PUNCTUATION.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  lineBreak() {
    this.push({type: 'break'});
    ++this.at;
    return true;
  }

  code() {
    let ticks = 1;
    while (this.text[this.at + ticks] === '`') ++ticks;
    const run = '`'.repeat(ticks);
    const from = this.at + ticks;
    let end = this.find(run, from);
    // A longer run does not close a shorter one.
    while (end >= 0 && this.text[end + ticks] === '`') {
      let behind = end + ticks;
      while (this.text[behind] === '`') ++behind;
      end = this.find(run, behind);
    }
    if (end < 0) {
      this.plain += run;
    } else {
      const text = this.text.slice(from, end).replace(/\n/g, ' ');
      this.push({type: 'code', text: /^ .*[^ ].* $/.test(text) ? text.slice(1, -1) : text});
    }
    this.at = end < 0 ? from : end + ticks;
    return true;
  }

  // `open`: the place of the bracket.
  link(open) {
    if (this.labelEnd < open) {
      const end = this.find('](', open);
      if (end < 0) return false;
      this.labelEnd = end;
    }
    const label = this.text.slice(open + 1, Math.min(this.labelEnd, open + 1 + LABEL_MAX));
    if (this.labelEnd - open > LABEL_MAX || label.includes('[') || label.includes('\n\n')) {
      return false;
    }
    const from = this.labelEnd + 2;
    const rest = this.text.slice(from, from + ADDRESS_MAX);
    const match = /^\s*<?((?:[^\s()<>]|\([^\s()<>]*\))*)>?(?:\s+"[^"\n]*"|\s+'[^'\n]*')?\s*\)/
        .exec(rest);
    const href = match === null ? null : safeAddress(match[1]);
    if (href === null) return false;
    const shown = label === '' ? [{type: 'text', text: href}] : this.inner(label);
    this.push({type: 'link', href, children: shown});
    this.at = from + match[0].length;
    return true;
  }

  address() {
    if (this.at > 0 && WORD.test(this.text[this.at - 1])) return false;
    const match = /^https?:\/\/[^\s<>"'`\u0000-\u001f]+/
        .exec(this.text.slice(this.at, this.at + ADDRESS_MAX + 1));
    if (match === null) return false;
    let found = match[0].replace(/[.,;:!?*_~\]]+$/, '');
    if (found.endsWith(')') && !found.includes('(')) found = found.replace(/\)+$/, '');
    const href = safeAddress(found);
    if (href === null) return false;
    this.push({type: 'link', href, children: [{type: 'text', text: found}]});
    this.at += found.length;
    return true;
  }

  marked() {
    const found = MARKS.find(([mark]) => this.text.startsWith(mark, this.at));
    if (found === undefined || this.depth >= DEPTH_MAX) return false;
    const [mark, type] = found;
    const from = this.at + mark.length;
    const word = mark[0] === '_';
    const before = this.text[this.at - 1] ?? ' ', behind = this.text[from] ?? ' ';
    if (/\s/.test(behind) || (word && WORD.test(before))) return this.skip(mark);
    let end = this.find(mark, from + 1);
    while (end >= 0 && !this.closes(mark, end, word)) end = this.find(mark, end + mark.length);
    if (end < 0) {
      this.missing.add(mark);
      return this.skip(mark);
    }
    this.push({type, children: this.inner(this.text.slice(from, end))});
    this.at = end + mark.length;
    return true;
  }

  // A mark of one letter is not the half of one of two.
  closes(mark, end, word) {
    if (/\s/.test(this.text[end - 1])) return false;
    const behind = this.text[end + mark.length] ?? ' ';
    if (mark.length === 1 && (behind === mark || this.text[end - 1] === mark)) return false;
    return !(word && WORD.test(behind));
  }

  skip(mark) {
    this.plain += mark;
    this.at += mark.length;
    return true;
  }
}

export function parseInline(text) {
  return new Reader(text, 0).read();
}
