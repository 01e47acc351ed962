// Server-sent events in whatever pieces they arrive.

import assert from 'node:assert/strict';
import test from 'node:test';

import {SseParser} from '../../../../router/doors/ui/page/sse.mjs';

// All events of a text that arrives in pieces of `size` characters.
function read(text, size = text.length || 1) {
  const parser = new SseParser();
  const events = [];
  for (let at = 0; at < text.length; at += size) {
    events.push(...parser.push(text.slice(at, at + size)));
  }
  return events;
}

const STREAM = ': waiting\n\ndata: {"a":1}\r\n\r\nevent: x\ndata: one\ndata:two\ndata\nid: 7\n\n' +
    'data:  spaced\r\rdata: [DONE]\n\n';
const EVENTS = ['{"a":1}', 'one\ntwo\n', ' spaced', '[DONE]'];

test('events are the same whatever the pieces are', () => {
  for (let size = 1; size <= STREAM.length; ++size) {
    assert.deepEqual(read(STREAM, size), EVENTS, `pieces of ${size}`);
  }
});

test('an event ends with its empty line and not before', () => {
  assert.deepEqual(read('data: x\n'), []);
  assert.deepEqual(read('data: x\r'), []);
  assert.deepEqual(read('data: x\r\n\r'), []);
  assert.deepEqual(read('data: x\r\n\r\n'), ['x']);
});

test('comments and other fields are no events', () => {
  assert.deepEqual(read(': waiting\n\n: waiting\n\nevent: y\n\ndatax: z\n\n'), []);
});

test('a byte order mark is no part of the first line', () => {
  assert.deepEqual(read('\ufeffdata: x\n\n'), ['x']);
  assert.deepEqual(read('data: \ufeffx\n\n'), ['\ufeffx']);
});
