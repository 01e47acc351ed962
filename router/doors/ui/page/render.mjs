// Elements of what markdown.mjs read. Everything that a model wrote becomes the text of an element
// or the checked address of a link; no string is ever read as markup.

import {copyButton, make} from './dom.mjs';
import {parseMarkdown} from './markdown.mjs';

function inline(nodes) {
  return nodes.map((node) => {
    switch (node.type) {
      case 'text':
        return document.createTextNode(node.text);
      case 'break':
        return make('br');
      case 'code':
        return make('code', {}, node.text);
      case 'link':
        return make('a', {href: node.href, title: node.href, target: '_blank',
                          rel: 'noopener noreferrer nofollow'}, ...inline(node.children));
      default:
        return make(node.type, {}, ...inline(node.children));
    }
  });
}

function code({language, text}) {
  return make('div', {class: 'code'},
      make('div', {class: 'code-head'}, make('span', {}, language === '' ? 'text' : language),
           copyButton('this code', () => text)),
      make('pre', {tabindex: 0, role: 'group', 'aria-label': 'Code'}, make('code', {}, text)));
}

function table({aligns, head, rows}) {
  const row = (cells, tag) => make('tr', {}, ...cells.map((cell, column) =>
      make(tag, {class: `align-${aligns[column]}`, ...(tag === 'th' ? {scope: 'col'} : {})},
           ...inline(cell))));
  return make('div', {class: 'table', tabindex: 0, role: 'group', 'aria-label': 'Table'},
      make('table', {}, make('thead', {}, row(head, 'th')),
           make('tbody', {}, ...rows.map((cells) => row(cells, 'td')))));
}

function element(block) {
  switch (block.type) {
    case 'heading':
      // Below the headings of the page, whatever the model thinks it writes.
      return make('h4', {class: `level-${block.level}`}, ...inline(block.children));
    case 'code':
      return code(block);
    case 'rule':
      return make('hr');
    case 'quote':
      return make('blockquote', {}, ...block.blocks.map(element));
    case 'list':
      return make(block.ordered ? 'ol' : 'ul', block.ordered && block.start !== 1 ?
          {start: block.start} : {}, ...block.items.map((blocks) => make('li', {},
              // A line alone needs no paragraph's distance.
              ...(blocks.length > 0 && blocks[0].type === 'paragraph' ?
                  [...inline(blocks[0].children), ...blocks.slice(1).map(element)] :
                  blocks.map(element)))));
    case 'table':
      return table(block);
    default:
      return make('p', {}, ...inline(block.children));
  }
}

// Shows a text that grows: what did not change stays as it is, with its selection and its focus.
export class MarkdownView {
  #container;
  #shown = [];

  constructor(container) {
    this.#container = container;
  }

  show(text) {
    const blocks = parseMarkdown(text);
    const keys = blocks.map((block) => JSON.stringify(block));
    let same = 0;
    while (same < keys.length && keys[same] === this.#shown[same]) ++same;
    while (this.#container.childNodes.length > same) this.#container.lastChild.remove();
    this.#container.append(...blocks.slice(same).map(element));
    this.#shown = keys;
  }
}
