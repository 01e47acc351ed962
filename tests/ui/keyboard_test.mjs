// A walk through the page by keyboard alone, and what a screen reader hears meanwhile.

import assert from 'node:assert/strict';
import test, {after, before} from 'node:test';

import {answered, close, launch, mock, open, SERVER, stream, toTop, until} from './browser.mjs';

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const focused = (page) => page.evaluate(() => {
  const node = document.activeElement;
  return node.id || node.className || node.tagName;
});

// Presses Tab until `id` has the focus; what had it in between.
async function tabTo(page, id, key = 'Tab') {
  const seen = [];
  for (let presses = 0; presses < 60; ++presses) {
    await page.keyboard.press(key);
    seen.push(await focused(page));
    if (seen[seen.length - 1] === id) return seen;
  }
  throw new Error(`${key} does not lead to ${id}: ${seen}`);
}

for (const width of [1280, 360]) {
  test(`everything can be done without a pointer at ${width} px`, async () => {
    const page = await open(browser, `${SERVER}/ui`, {viewport: {width, height: 740}});
    assert.equal(await focused(page), 'prompt');
    await toTop(page);
    await page.keyboard.press('Tab');
    assert.equal(await focused(page), 'skip');
    await page.keyboard.press('Enter');
    await until(async () => await focused(page) === 'prompt', 'the message box');

    await toTop(page);
    if (width < 760) {
      await tabTo(page, 'theme');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      assert.ok(await page.locator('#settings').isVisible());
    }
    await tabTo(page, 'field-max_tokens');
    await page.keyboard.type('20');
    await tabTo(page, 'field-colours');
    await page.keyboard.press('Space');
    assert.ok(await page.isChecked('#field-colours'));
    if (width < 760) {
      await page.keyboard.press('Home');
      await tabTo(page, 'theme', 'Shift+Tab');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
    }
    await tabTo(page, 'prompt');
    await page.keyboard.type('Name a colour.');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('Just one.');
    await page.keyboard.press('Enter');
    await page.locator('.user').waitFor();
    assert.equal(await page.locator('.user .plain').textContent(), 'Name a colour.\nJust one.');
    await answered(page);
    // The focus stays where one writes.
    assert.equal(await focused(page), 'prompt');
    assert.equal(await page.inputValue('#prompt'), '');

    // Backwards: first the seed, then the row of tokens, which is one stop.
    await page.keyboard.press('Shift+Tab');
    assert.match(await focused(page), /seed/);
    await page.keyboard.press('Shift+Tab');
    assert.match(await focused(page), /^token/);
    await page.locator('#tooltip').waitFor();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Escape');
    await page.locator('#tooltip').waitFor({state: 'hidden'});
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Enter');  // Retry
    await page.locator('#stop').waitFor();
    await answered(page);
    assert.equal(await page.locator('.answer').count(), 1);
    assert.equal(await focused(page), 'prompt');
    await close(page);
  });
}

test('each stop of the Tab key is seen and has a name', async () => {
  const page = await open(browser, `${SERVER}/ui`);
  await mock(page, stream(['Some ', '[link](https://x.example/) ', '\n```\ncode\n```'],
                          {tokens: true}));
  await page.keyboard.type('Hi');
  await page.keyboard.press('Enter');
  await answered(page);
  await toTop(page);
  const stops = new Set();
  for (let presses = 0; presses < 80; ++presses) {
    await page.keyboard.press('Tab');
    const stop = await page.evaluate(() => {
      const node = document.activeElement;
      if (node === document.body) return null;
      const style = getComputedStyle(node), box = node.getBoundingClientRect();
      const labels = [...(node.labels ?? [])].map((label) => label.textContent).join();
      const by = (node.getAttribute('aria-labelledby') ?? '').split(' ').filter(Boolean)
          .map((id) => document.getElementById(id)?.textContent).join();
      return {
        at: `${node.tagName} ${node.id} ${node.className} ${node.textContent.slice(0, 20)}`,
        name: node.getAttribute('aria-label') || by || labels || node.textContent.trim(),
        seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
        inside: box.width > 0 && box.right > 0 && box.left < innerWidth,
      };
    });
    if (stop === null) break;
    assert.ok(stop.name, `${stop.at} has no name`);
    assert.ok(stop.seen, `${stop.at} has no outline`);
    assert.ok(stop.inside, `${stop.at} is not on the screen`);
    stops.add(stop.at);
  }
  assert.ok(stops.size >= 25, `${stops.size} stops`);
  await close(page);
});

test('a screen reader hears an answer once, and not by tokens', async () => {
  const page = await open(browser, `${SERVER}/ui`);
  await page.evaluate(() => {
    window.said = [];
    const live = document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log]');
    for (const region of live) {
      new MutationObserver(() => window.said.push(region.textContent)).observe(
          region, {childList: true, characterData: true, subtree: true});
    }
  });
  await page.fill('#field-max_tokens', '40');
  await page.fill('#field-repetition_penalty', '0.9');
  await page.focus('#prompt');
  await page.keyboard.type('Tell me about the sea.');
  await page.keyboard.press('Enter');
  await page.locator('#stop').waitFor();
  await answered(page);
  const text = await page.locator('.answer .prose').innerText();
  const said = await page.evaluate(() => window.said);
  assert.ok(said.length >= 2 && said.length <= 3, JSON.stringify(said));
  assert.equal(said[0], 'The model answers.');
  assert.ok(said[said.length - 1].startsWith('Answer: '), said[said.length - 1]);
  assert.ok(said[said.length - 1].includes(text.split('\n')[0].slice(0, 20)));
  assert.equal(await page.locator('.answer').getAttribute('aria-busy'), 'false');
  await close(page);
});
