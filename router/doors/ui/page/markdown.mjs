// Markdown as models write it (CommonMark's everyday part, and tables): text in, a tree out, which
// render.mjs makes elements of. What is unclosed while an answer streams is taken as closed.
//
// Blocks: {type: 'paragraph' | 'heading', level, children}, {type: 'code', language, text},
// {type: 'rule'}, {type: 'quote', blocks}, {type: 'list', ordered, start, items: [blocks]},
// {type: 'table', aligns, head: [children], rows: [[children]]}.

import {parseInline} from './inline.mjs';

const DEPTH_MAX = 8;
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( {0,3})(?:([-*+])|(\d{1,9})[.)])(?:( {1,4})(?=\S)| *$|( ) *(?=\S))/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

// Cells of a row; an escaped bar belongs to its cell.
function cells(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(^|[^\\])\|$/, '$1');
  const found = [''];
  for (let at = 0; at < inner.length; ++at) {
    if (inner[at] === '\\' && inner[at + 1] === '|') {
      found[found.length - 1] += '|';
      ++at;
    } else if (inner[at] === '|') {
      found.push('');
    } else {
      found[found.length - 1] += inner[at];
    }
  }
  return found.map((cell) => cell.trim());
}

function alignOf(cell) {
  const left = cell.startsWith(':'), right = cell.endsWith(':');
  return left && right ? 'center' : right ? 'right' : 'left';
}

const blank = (line) => /^\s*$/.test(line);

class Blocks {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
    this.at = 0;
    this.blocks = [];
    this.paragraph = [];
  }

  read() {
    while (this.at < this.lines.length) {
      if (!this.block()) this.paragraph.push(this.lines[this.at++]);
    }
    this.endParagraph();
    return this.blocks;
  }

  endParagraph() {
    if (this.paragraph.length === 0) return;
    const text = this.paragraph.map((line) => line.trim()).join('\n');
    this.paragraph = [];
    this.blocks.push({type: 'paragraph', children: parseInline(text)});
  }

  push(block) {
    this.endParagraph();
    this.blocks.push(block);
    return true;
  }

  // Reads the block that begins in this line, unless it is a paragraph's.
  block() {
    const line = this.lines[this.at];
    if (blank(line)) {
      this.endParagraph();
      ++this.at;
      return true;
    }
    return this.fence(line) || this.heading(line) || this.rule(line) || this.quote(line) ||
        this.list(line) || this.table(line);
  }

  fence(line) {
    const match = FENCE.exec(line);
    if (match === null) return false;
    const [, indent, ticks, language] = match;
    const closing = new RegExp(`^ {0,3}${ticks[0]}{${Math.min(ticks.length, 1000)},}\\s*$`);
    const text = [];
    for (++this.at; this.at < this.lines.length; ++this.at) {
      if (closing.test(this.lines[this.at])) {
        ++this.at;
        break;
      }
      text.push(this.lines[this.at].replace(new RegExp(`^ {0,${indent.length}}`), ''));
    }
    // What streams in ends with a line that has not begun yet.
    if (this.at === this.lines.length && text[text.length - 1] === '') text.pop();
    return this.push({type: 'code', language: language.trim().split(/\s/)[0],
                      text: text.join('\n')});
  }

  heading(line) {
    const match = HEADING.exec(line);
    if (match === null) return false;
    ++this.at;
    return this.push(
        {type: 'heading', level: match[1].length, children: parseInline(match[2] ?? '')});
  }

  rule(line) {
    if (!RULE.test(line)) return false;
    ++this.at;
    return this.push({type: 'rule'});
  }

  quote(line) {
    if (this.depth >= DEPTH_MAX || !QUOTE.test(line)) return false;
    const inner = [];
    while (this.at < this.lines.length && QUOTE.test(this.lines[this.at])) {
      inner.push(this.lines[this.at++].replace(QUOTE, ''));
    }
    return this.push({type: 'quote', blocks: new Blocks(inner, this.depth + 1).read()});
  }

  list(line) {
    const first = this.depth < DEPTH_MAX ? ITEM.exec(line) : null;
    if (first === null) return false;
    const ordered = first[3] !== undefined;
    // A number in the midst of a paragraph begins no list unless it is 1.
    if (this.paragraph.length > 0 && ordered && first[3] !== '1') return false;
    const items = [];
    while (this.at < this.lines.length) {
      const match = ITEM.exec(this.lines[this.at]);
      if (match === null || RULE.test(this.lines[this.at]) || match[2] !== first[2] ||
          (match[3] !== undefined) !== ordered) {
        break;
      }
      items.push(this.item(match));
    }
    return this.push({type: 'list', ordered, start: ordered ? Number(first[3]) : 1, items});
  }

  // The lines of one item: those that are indented as far as its text, and empty ones between them.
  item(match) {
    const width = match[0].length;
    const inner = [this.lines[this.at++].slice(width)];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      const indent = line.length - line.trimStart().length;
      if (blank(line)) {
        const next = this.lines[this.at + 1];
        if (next === undefined || blank(next)) break;
        const nested = next.length - next.trimStart().length >= Math.min(width, 2);
        if (!nested) {
          // Between two items of one list.
          if (ITEM.test(next)) ++this.at;
          break;
        }
      } else if (indent < Math.min(width, 2) && (ITEM.test(line) || this.opens(line))) {
        break;
      }
      inner.push(line.slice(Math.min(indent, width)));
      ++this.at;
    }
    return new Blocks(inner, this.depth + 1).read();
  }

  opens(line) {
    return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
  }

  table(line) {
    const below = this.lines[this.at + 1];
    if (below === undefined || !line.includes('|') || !below.includes('-')) return false;
    if (!TABLE_RULE.test(below)) return false;
    const head = cells(line), aligns = cells(below).map(alignOf);
    if (head.length !== aligns.length) return false;
    const rows = [];
    for (this.at += 2; this.at < this.lines.length; ++this.at) {
      const row = this.lines[this.at];
      if (blank(row) || !row.includes('|')) break;
      const found = cells(row);
      rows.push(head.map((_, column) => parseInline(found[column] ?? '')));
    }
    return this.push({type: 'table', aligns, head: head.map(parseInline), rows});
  }
}

export function parseMarkdown(text) {
  const lines = text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n');
  return new Blocks(lines, 0).read();
}
