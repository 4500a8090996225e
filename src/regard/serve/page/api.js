/* Requests to the server: JSON, or server-sent events as they come; errors as one sentence. Knows nothing of the page. */

import { stored } from "./dom.js";

const MAX_RETRIES = 5; // of a request to a busy server

/** What went wrong, as a key of messages.js with its arguments, or in the server's own words. */
export class ApiError extends Error {
  constructor(key, args = {}) {
    super(key);
    Object.assign(this, { key, args });
  }
}

/** What the page does when something happens: `notice(key, args)`, `requestKey()` asks for the API key, `offline()` waits. */
export const hooks = { notice() {}, async requestKey() { return null; }, offline() {} };

const pause = (seconds, signal) => new Promise((done, stop) => {
  const timer = setTimeout(done, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); stop(signal.reason); }, { once: true });
});

async function send(path, body, signal, tries = 0) {
  const key = stored("sessionStorage", "regard.key");
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...(body && { "Content-Type": "application/json" }) };
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    hooks.offline();
    throw new ApiError("away");
  }
  if (response.ok) {
    if (tries) hooks.notice("");
    return response;
  }
  if (response.status === 401) {
    const entered = await hooks.requestKey(Boolean(key));
    if (!entered) throw new ApiError("locked");
    stored("sessionStorage", "regard.key", entered);
    return send(path, body, signal, tries);
  }
  const later = response.headers.get("Retry-After"); // it is busy, or models are being loaded
  if (later && tries < MAX_RETRIES) {
    const wait = Math.min(Number(later) || 1, 30);
    hooks.notice("busy", { seconds: wait });
    await pause(wait, signal).finally(() => signal?.aborted && hooks.notice(""));
    return send(path, body, signal, tries + 1);
  }
  if (tries) hooks.notice("");
  const failure = await response.json().catch(() => null);
  throw new ApiError(failure?.error?.message ?? "failed", { code: response.status });
}

export async function requestJson(path, body, signal) {
  const response = await send(path, body, signal);
  return response.json().catch((error) => {
    throw signal?.aborted ? error : new ApiError("garbled");
  });
}

/** The pieces of a text as the server writes them. */
export async function* streamText(path, body, signal) {
  const response = await send(path, { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read().catch((error) => {
      throw signal?.aborted ? error : new ApiError("broken");
    });
    if (done) throw new ApiError("broken");
    const events = (rest + value).split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (!data) continue;
      const message = JSON.parse(data);
      if (message.error) throw new ApiError(message.error.message);
      if (message.done) return;
      yield message.text ?? "";
    }
  }
}

/** Show an error. An aborted request is none; that the server is offline is shown above all tabs. */
export function showError(error, note) {
  if (error.name === "AbortError" || error.key === "away") return;
  if (!(error instanceof ApiError)) console.error(error);
  note(error.key ?? "garbled", error.args);
}

/** Work that is repeated as someone types: soon (debounced) or now; a request under way is aborted, and its answer dropped. */
export function latestOnly(work, note, wait = 250) {
  let timer, control;
  async function now() {
    clearTimeout(timer);
    control?.abort();
    const own = (control = new AbortController());
    try {
      await work(own.signal);
      if (own === control) note("");
    } catch (error) {
      if (own === control) showError(error, note);
    }
  }
  return { now, soon() { clearTimeout(timer); timer = setTimeout(now, wait); } };
}
