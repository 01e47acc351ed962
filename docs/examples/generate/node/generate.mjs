// Streams an answer over gRPC: deadline, retries that the server asks for, Ctrl-C.
//
//     node generate.mjs PROMPT [ADDRESS]
//
// It reads the protos as they are; WEFT_PROTO is their folder.

import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const DEADLINE_MS = 60_000;
const TRIES = 5;

const folder = process.env.WEFT_PROTO ?? new URL('../../../../proto', import.meta.url).pathname;
const loaded = protoLoader.loadSync(
    ['weft/v1/generation.proto', 'google/rpc/error_details.proto'],
    {includeDirs: [folder], longs: String});
const {weft} = grpc.loadPackageDefinition(loaded);

// Milliseconds of the error's RetryInfo; null where a retry makes no sense.
function retryDelayMs(error) {
  for (const bytes of error.metadata?.get('grpc-status-details-bin') ?? []) {
    for (const detail of decode('google.rpc.Status', bytes).details ?? []) {
      if (!(detail.typeUrl ?? detail.type_url).endsWith('/google.rpc.RetryInfo')) continue;
      const {retryDelay} = decode('google.rpc.RetryInfo', detail.value);
      return Number(retryDelay?.seconds ?? 0) * 1000 + (retryDelay?.nanos ?? 0) / 1e6;
    }
  }
  return null;
}

function decode(type, bytes) {
  return loaded[type].deserialize(bytes);
}

function generate(client, request) {
  return new Promise((resolve, reject) => {
    const call = client.generate(request, {deadline: Date.now() + DEADLINE_MS});
    const cancel = () => call.cancel();
    process.once('SIGINT', cancel);
    let name = '-';
    let begun = false;
    call.on('metadata', (head) => { name = head.get('x-request-id')[0] ?? name; });
    call.on('data', (event) => {
      begun = true;
      process.stdout.write(event.output?.text ?? '');
    });
    call.on('end', resolve);
    call.on('error', (error) => {
      process.stderr.write(`[${grpc.status[error.code]}: ${error.details} (request ${name})]\n`);
      reject(begun ? null : retryDelayMs(error));
    });
    call.on('close', () => process.off('SIGINT', cancel));
  });
}

const [prompt, address = '127.0.0.1:8081'] = process.argv.slice(2);
const client = new weft.v1.TextGeneration(address, grpc.credentials.createInsecure());
const request = {text: prompt, sampling: {temperature: 0}, stopping: {maxTokens: 32}};
for (let tries = 1; ; tries++) {
  try {
    await generate(client, request);
    process.stdout.write('\n');
    break;
  } catch (delayMs) {
    if (delayMs === null || tries === TRIES) {
      process.exitCode = 1;
      break;
    }
    await new Promise((resolve) => setTimeout(resolve, delayMs));
  }
}
client.close();
