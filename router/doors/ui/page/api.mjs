// The server's routes as this page asks them. Addresses are relative to the page, which may lie
// below a path of somebody's proxy.

import {SseParser} from './sse.mjs';

// What a server answers a request with that it does not serve.
export class ApiError extends Error {
  // `param`: the field that is wrong, by its path; `status` 0: no answer came.
  constructor(message, {status = 0, param = null, retryAfter = null} = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.retryAfter = retryAfter;
  }
}

// OpenAI's shape or TGI's; anything else is somebody's between here and the server.
export function errorOf(status, text, retryAfter = null) {
  try {
    const {error} = JSON.parse(text);
    if (typeof error === 'string') return new ApiError(error, {status, retryAfter});
    if (error && typeof error.message === 'string') {
      const param = typeof error.param === 'string' ? error.param : null;
      return new ApiError(error.message, {status, param, retryAfter});
    }
  } catch {
    // No JSON.
  }
  return new ApiError(`The server answered with HTTP ${status}.`, {status, retryAfter});
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, {cache: 'no-store', redirect: 'error', ...options});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server cannot be reached.');
  }
  if (response.ok) return response;
  throw errorOf(response.status, await response.text(), response.headers.get('retry-after'));
}

export async function fetchInfo(signal) {
  return (await ask('../info', {signal})).json();
}

export async function fetchMetrics(signal) {
  return (await ask('../metrics', {signal})).text();
}

// One chunk of a stream in the words of this page.
function readChunk(chunk) {
  if (chunk.error) {
    const {message, param} = chunk.error;
    throw new ApiError(String(message ?? 'The answer failed.'), {status: 200, param});
  }
  const choice = chunk.choices?.[0];
  return {
    text: choice?.delta?.content ?? '',
    isToken: choice !== undefined,
    tokens: choice?.logprobs?.content ?? [],
    ids: choice?.token_ids ?? [],
    finish: choice?.finish_reason ?? null,
    seed: chunk.resume?.seed ?? null,
    usage: chunk.usage ?? null,
  };
}

// Sends a chat request (`body`: JSON text that asks for a stream) and yields its chunks. Throws an
// ApiError when it is refused or breaks, and AbortError when `signal` ends it.
export async function* streamChat(body, key, signal) {
  const headers = {'content-type': 'application/json'};
  if (key !== '') headers.authorization = `Bearer ${key}`;
  const response = await ask('../v1/chat/completions', {method: 'POST', headers, body, signal});
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  let ended = false;
  try {
    for (;;) {
      let piece;
      try {
        piece = await reader.read();
      } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new ApiError('The connection broke before the end of the answer.');
      }
      if (piece.done) {
        if (ended) return;
        throw new ApiError('The answer broke off before its end.');
      }
      for (const data of parser.push(decoder.decode(piece.value, {stream: true}))) {
        // The connection's own end is waited for: then it serves the next request, too.
        if (data === '[DONE]') {
          ended = true;
        } else {
          yield readChunk(JSON.parse(data));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
