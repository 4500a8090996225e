/* Models that write: a conversation, and a text that goes on. Both show words as they come and can be stopped. */

import { explain, listen } from "./api.js";
import { button, copy, examples, field, grow, h, quiet, say } from "./dom.js";
import { EXAMPLES } from "./words.js";

/** One text at a time: `write(path, body, take)` until it is done or stopped; `note` says what went wrong. */
function pen(note, busy) {
  let control = null;
  return {
    stop: () => control?.abort(),
    async write(path, body, take) {
      const own = (control = new AbortController());
      busy(true);
      say(note, "");
      try {
        for await (const piece of listen(path, body, own.signal)) take(piece);
      } catch (error) {
        explain(error, (key, args) => say(note, key, args));
      } finally {
        control = null;
        busy(false);
      }
    },
  };
}

const noteLine = () => h("p", { class: "note", role: "alert" });

/** Enter sends, Shift+Enter begins a line; an Enter that ends a Chinese word being composed does neither. */
const entered = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

export function chat(panel, models) {
  const messages = [];
  const log = h("ol", { class: "log", role: "log", name: "chat.log" });
  const empty = h("p", { class: "empty", t: "chat.empty" });
  const [wrapper, input] = field("textarea", "chat.text", { bare: true, rows: 1, hint: "chat.hint" });
  const note = noteLine();
  const send = button("chat.send", () => speak(input.value), { class: "primary" });
  const stop = button("stop", () => writer.stop(), { hidden: true });
  const fresh = quiet("chat.new", restart, { hidden: true });
  const tries = examples(EXAMPLES.chat, (text) => speak(text));
  const writer = pen(note, (busy) => {
    stop.hidden = !busy;
    send.hidden = busy;
    log.setAttribute("aria-busy", busy); // read out when it is whole, not piece by piece
  });

  function bubble(role, text) {
    const body = h("p", { dir: "auto" }, text);
    log.append(h("li", { class: role }, h("span", { class: "hidden", t: role === "user" ? "chat.you" : "chat.it" }), body));
    return body;
  }

  async function speak(text) {
    if (!text.trim() || !stop.hidden) return;
    input.value = "";
    grow(input);
    messages.push({ role: "user", text: text.trim() });
    bubble("user", text.trim());
    empty.hidden = tries.hidden = true;
    fresh.hidden = false;
    const body = bubble("assistant", "");
    const said = { role: "assistant", text: "" };
    await writer.write("v1/chat", { messages, model: models.name() }, (piece) => {
      said.text += piece;
      body.textContent = said.text;
      body.scrollIntoView({ block: "nearest" });
    });
    if (said.text) messages.push(said);
    else { // nothing was said: the message goes back to where it can be sent again
      log.lastChild.remove();
      log.lastChild.remove();
      input.value = messages.pop().text;
    }
    input.focus();
  }

  function restart() {
    writer.stop();
    messages.length = 0;
    log.replaceChildren();
    empty.hidden = tries.hidden = false;
    fresh.hidden = true;
    input.focus();
  }

  input.addEventListener("keydown", (event) => {
    if (!entered(event)) return;
    event.preventDefault();
    speak(input.value);
  });
  models.changed(restart);
  panel.append(models.shown, empty, log, note,
    h("div", { class: "composer" }, wrapper, stop, send), h("div", { class: "row" }, fresh, tries));
}

export function story(panel, models) {
  const [wrapper, input] = field("textarea", "story.text", { bare: true, rows: 3, class: "text", hint: "story.hint" });
  const number = (key, props) => field("input", key, { type: "number", ...props });
  const settings = {
    max_tokens: number("story.length", { value: 200, min: 1, max: 2000 }),
    temperature: number("story.temperature", { value: 0.8, min: 0.1, max: 2, step: 0.1 }),
    top_p: number("story.top", { value: 0.95, min: 0.05, max: 1, step: 0.05 }), seed: number("story.seed", { min: 0 }),
  };
  const given = h("span", { class: "given" }), made = h("span");
  const page = h("p", { class: "page", dir: "auto", role: "region", name: "story.result", hidden: true }, given, made);
  const note = noteLine();
  const start = button("story.write", () => write(input.value), { class: "primary" });
  const stop = button("stop", () => writer.stop(), { hidden: true });
  const more = button("story.more", () => write(given.textContent + made.textContent), { hidden: true });
  const save = quiet("copy", () => copy(given.textContent + made.textContent, save), { hidden: true });
  const writer = pen(note, (busy) => {
    stop.hidden = !busy;
    start.hidden = busy;
    more.hidden = save.hidden = busy || !made.textContent;
    page.setAttribute("aria-busy", busy);
  });

  async function write(prompt) {
    if (!stop.hidden) return;
    given.textContent = prompt;
    made.textContent = "";
    page.hidden = false;
    const values = Object.entries(settings).filter(([, [, { value }]]) => value).map(([key, [, { value }]]) => [key, Number(value)]);
    stop.hidden = false;
    stop.focus();
    await writer.write("v1/generate", { prompt, model: models.name(), ...Object.fromEntries(values) },
      (piece) => made.append(piece));
    start.focus();
  }

  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") writer.stop();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write(input.value);
  });
  panel.append(models.shown, wrapper,
    examples(EXAMPLES.story, (text) => { input.value = text; write(text); }),
    h("details", {}, h("summary", { t: "story.options" }),
      h("div", { class: "settings" }, ...Object.values(settings).map(([shown]) => shown))),
    h("div", { class: "row" }, start, stop, more, save), note, page);
}
