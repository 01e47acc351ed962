// The page against a real server: answers that stream, that are stopped, retried, edited, coloured.

import assert from 'node:assert/strict';
import test, {after, afterEach, before, beforeEach} from 'node:test';

import {answered, answers, ask, close, endless, lastAnswer, launch, metric, mock, open, SERVER,
        stream, until} from './browser.mjs';

let browser, page;
before(async () => {
  browser = await launch();
});
after(() => browser.close());
beforeEach(async () => {
  page = await open(browser, `${SERVER}/ui`, {permissions: ['clipboard-read', 'clipboard-write']});
});
afterEach(() => close(page));

const requestBody = async (act) => {
  const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), act()]);
  return request.postDataJSON();
};

test('an answer streams in and says what it took', async () => {
  await page.fill('#field-max_tokens', '60');
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => {
      const text = document.querySelector('.answer .prose')?.textContent ?? '';
      if (document.querySelector('#send').hidden) window.lengths.add(text.length);
    }).observe(document.querySelector('#messages'), {subtree: true, childList: true});
  });
  await ask(page, 'Tell me about the sea in three sentences.');
  await page.locator('#stop').waitFor();
  await answered(page);
  const lengths = await page.evaluate(() => window.lengths.size);
  assert.ok(lengths >= 5, `the text was seen at ${lengths} lengths while it grew`);
  const stats = await lastAnswer(page).locator('.stats').textContent();
  assert.match(stats, /\d+ tokens.*first after \d.*tokens\/s.*prompt \d+/);
  assert.match(stats, /ended by itself|reached the limit/);
  assert.equal(await page.title(), `${await page.locator('#model').textContent()} · weft`);
});

for (const [what, act] of [['the button', () => page.click('#stop')],
                           ['Escape', () => page.keyboard.press('Escape')]]) {
  test(`${what} stops an answer, on the server too`, async () => {
    const name = 'weft_requests_cancelled_total';
    const cancelled = await metric(SERVER, name, 'by="client"');
    await page.fill('#field-max_tokens', '2000');
    await endless(page);
    await ask(page, 'Count from one to one thousand.');
    await until(async () => (await lastAnswer(page).locator('.prose').textContent()).length > 20,
                'a text');
    await act();
    await answered(page);
    assert.match(await lastAnswer(page).locator('.stats').textContent(), /stopped by you/);
    const kept = await lastAnswer(page).locator('.prose').textContent();
    assert.ok(kept.length > 20);
    assert.equal(await lastAnswer(page).locator('.error').count(), 0);
    await until(async () => await metric(SERVER, name, 'by="client"') === cancelled + 1,
                'the server to hear of it');
    await until(async () => await metric(SERVER, 'weft_num_requests_running') === 0, 'rest');
    // The conversation goes on with what came.
    await page.fill('#field-max_tokens', '3');
    const body = await requestBody(() => ask(page, 'Go on.'));
    assert.deepEqual(body.messages.map(({role}) => role), ['user', 'assistant', 'user']);
    await answered(page);
  });
}

test('settings reach the server as they are written', async () => {
  const fields = {
    'system': 'Answer in French.', 'temperature': '0.5', 'max_tokens': '5', 'top_p': '0.9',
    'top_k': '40', 'min_p': '0.01', 'typical_p': '0.95', 'repetition_penalty': '1.1',
    'presence_penalty': '-0.5', 'frequency_penalty': '0.25', 'seed': '18446744073709551615',
    'stop': 'END\n\\n\\n',
  };
  for (const [name, text] of Object.entries(fields)) await page.fill(`#field-${name}`, text);
  const [request] = await Promise.all([
    page.waitForRequest('**/v1/chat/completions'), ask(page, 'Hello')]);
  assert.match(request.postData(), /"seed":18446744073709551615\}$/);
  const body = request.postDataJSON();
  assert.deepEqual(body.messages, [{role: 'system', content: 'Answer in French.'},
                                   {role: 'user', content: 'Hello'}]);
  assert.deepEqual(body.stop, ['END', '\n\n']);
  for (const name of ['temperature', 'max_tokens', 'top_p', 'top_k', 'min_p', 'typical_p',
                      'repetition_penalty', 'presence_penalty', 'frequency_penalty']) {
    assert.equal(body[name], Number(fields[name]), name);
  }
  await answered(page);
  assert.equal(await lastAnswer(page).locator('.error').count(), 0);
  // They outlive a reload, and are gone with the defaults.
  await page.reload();
  assert.equal(await page.inputValue('#field-top_k'), '40');
  await page.click('#reset');
  assert.equal(await page.inputValue('#field-top_k'), '');
  await page.fill('#field-max_tokens', '2');
  assert.equal((await requestBody(() => ask(page, 'Hello'))).top_k, undefined);
  await answered(page);
});

test('the seed of an answer gives the answer again', async () => {
  await page.fill('#field-max_tokens', '30');
  await ask(page, 'Once upon a time');
  await answered(page);
  const first = await lastAnswer(page).locator('.prose').textContent();
  await lastAnswer(page).locator('.seed').click();
  const seed = await page.inputValue('#field-seed');
  assert.match(seed, /^\d+$/);
  await lastAnswer(page).getByRole('button', {name: 'Retry'}).click();
  await answered(page);
  assert.equal(await answers(page).count(), 1);
  assert.equal(await lastAnswer(page).locator('.prose').textContent(), first);
});

test('a message is edited, and what followed it is asked anew', async () => {
  await page.fill('#field-max_tokens', '4');
  for (const text of ['First', 'Second']) {
    await ask(page, text);
    await answered(page);
  }
  assert.equal(await page.locator('.message').count(), 4);
  await page.getByRole('button', {name: 'Edit this message'}).first().click();
  const box = page.locator('.user textarea');
  assert.equal(await box.inputValue(), 'First');
  await box.press('Escape');
  assert.equal(await page.locator('.message').count(), 4);
  await page.getByRole('button', {name: 'Edit this message'}).first().click();
  await box.fill('Changed');
  const body = await requestBody(() => box.press('Enter'));
  assert.deepEqual(body.messages, [{role: 'user', content: 'Changed'}]);
  await answered(page);
  assert.equal(await page.locator('.message').count(), 2);
  assert.equal(await page.locator('.user .plain').textContent(), 'Changed');
  await page.click('#clear');
  assert.equal(await page.locator('.message').count(), 0);
  assert.ok(await page.locator('#empty').isVisible());
});

test('an answer is copied as the model wrote it', async () => {
  await mock(page, stream(['**bold** ', '`code`\n', '```js\nlet x;\n', '```']));
  await ask(page, 'Hi');
  await answered(page);
  await page.getByRole('button', {name: 'Copy this answer'}).click();
  const read = () => page.evaluate(() => navigator.clipboard.readText());
  assert.equal(await read(), '**bold** `code`\n```js\nlet x;\n```');
  await page.getByRole('button', {name: 'Copy this code'}).click();
  assert.equal(await read(), 'let x;');
  await page.getByRole('button', {name: 'Copy this message'}).click();
  assert.equal(await read(), 'Hi');
});

test('tokens are coloured, and their alternatives come by pointer and by keyboard', async () => {
  await page.fill('#field-max_tokens', '24');
  await page.check('#field-colours');
  await page.fill('#field-top_logprobs', '3');
  const body = await requestBody(() => ask(page, 'Write a haiku about rain.'));
  assert.deepEqual([body.logprobs, body.top_logprobs], [true, 3]);
  await answered(page);
  const tokens = lastAnswer(page).locator('.token');
  const count = await tokens.count();
  assert.ok(count >= 5, `${count} tokens`);
  const classes = await tokens.evaluateAll((all) => new Set(all.map((one) => one.className)).size);
  assert.ok(classes >= 2, 'all tokens have one colour');
  const tip = page.locator('#tooltip');
  await tokens.nth(2).hover();
  await tip.waitFor();
  assert.equal(await tip.locator('li').count(), 3);
  assert.match(await tip.textContent(), /%/);
  await page.locator('h1').hover();
  await tip.waitFor({state: 'hidden'});
  await tokens.nth(0).focus();
  await tip.waitFor();
  const first = await tip.textContent();
  await page.keyboard.press('ArrowRight');
  await until(async () => await tip.textContent() !== first, 'the next token');
  assert.equal(await page.evaluate(() => document.activeElement.dataset.at), '1');
  await page.keyboard.press('End');
  assert.equal(await page.evaluate(() => document.activeElement.dataset.at), String(count - 1));
  await page.keyboard.press('Escape');
  await tip.waitFor({state: 'hidden'});
  // As text and back.
  await page.getByRole('button', {name: 'Tokens'}).click();
  assert.ok(await lastAnswer(page).locator('.prose').isVisible());
  assert.ok(!await lastAnswer(page).locator('.tokens').isVisible());
});

test('a schema that cannot be served is said beside its box', async () => {
  await page.click('summary:has-text("JSON schema")');
  const box = page.locator('#field-schema'), error = page.locator('#field-schema-error');
  let sent = 0;
  page.on('request', (request) => {
    sent += request.url().endsWith('/completions') ? 1 : 0;
  });
  await box.fill('{"type": ');
  await ask(page, 'JSON');
  assert.match(await error.textContent(), /^is not JSON: /);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'field-schema');
  assert.equal(await page.inputValue('#prompt'), 'JSON');
  assert.equal(sent, 0);
  // No schema to any server.
  await box.fill('{"type": 5}');
  assert.equal(await error.textContent(), '');
  const body = await requestBody(() => ask(page, 'JSON'));
  assert.deepEqual(body.response_format,
      {type: 'json_schema', json_schema: {name: 'answer', strict: true, schema: {type: 5}}});
  await answered(page);
  assert.match(await error.textContent(), /response_format/);
  assert.equal(await box.getAttribute('aria-invalid'), 'true');
  assert.ok((await box.getAttribute('aria-describedby')).includes('field-schema-error'));
  const said = await lastAnswer(page).locator('.error').textContent();
  assert.match(said, /response_format/);
  await lastAnswer(page).locator('.error button').click();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'field-schema');
});

test('what the server says of a field stands beside that field', async () => {
  await page.fill('#field-max_tokens', '1000000');
  await ask(page, 'Hi');
  await answered(page);
  assert.match(await page.locator('#field-max_tokens-error').textContent(), /max_tokens/);
  await page.fill('#field-max_tokens', '2');
  assert.ok(!await page.locator('#field-max_tokens-error').isVisible());
  await lastAnswer(page).getByRole('button', {name: 'Retry'}).click();
  await answered(page);
  assert.equal(await page.locator('.error').count(), 0);
  // What the page itself sees wrong never leaves it.
  await page.fill('#field-temperature', '101');
  await ask(page, 'Hi');
  assert.equal(await page.locator('#field-temperature-error').textContent(),
               'must be a number from 0 to 100');
  assert.equal(await page.locator('.message').count(), 2);
});

test('the server is shown as it says of itself', async () => {
  const info = await (await fetch(`${SERVER}/info`)).json();
  const facts = await page.locator('.facts').textContent();
  for (const part of [info.model_id, info.model_family, info.version]) {
    assert.ok(facts.includes(part));
  }
  assert.ok(facts.replace(/\s/g, '').includes(String(info.max_total_tokens)));
  assert.equal(await page.locator('#state-text').textContent(), 'ready');
  const label = (at) => page.locator('.figure svg').nth(at).getAttribute('aria-label');
  await until(async () => await label(0) !== null, 'a first picture');
  assert.match(await label(0), /^0 requests run, 0 wait/);
  assert.match(await label(3), /^KV blocks: 0 in use, \d+ cached, \d+ free$/);
  await page.fill('#field-max_tokens', '2000');
  await endless(page);
  await ask(page, 'Tell me a very long story.');
  await until(async () => /^1 requests run/.test(await label(0)), 'the running request');
  await until(async () => /[1-9]\d* generated/.test(await label(2)), 'its tokens');
  await page.click('#stop');
  await until(async () => /median \d/.test(await label(5)), 'its time to the first token');
  await until(async () => /median \d/.test(await label(6)), 'its time between tokens');
});

test('a server that cannot be reached is said to be so, and comes back', async () => {
  for (const path of ['info', 'metrics', 'v1/chat/completions']) {
    await page.route(`**/${path}`, (route) => route.abort('connectionrefused'));
  }
  await page.locator('#state-text').filter({hasText: 'not reachable'}).waitFor();
  await ask(page, 'Hi');
  await answered(page);
  assert.match(await lastAnswer(page).textContent(), /cannot be reached/);
  await page.unrouteAll();
  await page.locator('#state-text').filter({hasText: /^ready$/}).waitFor();
});

test('an answer that breaks off says so and keeps what came', async () => {
  await mock(page, stream(['Half ', 'an ', 'answer']).split('data: [DONE]')[0]);
  await ask(page, 'Hi');
  await answered(page);
  assert.equal(await lastAnswer(page).locator('.prose').textContent(), 'Half an answer');
  assert.match(await lastAnswer(page).locator('.error').textContent(), /broke off/);
  await mock(page, `${stream(['Some']).split('data: {"choices":[]')[0]}data: {"error":{"message":` +
             '"the group was lost","type":"server_error","param":null,"code":null}}\n\n' +
             'data: [DONE]\n\n');
  await lastAnswer(page).getByRole('button', {name: 'Retry'}).click();
  await answered(page);
  assert.equal(await lastAnswer(page).locator('.prose').textContent(), 'Some');
  assert.match(await lastAnswer(page).locator('.error').textContent(), /the group was lost/);
  await mock(page, '{"error":{"message":"too many","type":"rate_limit_error","param":null}}',
             {status: 429, type: 'application/json', headers: {'retry-after': '7'}});
  await lastAnswer(page).getByRole('button', {name: 'Retry'}).click();
  await answered(page);
  assert.match(await lastAnswer(page).locator('.error').textContent(), /too many Try again in 7 s/);
});
