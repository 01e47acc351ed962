// Tools by OpenAI's client for JavaScript: forced, named, forbidden, streamed, parsed,
// run and answered.

import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import test from 'node:test';

const modules = createRequire(`${process.env.WEFT_NODE_MODULES}/`);
const {OpenAI} = modules('openai');
const {zodFunction} = modules('openai/helpers/zod');
const {z} = modules('zod');

const client = new OpenAI({
  baseURL: `${process.env.WEFT_SERVER}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000});
const [model] = (await client.models.list()).data.map((one) => one.id);

const MESSAGES = [{role: 'user', content: 'What is the weather in Paris?'}];
const Weather = z.object({city: z.enum(['Paris', 'Rome', 'Oslo']), unit: z.enum(['C', 'F'])});
const TOOLS = [zodFunction({name: 'get_weather', parameters: Weather})];
const NAMED = {type: 'function', function: {name: 'get_weather'}};
const ask = (fields) => ({model, messages: MESSAGES, tools: TOOLS, max_tokens: 300, ...fields});

test('a call that is required or named fits its schema', async () => {
  for (const tool_choice of ['required', NAMED]) {
    const [choice] = (await client.chat.completions.create(ask({tool_choice, seed: 1}))).choices;
    assert.ok(choice.message.tool_calls.length > 0);
    for (const call of choice.message.tool_calls) {
      assert.equal(call.type, 'function');
      assert.equal(call.function.name, 'get_weather');
      Weather.parse(JSON.parse(call.function.arguments));
    }
  }
});

test('none calls nothing', async () => {
  const answer = await client.chat.completions.create(ask({tool_choice: 'none', temperature: 0}));
  assert.equal(answer.choices[0].message.tool_calls, undefined);
  assert.ok(answer.choices[0].message.content);
});

test('a streamed call is the whole one', async () => {
  const whole = await client.chat.completions.create(ask({tool_choice: 'required', seed: 4}));
  const calls = [];
  for await (const chunk of
                 await client.chat.completions.create(
                     ask({tool_choice: 'required', seed: 4, stream: true}))) {
    for (const delta of chunk.choices[0]?.delta.tool_calls ?? []) {
      calls[delta.index] ??= {name: delta.function.name, arguments: ''};
      calls[delta.index].arguments += delta.function.arguments ?? '';
    }
  }
  assert.deepEqual(calls, whole.choices[0].message.tool_calls.map(
      (call) => ({name: call.function.name, arguments: call.function.arguments})));
});

test('parse gives objects, streamed too', async () => {
  const fields = ask({tool_choice: 'required', seed: 6});
  const answer = await client.chat.completions.parse(fields);
  const streamed = await client.chat.completions.stream(fields).finalChatCompletion();
  for (const {message} of [answer.choices[0], streamed.choices[0]]) {
    for (const call of message.tool_calls) {
      assert.deepEqual(call.function.parsed_arguments,
                       Weather.parse(JSON.parse(call.function.arguments)));
    }
  }
});

test('tools are run and their answers sent back', async () => {
  const ran = [];
  const runner = client.chat.completions.runTools({
    model, messages: MESSAGES, max_tokens: 300, seed: 3, tool_choice: NAMED,
    tools: [{
      type: 'function',
      function: {
        name: 'get_weather', strict: true, parse: JSON.parse,
        parameters: TOOLS[0].function.parameters,
        function: (fields) => {
          ran.push(Weather.parse(fields));
          return {degrees: 21};
        },
      },
    }],
  });
  await runner.done();
  assert.equal(ran.length, 1);
  assert.deepEqual(runner.messages.map((message) => message.role).slice(-2), ['assistant', 'tool']);
  assert.equal(JSON.parse(runner.messages.at(-1).content).degrees, 21);
});
