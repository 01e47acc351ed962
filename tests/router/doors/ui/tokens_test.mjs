// Tokens as the page writes and colours them, and the clock of an answer.

import assert from 'node:assert/strict';
import test from 'node:test';

import {duration, large, number} from '../../../../router/doors/ui/page/format.mjs';
import {AnswerClock} from '../../../../router/doors/ui/page/stats.mjs';
import {percent, spoken, surprise, tokenText, TokenReader, visible} from
    '../../../../router/doors/ui/page/tokens.mjs';

test('what is less likely is coloured more strongly', () => {
  const steps = [1, 0.9, 0.89, 0.5, 0.4, 0.2, 0.1, 0.05, 0.01].map((p) => surprise(Math.log(p)));
  assert.deepEqual(steps, [0, 0, 1, 1, 2, 2, 3, 3, 4]);
  // A probability of 0 is -9999.
  assert.equal(surprise(-9999), 4);
  assert.deepEqual([0, Math.log(0.5), Math.log(0.031), -9999].map(percent),
      ['100 %', '50 %', '3.1 %', '< 0.1 %']);
});

test('what has no ink gets some', () => {
  assert.equal(visible(' a\n'), '␣a↵');
  assert.equal(visible('\u202e\u0000\u200b'), '···');
  assert.equal(tokenText({token: ' x', bytes: [32, 120]}), '␣x');
  assert.equal(tokenText({token: '\ufffd', bytes: [240, 159]}), '‹F0 9F›');
  assert.equal(tokenText({token: 'x', bytes: null}), 'x');
});

test('a character of several tokens is the text of the last one', () => {
  const reader = new TokenReader();
  const read = (bytes) => reader.read({token: '\ufffd', bytes, logprob: -1, top_logprobs: []}, 7);
  const first = read([240, 159]), second = read([145]), third = read([169]);
  assert.deepEqual([first.text, first.part], ['‹F0 9F›', true]);
  assert.deepEqual([second.text, second.part], ['‹91›', true]);
  assert.deepEqual([third.text, third.part, third.id], ['👩', false, 7]);
  assert.equal(read([97]).text, 'a');
});

test('a screen reader hears the token, its probability and the others', () => {
  const reader = new TokenReader();
  const token = reader.read({token: ' a', bytes: [32, 97], logprob: Math.log(0.5), top_logprobs: [
    {token: ' a', bytes: [32, 97], logprob: Math.log(0.5)},
    {token: 'b', bytes: [98], logprob: Math.log(0.25)}]});
  assert.equal(spoken(token), '␣a, 50 %; likeliest: ␣a 50 %, b 25 %');
  assert.equal(spoken({...token, alternatives: []}), '␣a, 50 %');
});

test('the rate is of the tokens after the first, by the count of the server', () => {
  const clock = new AnswerClock(10);
  assert.equal(clock.firstTokenSeconds, null);
  assert.deepEqual(clock.lines(), ['0 tokens']);
  clock.token(10.25);
  assert.equal(clock.tokensPerSecond, null);
  clock.token(10.75);
  clock.token(11.25);
  assert.equal(clock.firstTokenSeconds, 0.25);
  assert.equal(clock.tokensPerSecond, 2);
  clock.usage = {
    completion_tokens: 5, prompt_tokens: 38, prompt_tokens_details: {cached_tokens: 8},
  };
  clock.finish = 'length';
  assert.deepEqual(clock.lines(), ['5 tokens', 'first after 250 ms', '4 tokens/s',
                                   'prompt 38 (8 cached)', 'reached the limit']);
});

test('numbers', () => {
  assert.deepEqual([0.0042, 0.09, 1.5, 75, null, NaN].map(duration),
      ['4.2 ms', '90 ms', '1.50 s', '75 s', '–', '–']);
  assert.deepEqual([0, 3.14, 49152, 1234.6, null].map(number),
      ['0', '3.1', '49\u202f152', '1\u202f235', '–']);
  assert.deepEqual([134515008, 8.03e9, 671e9, 12].map(large), ['135 M', '8.03 B', '671 B', '12']);
});
