// Markdown of models: what it becomes, what it never becomes, and that no text is slow to read.

import assert from 'node:assert/strict';
import test from 'node:test';

import {parseInline, safeAddress} from '../../../../router/doors/ui/page/inline.mjs';
import {parseMarkdown} from '../../../../router/doors/ui/page/markdown.mjs';

// A short form of the tree: strings for text, [type, ...children] for all else.
function brief(node) {
  if (node.type === 'text') return node.text;
  if (node.type === 'break') return '\n';
  if (node.type === 'code') return ['code', node.text];
  if (node.type === 'link') return ['link', node.href, ...node.children.map(brief)];
  return [node.type, ...node.children.map(brief)];
}
const inline = (text) => parseInline(text).map(brief);

function briefBlock(block) {
  switch (block.type) {
    case 'code':
      return ['code', block.language, block.text];
    case 'quote':
      return ['quote', ...block.blocks.map(briefBlock)];
    case 'list':
      return [block.ordered ? `ol ${block.start}` : 'ul', ...block.items.map(
          (item) => item.map(briefBlock))];
    case 'table':
      return ['table', block.aligns.join(), block.head.map((cell) => cell.map(brief)),
              ...block.rows.map((row) => row.map((cell) => cell.map(brief)))];
    case 'rule':
      return ['rule'];
    case 'heading':
      return [`h${block.level}`, ...block.children.map(brief)];
    default:
      return ['p', ...block.children.map(brief)];
  }
}
const blocks = (text) => parseMarkdown(text).map(briefBlock);

test('marks inside a paragraph', () => {
  assert.deepEqual(inline('a **b** c'), ['a ', ['strong', 'b'], ' c']);
  assert.deepEqual(inline('__b__ _e_ *e* ~~d~~'),
      [['strong', 'b'], ' ', ['em', 'e'], ' ', ['em', 'e'], ' ', ['del', 'd']]);
  assert.deepEqual(inline('**a *b* c**'), [['strong', 'a ', ['em', 'b'], ' c']]);
  assert.deepEqual(inline('`a*b*` ``c`d``'), [['code', 'a*b*'], ' ', ['code', 'c`d']]);
  assert.deepEqual(inline('one\ntwo'), ['one', '\n', 'two']);
  assert.deepEqual(inline('\\*a\\* \\x'), ['*a* \\x']);
});

test('what only looks like a mark stays text', () => {
  for (const text of ['snake_case_name', '2 * 3 * 4', '**open', '*', '`open', 'a ** b ** c', '~x~',
                      '[a] (b)', '[a](b c)', '[a]()', '!']) {
    assert.deepEqual(inline(text), [text]);
  }
});

test('links lead where a click may go, and say so', () => {
  assert.deepEqual(inline('[a](https://x.example/p?q#r)'),
      [['link', 'https://x.example/p?q#r', 'a']]);
  assert.deepEqual(inline('[a](https://x.example/ "title")'),
      [['link', 'https://x.example/', 'a']]);
  assert.deepEqual(inline('[**a**](mailto:a@b.example)'),
      [['link', 'mailto:a@b.example', ['strong', 'a']]]);
  assert.deepEqual(inline('see https://x.example/a_(b). And'),
      ['see ', ['link', 'https://x.example/a_(b)', 'https://x.example/a_(b)'], '. And']);
  assert.deepEqual(inline('(https://x.example)'),
      ['(', ['link', 'https://x.example/', 'https://x.example'], ')']);
  // A picture would be fetched; a link has to be clicked.
  assert.deepEqual(inline('![a](https://x.example/i.png)'),
      [['link', 'https://x.example/i.png', 'a']]);
});

test('no address runs anything or names this server', () => {
  for (const address of [
    'javascript:alert(1)', 'JaVaScRiPt:alert(1)', ' javascript:alert(1)', 'java\tscript:alert(1)',
    'java\nscript:alert(1)', '\u0001javascript:alert(1)', 'data:text/html,<script>x</script>',
    'vbscript:x', 'file:///etc/passwd', 'blob:https://x/1', 'about:blank', '//evil.example',
    '/v1/models', '?x', '#x', 'ws://x', 'view-source:https://x', 'intent:x', '',
    `https://x.example/${'a'.repeat(3000)}`,
  ]) {
    assert.equal(safeAddress(address), null, address);
    for (const text of [`[a](${address})`, `![a](${address})`, `[a](<${address}>)`]) {
      const found = JSON.stringify(parseMarkdown(text));
      // An https:// inside of it may be a link of its own, under its own name.
      assert.ok(!found.includes('"children":[{"type":"text","text":"a"}]'), `${text}: ${found}`);
    }
  }
});

test('markup is text', () => {
  for (const text of ['<script>alert(1)</script>', '<img src=x onerror=alert(1)>', '&lt;b&gt;',
                      '<a href="javascript:x">a</a>', '<!-- c -->', '<svg/onload=alert(1)>']) {
    assert.deepEqual(blocks(text), [['p', text]]);
    assert.deepEqual(blocks(`- ${text}`), [['ul', [['p', text]]]]);
    assert.deepEqual(blocks(`\`\`\`\n${text}\n\`\`\``), [['code', '', text]]);
  }
});

test('blocks', () => {
  assert.deepEqual(blocks('# a **b** #\ntext\n\n***\n---'),
      [['h1', 'a ', ['strong', 'b']], ['p', 'text'], ['rule'], ['rule']]);
  assert.deepEqual(blocks('```js x\nlet a;\n\n  b\n```\nrest'),
      [['code', 'js', 'let a;\n\n  b'], ['p', 'rest']]);
  assert.deepEqual(blocks('~~~\n```\n~~~'), [['code', '', '```']]);
  assert.deepEqual(blocks('> a\n> - b\n\nc'),
      [['quote', ['p', 'a'], ['ul', [['p', 'b']]]], ['p', 'c']]);
  assert.deepEqual(blocks('| a | b |\n|:--|--:|\n| 1 | \\| |\n| 2 |\n\nx'),
      [['table', 'left,right', [['a'], ['b']], [['1'], ['|']], [['2'], []]], ['p', 'x']]);
  assert.deepEqual(blocks('#no heading\n1990. A year? no\n'), [['p', '#no heading', '\n',
                                                                 '1990. A year? no']]);
});

test('lists, also in each other', () => {
  assert.deepEqual(blocks('- a\n- b\n  - c\n\n    d\n- e'),
      [['ul', [['p', 'a']], [['p', 'b'], ['ul', [['p', 'c'], ['p', 'd']]]], [['p', 'e']]]]);
  assert.deepEqual(blocks('3. a\n\n4. b\n   more\n\nend'),
      [['ol 3', [['p', 'a']], [['p', 'b', '\n', 'more']]], ['p', 'end']]);
  assert.deepEqual(blocks('1. a\n```\nx\n```'), [['ol 1', [['p', 'a']]], ['code', '', 'x']]);
  assert.deepEqual(blocks('* a\n- b'), [['ul', [['p', 'a']]], ['ul', [['p', 'b']]]]);
});

test('what is unclosed while it streams is taken as closed', () => {
  assert.deepEqual(blocks('```py\nx = 1\n'), [['code', 'py', 'x = 1']]);
  assert.deepEqual(blocks('```'), [['code', '', '']]);
  const text = '# T\n\n- **a** `b`\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```c\nint x;\n```\n' +
      '[l](https://x/)';
  for (let at = 0; at <= text.length; ++at) blocks(text.slice(0, at));
});

test('hostile text costs linear time and no stack', () => {
  const parts = [
    '*', '_', '[', '`', '~', '(', '![', '[a](', '**a ', '> ', '- ', '  - ', '| a |\n|---|\n',
    '```\n', '<', 'h', 'http://', '\\', '1. ', '#', '*a ', '__a ', '`a``', '[](', '[a](http://x "',
    '|-', '*a **b _c ', '>', '- \n', 'a*', '**', '***a', '[[a](x)', '\n', '\r', '> - ',
  ];
  for (const part of parts) {
    const text = part.repeat(Math.ceil(100000 / part.length));
    const from = performance.now();
    parseMarkdown(text);
    const ms = performance.now() - from;
    // Some tens of milliseconds where it was written; what grows with the square takes minutes.
    assert.ok(ms < 3000, `${JSON.stringify(part)} took ${ms.toFixed(0)} ms`);
  }
});
