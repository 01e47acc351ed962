// Anthropic's client for JavaScript at /v1/messages: whole, streamed, tools, errors.

import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import test from 'node:test';

const modules = createRequire(`${process.env.WEFT_NODE_MODULES}/`);
const {Anthropic} = modules('@anthropic-ai/sdk');

const SERVER = process.env.WEFT_SERVER;
const client = new Anthropic({baseURL: SERVER, apiKey: 'none', maxRetries: 0, timeout: 60000});
const [{id: model}] = (await (await fetch(`${SERVER}/v1/models`)).json()).data;

const MESSAGES = [{role: 'user', content: 'What is the capital of France?'}];
const WEATHER = {
  name: 'get_weather',
  description: 'The weather of a city.',
  input_schema: {
    type: 'object', additionalProperties: false, required: ['city'],
    properties: {city: {type: 'string', enum: ['Paris', 'Rome', 'Oslo']}},
  },
};
const ask = (fields) => ({
  model, messages: MESSAGES, system: 'You answer in one sentence.', max_tokens: 24, temperature: 0,
  ...fields});

test('a stream is the whole message', async () => {
  const whole = await client.messages.create(ask());
  assert.match(whole.content[0].text, /Paris/);
  assert.equal(whole.stop_reason, 'end_turn');
  const texts = [];
  const stream = client.messages.stream(ask()).on('text', (text) => texts.push(text));
  const final = await stream.finalMessage();
  assert.equal(texts.join(''), whole.content[0].text);
  assert.equal(final.content[0].text, whole.content[0].text);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test('tools are called and answered', async () => {
  const fields = {tools: [WEATHER], tool_choice: {type: 'any'}, max_tokens: 200};
  for (const asked of [await client.messages.create(ask(fields)),
                       await client.messages.stream(ask(fields)).finalMessage()]) {
    assert.equal(asked.stop_reason, 'tool_use');
    const uses = asked.content.filter((block) => block.type === 'tool_use');
    for (const use of uses) assert.ok(['Paris', 'Rome', 'Oslo'].includes(use.input.city));
    const said = await client.messages.create(ask({
      tools: [WEATHER], tool_choice: {type: 'none'},
      messages: [
        ...MESSAGES, {role: 'assistant', content: asked.content},
        {role: 'user', content: uses.map((use) => (
            {type: 'tool_result', tool_use_id: use.id, content: '21 degrees'}))},
      ],
    }));
    assert.ok(said.content[0].text);
  }
});

test('errors have their classes', async () => {
  await assert.rejects(client.messages.create(ask({temperature: -1})), Anthropic.BadRequestError);
  await assert.rejects(client.messages.create(ask({model: 'claude'})), Anthropic.NotFoundError);
});
