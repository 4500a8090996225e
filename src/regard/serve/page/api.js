/* The server's answers: JSON, or events as they come. Says in one sentence what went wrong; knows nothing of the page. */

import { kept } from "./dom.js";

const PATIENCE = 5; // times that a busy server is asked again

/** What went wrong, as a key of words.js with its arguments, or in the server's own words. */
export class Trouble extends Error {
  constructor(key, args = {}) {
    super(key);
    Object.assign(this, { key, args });
  }
}

/** What the page does when something happens: `notice(key, args)`, `key()` asks for the API key, `away()` waits. */
export const hooks = { notice() {}, async key() { return null; }, away() {} };

const pause = (seconds, signal) => new Promise((done, stop) => {
  const timer = setTimeout(done, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); stop(signal.reason); }, { once: true });
});

async function reach(path, body, signal, tries = 0) {
  const key = kept("sessionStorage", "regard.key");
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...(body && { "Content-Type": "application/json" }) };
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    hooks.away();
    throw new Trouble("away");
  }
  if (response.ok) {
    if (tries) hooks.notice("");
    return response;
  }
  if (response.status === 401) {
    const given = await hooks.key(Boolean(key));
    if (!given) throw new Trouble("locked");
    kept("sessionStorage", "regard.key", given);
    return reach(path, body, signal, tries);
  }
  const wait = Math.min(Number(response.headers.get("Retry-After")) || 1, 30);
  if (response.status === 429 && tries < PATIENCE) {
    hooks.notice("busy", { seconds: wait });
    await pause(wait, signal).finally(() => signal?.aborted && hooks.notice(""));
    return reach(path, body, signal, tries + 1);
  }
  if (tries) hooks.notice("");
  const said = await response.json().catch(() => null);
  throw new Trouble(said?.error?.message ?? "failed", { code: response.status });
}

export async function ask(path, body, signal) {
  const response = await reach(path, body, signal);
  return response.json().catch((error) => {
    throw signal?.aborted ? error : new Trouble("garbled");
  });
}

/** The pieces of a text as the server writes them. */
export async function* listen(path, body, signal) {
  const response = await reach(path, { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read().catch((error) => {
      throw signal?.aborted ? error : new Trouble("broken");
    });
    if (done) throw new Trouble("broken");
    const events = (rest + value).split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (!data) continue;
      const said = JSON.parse(data);
      if (said.error) throw new Trouble(said.error.message);
      if (said.done) return;
      yield said.text ?? "";
    }
  }
}

/** Say what went wrong. What was stopped is no trouble; that the server is away is said above all tabs. */
export function explain(error, note) {
  if (error.name === "AbortError" || error.key === "away") return;
  if (!(error instanceof Trouble)) console.error(error);
  note(error.key ?? "garbled", error.args);
}

/** Work that is done again as someone types: soon, or now; what is under way is dropped, and stale answers with it. */
export function live(work, note, wait = 250) {
  let timer, control;
  async function now() {
    clearTimeout(timer);
    control?.abort();
    const own = (control = new AbortController());
    try {
      await work(own.signal);
      if (own === control) note("");
    } catch (error) {
      if (own === control) explain(error, note);
    }
  }
  return { now, soon() { clearTimeout(timer); timer = setTimeout(now, wait); } };
}
