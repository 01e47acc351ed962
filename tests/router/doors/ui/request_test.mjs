// What the page sends: fields within the API's ranges, and the errors that come back.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import test from 'node:test';

import {errorOf} from '../../../../router/doors/ui/page/api.mjs';
import {chatBody, fieldOf, PARAMETERS, readParameter, readSchema} from
    '../../../../router/doors/ui/page/parameters.mjs';

const parameter = (name) => PARAMETERS.find((one) => one.name === name);
const read = (name, text) => readParameter(parameter(name), text);

test('the ranges are those of docs/API.md', () => {
  const doc = fs.readFileSync(new URL('../../../../docs/API.md', import.meta.url), 'utf8');
  const rows = doc.split('\n').filter((line) => line.startsWith('| '))
      .map((line) => line.split('|').map((cell) => cell.trim()));
  const checked = [];
  for (const {name, kind, min, max, open} of PARAMETERS) {
    if (!['number', 'whole'].includes(kind) || name === 'max_tokens') continue;
    const row = rows.find((cells) => cells[3]?.includes(`\`${name}\``));
    assert.ok(row, `${name} has no row in docs/API.md`);
    const text = `${row[3]} ${row[5]}`.replaceAll('−', '-');
    const between = /(-?[\d.]+) \.\. (-?[\d.]+)/.exec(text);
    const above = /> (\d+), ≤ (\d+)/.exec(text);
    const [, least, most] = between ?? above;
    assert.deepEqual([Number(least), Number(most)], [min, max], name);
    assert.equal(open === true, between === null, name);
    checked.push(name);
  }
  assert.equal(checked.length, 8);
});

test('an empty field is not sent, a good one is, a bad one says its range', () => {
  assert.deepEqual(read('temperature', ' '), {});
  assert.deepEqual(read('temperature', '0.7'), {value: 0.7});
  assert.deepEqual(read('temperature', '1e2'), {value: 100});
  assert.deepEqual(read('temperature', '100.5'), {error: 'must be a number from 0 to 100'});
  assert.deepEqual(read('temperature', '-0.1'), {error: 'must be a number from 0 to 100'});
  assert.deepEqual(read('temperature', 'warm'), {error: 'must be a number from 0 to 100'});
  assert.deepEqual(read('top_p', '0'), {error: 'must be a number above 0, at most 1'});
  assert.deepEqual(read('top_p', '1'), {value: 1});
  assert.deepEqual(read('top_k', '2.5'), {error: 'must be a whole number from 0 to 1048576'});
  assert.deepEqual(read('max_tokens', '0'), {error: 'must be a whole number from 1 on'});
  assert.deepEqual(read('presence_penalty', '-2'), {value: -2});
});

test('seeds are any number of 64 bits and keep all their digits', () => {
  for (const good of ['0', '18446744073709551615', '-9223372036854775808', '9007199254740993']) {
    const {value} = read('seed', good);
    const body = chatBody({messages: [], values: {seed: value, top_k: 3}});
    assert.ok(body.endsWith(`,"seed":${good}}`), body);
    assert.equal(JSON.parse(body).top_k, 3);
  }
  for (const bad of ['18446744073709551616', '-9223372036854775809', '1.5', '0x10', 'a', '1e3',
                     '1,"x":2']) {
    assert.ok(read('seed', bad).error, bad);
  }
});

test('stop strings are lines, with line breaks written out', () => {
  assert.deepEqual(read('stop', ''), {});
  assert.deepEqual(read('stop', 'END\n\n\\n\\n\n a\\\\n'), {value: ['END', '\n\n', ' a\\n']});
  assert.ok(read('stop', 'x\n'.repeat(17)).error);
  assert.deepEqual(read('stop', 'x'.repeat(1024)), {value: ['x'.repeat(1024)]});
  assert.ok(read('stop', 'é'.repeat(513)).error);
});

test('the schema is a JSON object or says why not', () => {
  assert.deepEqual(readSchema(' \n'), {});
  assert.match(readSchema('{"type":').error, /^is not JSON: /);
  for (const text of ['5', 'null', '[]', '"x"']) {
    assert.match(readSchema(text).error, /JSON object/);
  }
  assert.deepEqual(readSchema('{"type":"object"}').value, {
    type: 'json_schema', json_schema: {name: 'answer', strict: true, schema: {type: 'object'}},
  });
});

test('a body asks for a stream with counts, and for log-probabilities where wanted', () => {
  const messages = [{role: 'user', content: '"}, {'}];
  const plain = JSON.parse(chatBody({messages, values: {}}));
  assert.deepEqual(plain, {messages, stream: true, stream_options: {include_usage: true},
                           return_token_ids: true});
  const full = JSON.parse(chatBody({messages, values: {stop: ['a']}, topLogprobs: 0,
                                    responseFormat: {type: 'json_schema'}}));
  assert.deepEqual([full.logprobs, full.top_logprobs, full.stop, full.response_format.type],
      [true, 0, ['a'], 'json_schema']);
});

test('an error of the server belongs to a field of the page', () => {
  for (const [param, field] of [
    ['temperature', 'temperature'], ['stop[3]', 'stop'], ['max_completion_tokens', 'max_tokens'],
    ['response_format', 'schema'], ['response_format.json_schema.schema', 'schema'],
    ['top_logprobs', 'top_logprobs'], ['messages[0].content', null], ['constructor', null],
    [null, null],
  ]) {
    assert.equal(fieldOf(param), field, String(param));
  }
});

test('errors are read in both shapes, and what is neither is no exception', () => {
  const openai = errorOf(400, '{"error":{"message":"m","type":"t","param":"top_p","code":null}}');
  assert.deepEqual([openai.message, openai.status, openai.param], ['m', 400, 'top_p']);
  const tgi = errorOf(429, '{"error":"busy","error_type":"overloaded"}', '3');
  assert.deepEqual([tgi.message, tgi.param, tgi.retryAfter], ['busy', null, '3']);
  for (const text of ['', '<html>', 'null', '{}', '{"error":null}', '{"error":{"message":5}}',
                      '[]']) {
    assert.equal(errorOf(502, text).message, 'The server answered with HTTP 502.');
  }
});
