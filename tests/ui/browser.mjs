// What the tests of the page share: a browser, pages that note everything a good page never does,
// and answers of a model that only these tests make up.

import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import process from 'node:process';

const modules = createRequire(`${process.env.WEFT_UI_MODULES}/`);
export const {chromium} = modules('playwright-core');
export const axeSource = modules('node:fs').readFileSync(modules.resolve('axe-core/axe.min.js'),
                                                          'utf8');

// Servers that test_ui.py started.
export const SERVER = process.env.WEFT_UI_SERVER;
export const KEYED_SERVER = process.env.WEFT_UI_KEYED_SERVER;
export const KEY = process.env.WEFT_UI_KEY;

const PATIENCE_MS = 30_000;

export async function launch(...more) {
  // Chromium's sandbox refuses root.
  const root = process.getuid() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({executablePath: process.env.WEFT_UI_BROWSER, args: [...root, ...more]});
}

// A page at `url`; its `faults` are requests to other origins, violations of its policy, errors of
// its scripts.
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, ...options});
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.faults = [];
  const origin = new URL(url).origin;
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== origin) page.faults.push(`request to ${request.url()}`);
  });
  page.on('pageerror', (error) => page.faults.push(`script: ${error.stack}`));
  page.on('dialog', (dialog) => {
    page.faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('console', (message) => {
    // The browser's own line for an answer that is no success, which tests ask for.
    if (!message.text().startsWith('Failed to load resource')) {
      page.faults.push(`console: ${message.text()}`);
    }
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  await page.goto(url);
  await page.locator('#model').filter({hasText: /./}).waitFor();
  return page;
}

export async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.context().close();
}

// Ends when the answer is there.
export const answered = (page) => page.locator('#send').waitFor();

export async function ask(page, text) {
  await page.locator('#prompt').fill(text);
  await page.locator('#prompt').press('Enter');
}

export const answers = (page) => page.locator('.answer');
export const lastAnswer = (page) => page.locator('.answer').last();

export async function until(condition, what) {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(performance.now() < deadline, `timed out waiting for ${what}`);
  }
}

// One series of a server's metrics, by its name and a part of its labels.
export async function metric(server, name, label = '') {
  const text = await (await fetch(`${server}/metrics`)).text();
  return text.split('\n')
      .filter((line) => (line.startsWith(`${name}{`) || line.startsWith(`${name} `)) &&
              line.includes(label))
      .reduce((sum, line) => sum + Number(line.split(' ').pop()), 0);
}

// Chunks as the server writes them. `tokens`: with log-probabilities.
export function stream(texts, {tokens = false, finish = 'stop', ...more} = {}) {
  const entry = (text) => ({token: text, logprob: -0.7, bytes: [...Buffer.from(text)]});
  const chunks = texts.map((text, at) => ({
    choices: [{
      index: 0,
      delta: {content: text},
      logprobs: !tokens ? null :
          {content: [{...entry(text), top_logprobs: [entry(text), entry('other')]}]},
      finish_reason: at + 1 === texts.length ? finish : null,
      token_ids: [at],
    }],
    usage: null,
    ...more,
  }));
  chunks.push({choices: [], usage: {prompt_tokens: 3, completion_tokens: texts.length}});
  return chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('') + 'data: [DONE]\n\n';
}

// From now on answers go on behind the model's own end, until they are stopped.
export async function endless(page) {
  await page.route('**/v1/chat/completions', (route) => route.continue({
    postData: {...route.request().postDataJSON(), ignore_eos: true}}));
}

// Puts the focus where it is when a page was loaded: in front of everything.
export async function toTop(page) {
  await page.evaluate(() => {
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute('tabindex');
  });
}

// From now on the page's chats are answered with `body`.
export async function mock(page, body,
                           {status = 200, type = 'text/event-stream', headers = {}} = {}) {
  await page.unroute('**/v1/chat/completions');
  await page.route('**/v1/chat/completions', (route) => route.fulfill(
      {status, contentType: type, headers, body}));
}

export async function showView(page, name) {
  const button = page.locator(`.views button[data-view="${name}"]`);
  if (await button.isVisible()) await button.click();
}
