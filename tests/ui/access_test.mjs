// A server with keys, whose metrics are on its admin port: what the page says, and where a key
// stays.

import assert from 'node:assert/strict';
import test, {after, before} from 'node:test';

import {answered, ask, close, KEY, KEYED_SERVER, lastAnswer, launch, open} from './browser.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test('a key is asked for, used, and kept in the tab alone', async () => {
  const page = await open(browser, `${KEYED_SERVER}/ui`);
  await page.fill('#field-max_tokens', '5');
  await ask(page, 'Hi');
  await answered(page);
  assert.match(await lastAnswer(page).locator('.error').textContent(), /key/);
  await page.getByRole('button', {name: 'Enter a key'}).click();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'field-key');
  assert.equal(await page.getAttribute('#field-key', 'type'), 'password');
  await page.keyboard.type(`${KEY}x`);
  await lastAnswer(page).getByRole('button', {name: 'Retry'}).click();
  await answered(page);
  assert.equal(await page.locator('.error').count(), 1);
  await page.fill('#field-key', KEY);
  await lastAnswer(page).getByRole('button', {name: 'Retry'}).click();
  await answered(page);
  assert.equal(await page.locator('.error').count(), 0);
  assert.match(await lastAnswer(page).locator('.stats').textContent(), /tokens/);

  const kept = await page.evaluate(() => ({
    session: {...sessionStorage}, local: JSON.stringify({...localStorage}), cookie: document.cookie,
    address: location.href,
  }));
  assert.equal(kept.session['weft.key'], KEY);
  assert.ok(!kept.session['weft.settings'].includes(KEY));
  for (const place of [kept.local, kept.cookie, kept.address]) assert.ok(!place.includes(KEY));
  await page.reload();
  assert.equal(await page.inputValue('#field-key'), KEY);
  // The defaults leave it; an emptied field takes it away.
  await page.click('#reset');
  assert.equal(await page.inputValue('#field-key'), KEY);
  await page.fill('#field-key', '');
  assert.equal(await page.evaluate(() => sessionStorage.getItem('weft.key')), null);
  await page.fill('#field-key', KEY);
  const other = await page.context().newPage();
  await other.goto(`${KEYED_SERVER}/ui`);
  assert.equal(await other.inputValue('#field-key'), '');
  await close(page);
});

test('metrics on the admin port are said to be there', async () => {
  const page = await open(browser, `${KEYED_SERVER}/ui`);
  const notice = page.locator('.notice');
  await notice.filter({hasText: '--public-ops=false'}).waitFor();
  assert.match(await notice.textContent(), /admin port/);
  assert.ok(!await page.locator('.pictures').isVisible());
  assert.ok(await page.locator('.facts').isVisible());
  assert.equal(await page.locator('#state-text').textContent(), 'ready');
  await close(page);
});
