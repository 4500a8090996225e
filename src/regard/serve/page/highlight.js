/* Words that light up: those that one word attended to, the stronger the more. By pointer, finger and keyboard. */

import { segmentWords } from "./attention.js";
import { h, localize } from "./dom.js";

const NAMED = 3, FAINT = 0.05; // words that the caption names at most, and the weight below which it names none

/** Words as spans that can be lit; spaces and signs between them stay as they are. */
export function renderWords(line, text) {
  line.replaceChildren(...segmentWords(text).map(({ segment, isWordLike }) =>
    (isWordLike ? h("span", { class: "word" }, segment) : segment)));
}

const wordsOf = (line) => [...line.querySelectorAll(".word")];

/** The strongest of them, as people read it: "it 62 %, goat 20 %". */
const strongest = (line, weights) => wordsOf(line).map((span, n) => [weights?.[n] ?? 0, span.textContent])
  .filter(([weight]) => weight >= FAINT).sort((a, b) => b[0] - a[0]).slice(0, NAMED)
  .map(([weight, text]) => `${text} ${Math.round(100 * weight)}\u00a0%`).join(", ");

/** Two lines whose words light each other; `withWeights(act)` calls `act` with the weights, when they are known. */
export function highlightAttention(element, from, to, caption, withWeights) {
  const announcement = h("span", { class: "hidden", "aria-live": "polite" });
  let current = null; // {line, n}: the word that is shown
  element.append(announcement);

  function paint(word, shown = {}) {
    element.classList.toggle("lit", Boolean(word));
    for (const [line, weights] of [[from, shown.from], [to, shown.to]]) {
      const most = Math.max(...(weights ?? []), 1e-9);
      wordsOf(line).forEach((span, n) => {
        span.classList.toggle("current", word?.line === line && word.n === n);
        span.style.setProperty("--weight", weights ? (weights[n] / most).toFixed(3) : 0);
      });
    }
  }

  /** What a word attended to; of a source word also who looked at it. */
  function highlight(word, aloud) {
    if (word.n < 0 || (current?.line === word.line && current.n === word.n)) return;
    current = word;
    withWeights(({ cross, own }) => {
      if (current !== word) return;
      const back = cross?.map((row) => row[word.n]);
      const shown = word.line === to ? { from: cross?.[word.n] } : { from: own?.[word.n], to: back };
      paint(word, shown);
      const seen = strongest(from, shown.from) || "—", by = strongest(to, shown.to);
      localize(caption, by ? "look.from" : "look.to", { word: `“${wordsOf(word.line)[word.n].textContent}”`, seen, by });
      if (aloud) announcement.textContent = caption.textContent; // a pointer sees it; with the keyboard it may be heard
    });
  }

  function clear() {
    current = null;
    paint(null);
    localize(caption, "look.hint");
  }

  for (const line of [from, to]) {
    line.addEventListener("pointerover", ({ target }) => highlight({ line, n: wordsOf(line).indexOf(target) }));
    line.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && clear()); // a finger only lifts
    line.addEventListener("blur", clear);
    line.addEventListener("keydown", (event) => {
      const last = wordsOf(line).length - 1, now = current?.line === line ? current.n : -1;
      const n = { ArrowRight: Math.min(now + 1, last), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: last }[event.key];
      if (event.key === "Escape") clear();
      if (n === undefined) return;
      event.preventDefault();
      highlight({ line, n }, true);
    });
  }
  return { clear };
}
