// Asking the server this page came from, and no other.

let key = null; // kept in memory alone
let asking = null; // one question for the key, however many requests wait for it
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

/** Ask with a document, or without one; the answer's document. */
export async function ask(path, body = null, signal = null) {
  return (await send(path, body, signal)).json();
}

/** The documents of an answer that comes piece by piece, as server-sent events. */
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
        if (data === "[DONE]") continue; // the connection ends right behind it
        const document = JSON.parse(data);
        if (document.error) throw new Failure(500, document.error.message);
        yield document;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the server then stops its work
  }
}

async function send(path, body, signal) {
  for (let attempt = 0; ; attempt += 1) {
    const used = key;
    const headers = { ...(used && { Authorization: `Bearer ${used}` }), ...(body && { "Content-Type": "application/json" }) };
    const method = body ? "POST" : "GET";
    const response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" }).catch((error) => {
      throw signal?.aborted ? error : new Failure(0, "The server does not answer; see whether it still runs.");
    });
    if (response.ok) return response;
    if (response.status === 401 && attempt < 20) {
      if (key === used) {
        asking ??= askForKey(used !== null).finally(() => { asking = null; });
        key = await asking;
      }
      continue;
    }
    const told = await response.json().catch(() => null);
    throw new Failure(response.status, told?.error?.message ?? `the server answered ${response.status}`);
  }
}

const LIMIT = 4000; // characters of a text that are sent
const remembered = new Map(); // what the last few texts were, by model and text

/** The text's end, where what comes next is asked; never half a character. */
export function ending(text) {
  return whole(text.slice(-LIMIT));
}

/** The text's beginning, where all of it is read. */
export function beginning(text) {
  return whole(text.slice(0, LIMIT));
}

function whole(text) {
  return text.isWellFormed?.() === false ? text.toWellFormed() : text;
}

const symbols = new Map(); // the unknown-word symbol by model

/** The symbol by which a model's tokenizer prints an unknown word; null where there are none. */
export async function unknownSymbol(model, signal) {
  if (!symbols.has(model)) {
    const info = await ask(`/tokenizer_info?model=${encodeURIComponent(model)}`, null, signal);
    symbols.set(model, info.unk_token);
  }
  return symbols.get(model);
}

/** What a model went by, token by token; views that show the same text ask once. */
export async function context(model, text, signal) {
  const name = JSON.stringify([model, text]);
  if (!remembered.has(name)) {
    const found = await ask("/v1/context", { model, text }, signal);
    if (remembered.size > 12) remembered.delete(remembered.keys().next().value);
    remembered.set(name, found);
  }
  return remembered.get(name);
}
