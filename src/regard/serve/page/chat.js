/* Models that generate text: a chat, and a text that goes on. Both stream and can be stopped. */

import { showError, streamText } from "./api.js";
import { lookButton } from "./attention.js";
import { button, copy, field, autosize, h, errorLine, quiet } from "./dom.js";
import { EXAMPLES, exampleRow } from "./examples.js";

const TURNS = 99; // that are sent: the last of a long conversation, from one of the reader's on

/** One text at a time, until it is done or stopped: the button that starts gives its place to the one that stops. */
function generator(showNote, region, start, stop) {
  let control = null;
  stop.addEventListener("click", () => control?.abort());
  function busy(now) {
    const focused = [start, stop].includes(document.activeElement);
    stop.hidden = !now;
    start.hidden = now;
    region.setAttribute("aria-busy", now); // read out when it is whole, not piece by piece
    if (focused) (now ? stop : start).focus();
  }
  return {
    busy: () => Boolean(control),
    stop: () => control?.abort(),
    async write(path, body, take) {
      const own = (control = new AbortController());
      busy(true);
      showNote("");
      try {
        for await (const piece of streamText(path, body, own.signal)) take(piece);
      } catch (error) {
        showError(error, showNote);
      } finally {
        control = null;
        busy(false);
      }
    },
  };
}

/** Enter sends, Shift+Enter begins a line; an Enter that ends a Chinese word being composed does neither. */
const entered = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

export function chat(panel, models) {
  const log = h("ol", { class: "log", role: "log", name: "chat.log" });
  const empty = h("p", { class: "empty", t: "chat.empty" });
  const [wrapper, input] = field("textarea", "chat.text", { bare: true, rows: 1, hint: "chat.hint" });
  const [note, showNote] = errorLine();
  const send = button("chat.send", () => submit(input.value), { class: "primary" });
  const stop = button("stop", null, { hidden: true });
  const fresh = quiet("chat.new", restart);
  const tries = exampleRow(models, () => EXAMPLES.chat, (text) => submit(text));
  const stream = generator(showNote, log, send, stop);
  let messages = [];

  function bubble(role, text) {
    const body = h("p", { dir: "auto" }, text);
    log.append(h("li", { class: role }, h("span", { class: "hidden", t: role === "user" ? "chat.you" : "chat.it" }), body));
    return body;
  }

  /** The whole log, or what stands before it. */
  function arrange() {
    empty.hidden = tries.hidden = messages.length > 0;
    fresh.hidden = !messages.length;
    autosize(input);
  }

  async function submit(message) {
    const text = message.trim(), own = messages, reply = { role: "assistant", text: "" };
    if (!text || stream.busy()) return;
    input.value = "";
    own.push({ role: "user", text });
    arrange();
    bubble("user", text);
    const body = bubble("assistant", "");
    await stream.write("v1/chat", { messages: own.slice(-TURNS), model: models.name() }, (piece) => {
      const follow = innerHeight + scrollY > document.body.scrollHeight - 100; // unless someone reads further up
      body.textContent = reply.text += piece;
      if (follow) scrollTo(0, document.body.scrollHeight);
    });
    if (own !== messages) return; // another conversation has begun
    if (reply.text) own.push(reply);
    else { // no reply: the message goes back to where it can be sent again
      input.value = own.pop().text;
      log.lastChild.remove();
      log.lastChild.remove();
      arrange();
    }
  }

  function restart() {
    stream.stop();
    messages = [];
    log.replaceChildren();
    arrange();
    input.focus();
  }

  input.addEventListener("keydown", (event) => {
    if (!entered(event)) return;
    event.preventDefault();
    submit(input.value);
  });
  models.changed(restart);
  arrange();
  panel.append(models.shown, empty, log, note, h("div", { class: "composer" }, wrapper, stop, send),
    h("div", { class: "row" }, fresh, tries));
}

export function story(panel, models) {
  const [wrapper, input] = field("textarea", "story.text", { bare: true, rows: 3, class: "text", hint: "story.hint" });
  const number = (key, props) => field("input", key, { type: "number", ...props });
  const settings = {
    max_tokens: number("story.length", { value: 200, min: 1, max: 2000 }),
    temperature: number("story.temperature", { value: 0.8, min: 0.1, max: 2, step: 0.1 }),
    top_p: number("story.top", { value: 0.95, min: 0.05, max: 1, step: 0.05 }), seed: number("story.seed", { min: 0 }),
  };
  const prompted = h("span", { class: "given" }), generated = h("span"), whole = () => prompted.textContent + generated.textContent;
  const page = h("p", { class: "page", dir: "auto", role: "region", name: "story.result", "aria-live": "polite" }, prompted, generated);
  const [note, showNote] = errorLine();
  const start = button("story.write", () => write(input.value), { class: "primary" });
  const stop = button("stop", null, { hidden: true });
  const more = button("story.more", () => write(whole())), save = quiet("copy", () => copy(whole(), save));
  const after = h("div", { class: "row" });
  const stream = generator(showNote, page, start, stop);

  async function write(prompt) {
    if (stream.busy()) return;
    prompted.textContent = prompt;
    generated.textContent = "";
    after.replaceChildren();
    const chosen = Object.entries(settings).map(([key, [, { value }]]) => [key, value]).filter(([, value]) => value);
    const numbers = Object.fromEntries(chosen.map(([key, value]) => [key, Number(value)]));
    await stream.write("v1/generate", { prompt, model: models.name(), ...numbers }, (piece) => generated.append(piece));
    if (generated.textContent) after.replaceChildren(more, save, lookButton(models, showNote, whole));
  }

  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") stream.stop();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write(input.value);
  });
  panel.append(models.shown, wrapper, exampleRow(models, () => EXAMPLES.story, (text) => { input.value = text; write(text); }),
    h("details", {}, h("summary", { t: "story.options" }),
      h("div", { class: "settings" }, ...Object.values(settings).map(([shown]) => shown))),
    h("div", { class: "row" }, start, stop, after), note, page);
}
