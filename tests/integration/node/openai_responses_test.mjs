// Responses by OpenAI's client for JavaScript: whole, streamed, parsed, with tools, refused.

import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import test from 'node:test';

const modules = createRequire(`${process.env.WEFT_NODE_MODULES}/`);
const {OpenAI} = modules('openai');
const {zodTextFormat} = modules('openai/helpers/zod');
const {z} = modules('zod');

const client = new OpenAI({
  baseURL: `${process.env.WEFT_SERVER}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60000});
const [model] = (await client.models.list()).data.map((one) => one.id);

const QUESTION = 'What is the capital of France?';
const WEATHER = {
  type: 'function', name: 'get_weather', description: 'The weather of a city.', strict: true,
  parameters: {
    type: 'object', additionalProperties: false, required: ['city'],
    properties: {city: {type: 'string', enum: ['Paris', 'Rome', 'Oslo']}},
  },
};
const ask = (fields) => ({
  model, input: QUESTION, instructions: 'You answer in one sentence.', temperature: 0,
  max_output_tokens: 24, ...fields});

test('a response is the chat of the same words', async () => {
  const answer = await client.responses.create(ask());
  const chat = await client.chat.completions.create({
    model, temperature: 0, max_tokens: 24, messages: [
      {role: 'system', content: 'You answer in one sentence.'}, {role: 'user', content: QUESTION}]});
  assert.equal(answer.output_text, chat.choices[0].message.content);
  assert.equal(answer.status, 'completed');
  assert.equal(answer.usage.total_tokens, chat.usage.total_tokens);
  const again = await client.responses.create(ask({
    input: [{role: 'user', content: QUESTION}, ...answer.output,
            {role: 'user', content: 'And of Italy?'}]}));
  assert.ok(again.usage.input_tokens > answer.usage.input_tokens);
});

test('a stream is the whole response', async () => {
  const whole = await client.responses.create(ask());
  const texts = [];
  let number = 0;
  const stream = client.responses.stream(ask());
  stream.on('event', (event) => assert.equal(event.sequence_number, number++));
  stream.on('response.output_text.delta', (event) => texts.push(event.delta));
  const final = await stream.finalResponse();
  assert.equal(texts.join(''), whole.output_text);
  assert.equal(final.output_text, whole.output_text);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  const cut = await client.responses.stream(ask({max_output_tokens: 3})).finalResponse();
  assert.equal(cut.status, 'incomplete');
  assert.equal(cut.incomplete_details.reason, 'max_output_tokens');
});

test('parse gives objects', async () => {
  const Animal = z.object({name: z.enum(['Tom', 'Rex']), age: z.number().int().min(0).max(30)});
  const fields = ask({
    input: 'Describe a cat called Tom as JSON.', max_output_tokens: 200,
    text: {format: zodTextFormat(Animal, 'animal')}});
  const answer = await client.responses.parse(fields);
  assert.deepEqual(answer.output_parsed, Animal.parse(JSON.parse(answer.output_text)));
});

test('functions are called and answered', async () => {
  const fields = {tools: [WEATHER], tool_choice: 'required', max_output_tokens: 200};
  for (const asked of [await client.responses.create(ask(fields)),
                       await client.responses.stream(ask(fields)).finalResponse()]) {
    const calls = asked.output.filter((item) => item.type === 'function_call');
    assert.ok(calls.length > 0);
    for (const call of calls) {
      assert.ok(['Paris', 'Rome', 'Oslo'].includes(JSON.parse(call.arguments).city));
    }
    const said = await client.responses.create(ask({
      tools: [WEATHER], tool_choice: 'none',
      input: [{role: 'user', content: QUESTION}, ...asked.output, ...calls.map((call) => (
          {type: 'function_call_output', call_id: call.call_id, output: '21 degrees'}))],
    }));
    assert.ok(said.output_text);
  }
});

test('what needs a state is refused by name', async () => {
  for (const [param, fields] of [
    ['previous_response_id', {previous_response_id: 'resp_1'}],
    ['background', {background: true}],
    ['tools[0].type', {tools: [{type: 'web_search'}]}],
  ]) {
    await assert.rejects(client.responses.create(ask(fields)), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, `${error}`);
      assert.equal(error.param, param);
      return true;
    });
  }
});
