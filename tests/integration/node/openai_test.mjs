// OpenAI's client for JavaScript against a real server, which test_client_node.py starts: chats and
// completions, whole and streamed; answers that fit a schema; errors in their classes; retries.

import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import test from 'node:test';

const modules = createRequire(`${process.env.WEFT_NODE_MODULES}/`);
const {OpenAI} = modules('openai');
const {zodResponseFormat} = modules('openai/helpers/zod');
const {z} = modules('zod');

const SERVER = process.env.WEFT_SERVER;
// Holds one request at a time and lets one wait.
const SMALL_SERVER = process.env.WEFT_SMALL_SERVER;
const TOKENS = 24;
const PROMPT = 'The capital of France is';
const MESSAGES = [
  {role: 'system', content: 'You answer in one sentence.'},
  {role: 'user', content: 'What is the capital of France?'},
];
const ABOUT_A_CAT = [{role: 'user', content: 'Describe a cat called Tom as JSON.'}];
const Animal = z.object({
  name: z.enum(['Tom', 'Rex']),
  kind: z.enum(['cat', 'dog']),
  age: z.number().int().min(0).max(30),
  indoors: z.boolean(),
});

const client = new OpenAI({baseURL: `${SERVER}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000});
const [model] = (await client.models.list()).data.map((one) => one.id);

const chat = (fields) =>
    client.chat.completions.create({model, messages: MESSAGES, max_tokens: TOKENS, ...fields});
const complete = (fields) =>
    client.completions.create({model, prompt: PROMPT, max_tokens: TOKENS, ...fields});

async function joined(stream) {
  const all = {text: '', reason: null, usage: null, logprobs: []};
  for await (const chunk of stream) {
    all.usage = chunk.usage ?? all.usage;
    for (const choice of chunk.choices) {
      all.text += choice.delta.content ?? '';
      all.reason = choice.finish_reason ?? all.reason;
      all.logprobs.push(...(choice.logprobs?.content ?? []));
    }
  }
  return all;
}

// The number of a metric, of the line with this reason if one is given.
async function metric(server, name, reason = '') {
  const text = await (await fetch(`${server}/metrics`)).text();
  const line = text.split('\n').find((one) => one.startsWith(name) &&
                                     /[{ ]/.test(one[name.length]) &&
                                     (reason === '' || one.includes(`reason="${reason}"`)));
  return Number(line.split(' ').at(-1));
}

async function until(condition) {
  const deadline = Date.now() + 60000;
  while (!await condition()) {
    assert.ok(Date.now() < deadline, `${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test('models are listed and found', async () => {
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve('gpt-5'), OpenAI.NotFoundError);
});

test('a stream is the whole answer', async () => {
  for (const seed of [1, 7, Number.MAX_SAFE_INTEGER]) {
    const fields = {seed, logprobs: true, top_logprobs: 3};
    const whole = await chat(fields);
    const stream = await joined(
        await chat({...fields, stream: true, stream_options: {include_usage: true}}));
    assert.equal(stream.text, whole.choices[0].message.content);
    assert.equal(stream.reason, whole.choices[0].finish_reason);
    assert.deepEqual(stream.logprobs, whole.choices[0].logprobs.content);
    assert.equal(stream.usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(stream.usage.completion_tokens, stream.logprobs.length);
    assert.equal(stream.usage.total_tokens, whole.usage.total_tokens);
  }
});

test('the helper that collects a stream gives the whole answer', async () => {
  const whole = await chat({seed: 3});
  const deltas = [];
  const runner = client.chat.completions.stream({
    model, messages: MESSAGES, max_tokens: TOKENS, seed: 3, stream_options: {include_usage: true}});
  runner.on('content', (delta) => deltas.push(delta));
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(deltas.join(''), whole.choices[0].message.content);
  assert.equal(final.usage.completion_tokens, whole.usage.completion_tokens);
});

test('many at once are as one by one', async () => {
  const seeds = [...Array(8).keys()];
  const alone = [];
  for (const seed of seeds) alone.push((await chat({seed})).choices[0].message.content);
  const together = await Promise.all(
      seeds.map(async (seed) => (await joined(await chat({seed, stream: true}))).text));
  assert.deepEqual(together, alone);
  assert.ok(new Set(alone).size > 2);
});

test('choices come whole and streamed', async () => {
  const whole = await chat({n: 3, seed: 5});
  const texts = whole.choices.map((choice) => choice.message.content);
  // A small model says the same now and then.
  assert.ok(new Set(texts).size > 1);
  const streamed = ['', '', ''];
  for await (const chunk of await chat({n: 3, seed: 5, stream: true})) {
    for (const choice of chunk.choices) streamed[choice.index] += choice.delta.content ?? '';
  }
  assert.deepEqual(streamed, texts);
});

test('ends', async () => {
  const own = await chat({temperature: 0});
  assert.equal(own.choices[0].finish_reason, 'stop');
  assert.match(own.choices[0].message.content, /Paris/);
  const cut = await chat({temperature: 0, max_tokens: 4});
  assert.equal(cut.choices[0].finish_reason, 'length');
  assert.equal(cut.usage.completion_tokens, 4);
  const stopped = await chat({temperature: 0, stop: ['Paris']});
  assert.equal(stopped.choices[0].message.content,
               own.choices[0].message.content.split('Paris')[0]);
  assert.equal(stopped.choices[0].finish_reason, 'stop');
});

test('completions of several prompts, of ids, with an echo', async () => {
  const prompts = [PROMPT, 'One, two, three,'];
  const several = await complete({prompt: prompts, temperature: 0, logprobs: 2});
  for (const [index, prompt] of prompts.entries()) {
    const alone = await complete({prompt, temperature: 0});
    assert.equal(several.choices[index].text, alone.choices[0].text);
    assert.equal(several.choices[index].logprobs.tokens.join(''), alone.choices[0].text);
  }
  const echoed = await complete({echo: true, temperature: 0});
  assert.equal(echoed.choices[0].text, PROMPT + several.choices[0].text);
  let streamed = '';
  for await (const chunk of await complete({temperature: 0, stream: true})) {
    streamed += chunk.choices[0].text;
  }
  assert.equal(streamed, several.choices[0].text);
});

test('parse gives objects', async () => {
  const response_format = zodResponseFormat(Animal, 'animal');
  for (const seed of [1, 2, 3]) {
    const answer = await client.chat.completions.parse(
        {model, messages: ABOUT_A_CAT, response_format, seed, max_tokens: 200});
    const {parsed, content} = answer.choices[0].message;
    assert.deepEqual(parsed, Animal.parse(JSON.parse(content)));
    assert.equal(answer.choices[0].finish_reason, 'stop');
  }
  const runner = client.chat.completions.stream(
      {model, messages: ABOUT_A_CAT, response_format, temperature: 0, max_tokens: 200});
  const final = await runner.finalChatCompletion();
  assert.deepEqual(final.choices[0].message.parsed,
                   Animal.parse(JSON.parse(final.choices[0].message.content)));
  await assert.rejects(client.chat.completions.parse(
      {model, messages: ABOUT_A_CAT, response_format, max_tokens: 3}), OpenAI.OpenAIError);
});

test('errors have their classes and name the field', async () => {
  for (const [kind, param, fields] of [
    [OpenAI.BadRequestError, 'temperature', {temperature: -1}],
    [OpenAI.BadRequestError, 'messages', {messages: []}],
    [OpenAI.BadRequestError, 'top_logprobs', {top_logprobs: 2}],
    [OpenAI.BadRequestError, 'n', {n: 0}],
    [OpenAI.NotFoundError, null, {model: 'gpt-5'}],
  ]) {
    for (const stream of [false, true]) {
      await assert.rejects(chat({...fields, stream}), (error) => {
        assert.ok(error instanceof kind, `${error}`);
        assert.equal(error.param, param);
        assert.equal(error.type, 'invalid_request_error');
        assert.match(error.requestID, /^[A-Za-z0-9._-]+$/);
        return true;
      });
    }
  }
  await assert.rejects(chat({messages: [{role: 'user', content: 'x '.repeat(10000)}]}),
                       {code: 'context_length_exceeded', status: 400});
});

test('an error inside a stream is thrown, a deadline is not met by a second try', async () => {
  const endless = {max_tokens: 1500, ignore_eos: true, deadline_ms: 400};
  let text = '';
  await assert.rejects(async () => {
    for await (const chunk of await chat({...endless, stream: true})) {
      text += chunk.choices[0].delta.content ?? '';
    }
  }, (error) => error instanceof OpenAI.APIError && error.code === 'deadline_exceeded');
  assert.ok(text.length > 10);
  const failed = () => metric(SERVER, 'weft_request_failure_total', 'deadline');
  const before = await failed();
  await assert.rejects(client.chat.completions.create(
      {model, messages: MESSAGES, ...endless}, {maxRetries: 3}), {status: 504});
  assert.equal(await failed(), before + 1);
});

test('a client that gives up is gone', async () => {
  const endless = {max_tokens: 1500, ignore_eos: true};
  await assert.rejects(client.chat.completions.create({model, messages: MESSAGES, ...endless},
                                                      {timeout: 500}),
                       OpenAI.APIConnectionTimeoutError);
  const stream = await chat({...endless, stream: true});
  for await (const chunk of stream) {
    assert.equal(chunk.choices[0].delta.role, 'assistant');
    break;
  }
  assert.ok(stream.controller.signal.aborted);
});

test('a refused request is sent again', async () => {
  const small = client.withOptions({baseURL: `${SMALL_SERVER}/v1`});
  const body = {model, messages: MESSAGES, max_tokens: 1500, ignore_eos: true, stream: true};
  const hogs = new AbortController();
  const left = [1, 2].map(
      () => small.chat.completions.create(body, {signal: hogs.signal})
                .then(async (stream) => { for await (const _ of stream); })
                .catch(() => {}));
  const held = async () => await metric(SMALL_SERVER, 'weft_num_requests_running') +
      await metric(SMALL_SERVER, 'weft_num_requests_waiting');
  const refused = () => metric(SMALL_SERVER, 'weft_request_failure_total', 'overloaded');
  await until(async () => await held() === 2);
  const ask = {model, messages: MESSAGES, max_tokens: 4};
  await assert.rejects(small.chat.completions.create(ask), OpenAI.RateLimitError);
  const patient = small.chat.completions.create(ask, {maxRetries: 8});
  await until(async () => await refused() === 2);
  hogs.abort();
  assert.equal((await patient).usage.completion_tokens, 4);
  await Promise.all(left);
});

test('no key and a wrong key are an AuthenticationError', async () => {
  const keyed = client.withOptions({baseURL: `${process.env.WEFT_KEYED_SERVER}/v1`});
  await assert.rejects(keyed.models.list(), OpenAI.AuthenticationError);
  const right = keyed.withOptions({apiKey: process.env.WEFT_KEY});
  assert.equal((await right.models.list()).data[0].id, model);
});
