/* Translation as one types: a pair a line, alternatives, and what each word attended to. */

import { requestJson, showError, latestOnly } from "./api.js";
import { segmentWords, openView, wordWeights } from "./attention.js";
import { copy, field, autosize, h, errorLine, quiet, unique } from "./dom.js";
import { EXAMPLES, exampleRow } from "./examples.js";
import { highlightAttention, renderWords } from "./highlight.js";

const LONG = 200; // characters of a line from which it is translated by sentence; shorter ones keep their context
const ALTERNATIVES = 5;
const KEPT = 1000; // translations that need not be asked for again
const TOGETHER = 50; // texts of a request; a longer page appears part by part
const sentences = new Intl.Segmenter(undefined, { granularity: "sentence" });
const UNFINISHED = /(^|[\s(])(\p{Lu}|Mr|Mrs|Ms|Dr|Prof|St|No|vs|e\.g|i\.e|z\. ?B|d\. ?h|bzw|ca)\.\s*$/u;

/** What is translated by itself: [{text, line}]. */
export function segments(whole) {
  return whole.split("\n").flatMap((text, line) => {
    if (text.length < LONG) return text.trim() ? [{ text: text.trim(), line }] : [];
    const parts = [];
    for (const { segment } of sentences.segment(text)) {
      if (parts.length && UNFINISHED.test(parts.at(-1))) parts.push(parts.pop() + segment);
      else parts.push(segment);
    }
    return parts.filter((part) => part.trim()).map((part) => ({ text: part.trim(), line }));
  });
}

export function translate(panel, models) {
  const [wrapper, input] = field("textarea", "translate.text", { bare: true, rows: 3, class: "text", hint: "translate.hint" });
  const list = h("div", { class: "pairs" });
  const [note, showNote] = errorLine();
  const known = new Map(); // model and text → translation
  const usual = () => EXAMPLES.translate[models.languages()[0]] ?? EXAMPLES.translate.en;
  const write = (text) => { input.value = text; autosize(input); work.now(); };
  const clear = quiet("clear", () => { write(""); input.focus(); });
  const everything = quiet("translate.all", () => copy(whole(), everything, "translate.all"));
  const below = h("div", { class: "row" }, everything);
  const key = (text) => `${models.name()}\n${text}`;
  let pairs = [];

  const work = latestOnly(async (signal) => {
    const wanted = segments(input.value);
    clear.hidden = !input.value;
    arrange(wanted);
    const missing = [...new Set(wanted.map(({ text }) => text).filter((text) => !known.has(key(text))))];
    const showKnown = () => pairs.filter((pair) => pair.pending() && known.has(key(pair.text)))
      .forEach((pair) => pair.translated(known.get(key(pair.text)))); // the others may show an alternative that was chosen
    showKnown();
    while (missing.length) {
      const texts = missing.splice(0, TOGETHER);
      const { results } = await requestJson("v1/translate", { text: texts, model: models.name() }, signal);
      texts.forEach((text, n) => known.set(key(text), results[n].text));
      showKnown();
    }
    if (known.size > KEPT) known.clear();
  }, (key, args) => { showNote(key, args); list.classList.toggle("stale", Boolean(key)); });

  /** A pair for each unit: the same where the text is the same, so that typing in one line leaves the others alone. */
  function arrange(wanted) {
    const texts = new Set(wanted.map(({ text }) => text));
    const free = new Map(pairs.filter((pair) => texts.has(pair.text)).map((pair) => [pair.text, pair]));
    const next = wanted.map(({ text, line }, n) => {
      const same = free.get(text), there = pairs[n];
      if (same) free.delete(text);
      const pair = same ?? (there && !texts.has(there.text) ? there : makePair(models));
      if (pair.text !== text) pair.set(text);
      pair.line = line;
      return pair;
    });
    if (next.some((pair, n) => pair !== pairs[n]) || next.length !== pairs.length) {
      list.replaceChildren(...next.map((pair) => pair.element));
    }
    pairs = next;
    below.hidden = pairs.length < 2;
  }

  /** All translations, lines as they were written. */
  function whole() {
    const lines = [];
    for (const { line, target } of pairs) {
      const before = lines[line];
      lines[line] = before ? before + (/[。！？]$/.test(before) ? "" : " ") + target() : target();
    }
    return Array.from(lines, (line) => line ?? "").join("\n");
  }

  clear.hidden = below.hidden = true;
  input.addEventListener("input", work.soon);
  models.changed(() => { pairs.forEach((pair) => pair.set(pair.text)); work.now(); });
  panel.append(models.shown, h("div", { class: "editor" }, wrapper, clear), exampleRow(models, usual, (text) => write(text)), note, list, below);
  return work.now;
}

// --- one sentence and its translation -----------------------------------------------------------------------------

function makePair(models) {
  const hint = unique();
  const line = { dir: "auto", role: "group", "aria-describedby": hint };
  const from = h("p", { class: "words from", ...line }), to = h("p", { class: "words to", "aria-live": "polite", ...line });
  const others = h("div", { class: "alternatives", hidden: true });
  const [note, showNote] = errorLine();
  const guarded = (act) => act().catch((error) => showError(error, showNote));
  const more = quiet("translate.other", () => (others.hidden ? guarded(unfold) : fold()), { "aria-expanded": "false" });
  const view = quiet("look.open", () => guarded(async () => openView((await attentionData()).attention, models)));
  const take = quiet("copy", () => copy(target, take));
  const caption = h("p", { class: "caption" });
  const tools = h("div", { class: "under" }, caption, h("div", { class: "tools" }, view, more, take));
  const element = h("article", { class: "pair" }, from, to, tools, note, others,
    h("span", { class: "hidden", id: hint, t: "look.words" }));
  const pending = () => to.classList.contains("pending");
  const self = { element, text: "", line: 0, target: () => target, pending, set, translated };
  let target = "", control = null, data = null; // data: what the model's attention did with the two, and the weights of their words
  view.hidden = more.hidden = take.hidden = true;

  async function attentionData() {
    control ??= new AbortController();
    data ??= requestJson("v1/look", { text: self.text, target, model: models.name() }, control.signal)
      .then((attention) => ({ attention, words: wordWeights(attention, self.text, target) }));
    return data.catch((error) => { data = null; throw error; });
  }
  const highlights = highlightAttention(element, from, to, caption, (act) => guarded(async () => {
    if (target && !pending() && models.can("look")) act((await attentionData()).words);
  }));

  /** What was known of the attention belongs to another text. */
  function forget() {
    control?.abort();
    control = data = null;
    showNote("");
    highlights.clear();
  }

  function set(text) {
    self.text = text;
    [from.lang, to.lang] = [...models.languages(), "", ""];
    renderWords(from, text);
    to.classList.add("pending");
    forget();
    fold();
  }

  function translated(text) {
    to.classList.remove("pending");
    view.hidden = !text || !models.can("look");
    element.classList.toggle("sees", !view.hidden);
    from.tabIndex = to.tabIndex = view.hidden ? -1 : 0;
    more.hidden = take.hidden = !text;
    if (text === target) return;
    target = text;
    renderWords(to, text);
    forget();
  }

  function fold() {
    others.hidden = true;
    more.setAttribute("aria-expanded", "false");
  }

  async function unfold() {
    const text = self.text;
    const { results: [best] } = await requestJson("v1/translate", { text: [text], nbest: ALTERNATIVES, model: models.name() });
    if (text !== self.text) return;
    const usual = new Set(segmentWords(best.text).map((part) => part.segment));
    const list = [best, ...best.alternatives];
    others.replaceChildren(h("ol", { name: "translate.other" }, ...list.map(({ text, score }) => h("li", {},
      h("button", { type: "button", dir: "auto", "aria-pressed": text === target, onclick: (event) => choose(event, text) },
        h("span", {}, ...segmentWords(text).map(({ segment }) => (usual.has(segment) ? segment : h("em", {}, segment)))),
        h("span", { class: "number", tip: "translate.score" }, score.toFixed(2).replace("-", "−")))))));
    others.hidden = false;
    more.setAttribute("aria-expanded", "true");
  }

  function choose({ currentTarget }, text) {
    others.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", one === currentTarget));
    translated(text);
  }
  return self;
}
