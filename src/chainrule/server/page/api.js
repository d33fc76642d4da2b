// Requests to the server of this page.

let key = null; // in memory only
let asking = null; // pending prompt for the key, shared by all requests
let askForKey = async () => null;

export function onKeyWanted(ask) {
  askForKey = ask;
}

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Send a GET request, or a POST request with a JSON body; return the JSON response. */
export async function ask(path, body = null, signal = null) {
  return (await send(path, body, signal)).json();
}

/** Yield the documents of a response streamed as server-sent events. */
export async function* stream(path, body, signal) {
  const response = await send(path, { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") continue; // the connection closes right after it
        const document = JSON.parse(data);
        if (document.error) throw new Failure(500, document.error.message);
        yield document;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // lets the server cancel the request
  }
}

async function send(path, body, signal) {
  for (let attempt = 0; ; attempt += 1) {
    const used = key;
    const headers = { ...(used && { Authorization: `Bearer ${used}` }), ...(body && { "Content-Type": "application/json" }) };
    const method = body ? "POST" : "GET";
    const response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" }).catch((error) => {
      throw signal?.aborted ? error : new Failure(0, "The server does not respond; check that it is running.");
    });
    if (response.ok) return response;
    if (response.status === 401 && attempt < 20) {
      if (key === used) {
        asking ??= askForKey(used !== null).finally(() => { asking = null; });
        key = await asking;
      }
      continue;
    }
    const problem = await response.json().catch(() => null);
    throw new Failure(response.status, problem?.error?.message ?? `the server responded with status ${response.status}`);
  }
}

const LIMIT = 4000; // maximum number of characters sent
const cache = new Map(); // cache of the last responses, by model and text

/** The end of the text, as a prompt; never half a surrogate pair. */
export function ending(text) {
  return whole(text.slice(-LIMIT));
}

/** The beginning of the text, for views of the whole text. */
export function beginning(text) {
  return whole(text.slice(0, LIMIT));
}

function whole(text) {
  return text.isWellFormed?.() === false ? text.toWellFormed() : text;
}

const symbols = new Map(); // unknown-word token by model

/** The unknown-word token of a model's tokenizer, or null. */
export async function unknownSymbol(model, signal) {
  if (!symbols.has(model)) {
    const info = await ask(`/tokenizer_info?model=${encodeURIComponent(model)}`, null, signal);
    symbols.set(model, info.unk_token);
  }
  return symbols.get(model);
}

/** The /v1/context response for a text, cached. */
export async function context(model, text, signal) {
  const name = JSON.stringify([model, text]);
  if (!cache.has(name)) {
    const response = await ask("/v1/context", { model, text }, signal);
    if (cache.size > 12) cache.delete(cache.keys().next().value);
    cache.set(name, response);
  }
  return cache.get(name);
}
