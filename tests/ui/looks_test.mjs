// axe-core finds nothing wrong in either theme, narrow or wide, in any state of the page; nothing
// is cut off at 360 px; what moves stands still for those who ask for it. With WEFT_UI_SCREENSHOTS
// each state is written there as a picture, for people to look at.

import assert from 'node:assert/strict';
import path from 'node:path';
import test, {after, before} from 'node:test';

import {answered, ask, axeSource, close, launch, mock, open, SERVER, showView, stream} from
    './browser.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const RICH = ['# Tides\n\nThe **moon** pulls; see `tide()` and [NOAA](https://noaa.example/x).\n\n',
              '1. High tide\n2. Low tide\n   - spring\n   - neap\n\n',
              '| kind | height | remark |\n|---|--:|---|\n| spring | 2.1 m | full moon |\n\n',
              '> Time and tide wait for no one.\n\n',
              '```python\ndef tide(hours):\n    return 1.5 * math.cos(hours / 12.4 * 2 * math.pi)' +
              '  # metres above the mean\n```\n'];

async function check(page, name) {
  const shots = process.env.WEFT_UI_SCREENSHOTS;
  if (shots) await page.screenshot({path: path.join(shots, `${name}.png`)});
  // Through the driver, so that the page's policy stays as it is.
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => window.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }));
  const violations = found.violations.map(({id, nodes}) =>
      `${name}: ${id}: ${nodes.map(({target, failureSummary}) => `${target}: ${failureSummary}`)}`);
  assert.deepEqual(violations, []);
  assert.ok(found.passes.length > 20, `only ${found.passes.length} rules looked at something`);
  const wide = await page.evaluate(() =>
      [...document.querySelectorAll('body *')].filter((node) => {
        const box = node.getBoundingClientRect();
        return box.width > 0 && box.right > innerWidth + 1 && !node.closest('pre, .table, .skip');
      }).map((node) => `${node.tagName} ${node.className}`));
  assert.deepEqual(wide, [], `${name}: beyond the right edge`);
}

const SIZES = [[360, 740], [900, 700], [1280, 800]];
for (const [width, height] of SIZES) {
  for (const colorScheme of ['light', 'dark']) {
    test(`nothing to find fault with at ${width} px, ${colorScheme}`, async () => {
      const page = await open(browser, `${SERVER}/ui`, {viewport: {width, height}, colorScheme});
      const name = (state) => `${state}-${width}-${colorScheme}`;
      await page.locator('.figure svg[aria-label]').first().waitFor({state: 'attached'});
      await check(page, name('empty'));
      await mock(page, stream(RICH, {tokens: true, resume: {seed: 7}}));
      await ask(page, 'Tell me about tides.');
      await answered(page);
      await check(page, name('answer'));
      await page.getByRole('button', {name: 'Tokens'}).click();
      await page.locator('.answer .token').first().focus();
      await page.locator('#tooltip').waitFor();
      await check(page, name('tokens'));
      await page.keyboard.press('Escape');
      await page.getByRole('button', {name: 'Edit this message'}).click();
      await check(page, name('edit'));
      await page.keyboard.press('Escape');
      await mock(page, '{"error":{"message":"`response_format`: is not supported","param":' +
                 '"response_format","type":"invalid_request_error"}}',
                 {status: 400, type: 'application/json'});
      await ask(page, 'Now as JSON.');
      await page.locator('.error').waitFor();
      await check(page, name('error'));
      await page.locator('.error button').click();
      await check(page, name('settings'));
      await showView(page, 'server');
      await check(page, name('server'));
      // The other theme, by the switch.
      const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const system = await back();
      await page.click('#theme');
      const light = await back();
      await page.click('#theme');
      const dark = await back();
      assert.notEqual(light, dark);
      assert.equal(system, colorScheme === 'light' ? light : dark);
      await close(page);
    });
  }
}

test('a choice of colours is kept, and the system has its way again', async () => {
  const page = await open(browser, `${SERVER}/ui`, {colorScheme: 'light'});
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await theme(), 'auto');
  await page.click('#theme');
  await page.click('#theme');
  assert.equal(await page.getAttribute('#theme', 'aria-label'), 'Colours: dark');
  await page.reload();
  assert.equal(await theme(), 'dark');
  await page.click('#theme');
  assert.equal(await theme(), 'auto');
  await close(page);
});

test('nothing moves for those who want it still', async () => {
  for (const reducedMotion of ['no-preference', 'reduce']) {
    const page = await open(browser, `${SERVER}/ui`, {reducedMotion});
    // An answer that does not come.
    await page.route('**/v1/chat/completions', () => {});
    await ask(page, 'Hi');
    await page.locator('.answer[aria-busy=true]').waitFor();
    const moving = await page.evaluate(() => document.getAnimations().length);
    assert.equal(moving > 0, reducedMotion === 'no-preference', `${moving} animations`);
    await page.click('#stop');
    await answered(page);
    await close(page);
  }
});
