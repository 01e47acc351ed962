// Streams an answer through TGI's route and goes on elsewhere when its server dies.
//
//   node resume.mjs PROMPT URL [URL...]

const PATIENCE_MS = 60_000;

class Refused extends Error {}

// Yields the events of one server-sent stream. An event without its end broke off.
async function* events(body) {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of body) {
    rest += decoder.decode(bytes, {stream: true});
    const lines = rest.split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data:')) yield JSON.parse(line.slice(5));
    }
  }
}

// Yields texts until the answer is complete. Changes `request` to resume what came.
async function* stream(request, urls) {
  const parameters = request.parameters;
  const ids = [];
  let givenUp = Date.now() + PATIENCE_MS;
  for (let tries = 0;; ++tries) {
    const url = urls[tries % urls.length];
    try {
      const answer = await fetch(`${url}/generate_stream`, {
        method: 'POST',
        headers: {'content-type': 'application/json'},
        body: JSON.stringify(request),
      });
      if (answer.status !== 200) {
        const passing = answer.status === 429 || answer.status >= 500;
        throw new (passing ? Error : Refused)(`${answer.status} ${await answer.text()}`);
      }
      for await (const event of events(answer.body)) {
        if (event.error) throw new Error(event.error);
        if (event.resume) parameters.resume = {...event.resume, output_ids: ids};
        // The last event may name the last token once more, with text that was held back.
        if (event.index > ids.length) ids.push(event.token.id);
        givenUp = Date.now() + PATIENCE_MS;
        if (!event.token.special) yield event.token.text;
        if (event.details) return;
      }
      throw new Error('the stream broke off');
    } catch (error) {
      if (error instanceof Refused || Date.now() > givenUp) throw error;
      console.error(`[${url}: ${error.cause?.code ?? error.message}]`);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const [prompt, ...urls] = process.argv.slice(2);
const request = {
  inputs: prompt,
  parameters: {max_new_tokens: 64, temperature: 0.8, do_sample: true, seed: 7, ignore_eos: true},
};
for await (const text of stream(request, urls)) process.stdout.write(text);
process.stdout.write('\n');
