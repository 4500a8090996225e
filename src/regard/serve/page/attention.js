/* What one word attended to, from the data of /v1/look: weights of pieces become weights of the words on the page. */

import { ApiError, requestJson, showError } from "./api.js";
import { h, quiet, currentLanguage } from "./dom.js";

const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });

/** The words of a text, and what stands between them: [{segment, index, isWordLike}]. */
export const segmentWords = (text) => [...segmenter.segment(text)];

/** The piece as it stands in the text: without the marks that tokenizers put around it. */
const plain = (piece) => piece.replace(/^▁|^##|@@$/g, "");

/** For each piece the word of the text it belongs to, or -1: pieces are found in the text one after the other. */
export function wordOfPiece(pieces, text) {
  const words = segmentWords(text).filter((part) => part.isWordLike);
  const low = text.toLowerCase();
  let at = 0;
  return pieces.map((piece) => {
    const sought = plain(piece).toLowerCase();
    const found = sought ? low.indexOf(sought, at) : -1;
    if (found < 0 || found > at + 40) return -1; // a mark such as </s>, or a piece that the tokenizer changed
    at = found + sought.length;
    return words.findIndex(({ index, segment }) => index < at && found < index + segment.length);
  });
}

/** Pieces' weights [Q][K] as words' [words that ask][words that are asked]: summed over keys, the mean over queries. */
function byWord(weights, queries, keys, sizes) {
  const sums = Array.from({ length: sizes[0] }, () => new Float64Array(sizes[1])), counts = new Float64Array(sizes[0]);
  queries.forEach((word, q) => {
    if (word < 0) return;
    counts[word]++;
    keys.forEach((other, k) => { if (other >= 0) sums[word][other] += weights[q][k]; });
  });
  return sums.map((row, n) => row.map((sum) => sum / (counts[n] || 1)));
}

const HIDDEN = 65535, ONE = 65534; // as regard/look/pack.py writes them

/** The mean over all layers and heads, [Q][K]. */
function meanWeights({ weights: { shape: [layers, heads, queries, keys], data } }) {
  const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0)), size = queries * keys;
  const rows = Array.from({ length: queries }, () => new Float64Array(keys));
  for (let at = 0; at < bytes.length / 2; at++) {
    const whole = bytes[2 * at] + 256 * bytes[2 * at + 1], place = at % size;
    if (whole !== HIDDEN) rows[Math.floor(place / keys)][place % keys] += whole / ONE / (layers * heads);
  }
  return rows;
}

/** {cross, own}: what each word of the translation, and of the source, gave to each word of the source. */
export function wordWeights(data, source, target) {
  const count = (text) => segmentWords(text).filter((part) => part.isWordLike).length;
  const { cross, encoder } = Object.fromEntries(data.places.map((place) => [place.name, place]));
  const from = wordOfPiece((cross ?? encoder)?.keys ?? [], source), sizes = [count(target), count(source)];
  return {
    cross: cross && byWord(meanWeights(cross), wordOfPiece(cross.queries, target), from, sizes),
    own: encoder && byWord(meanWeights(encoder), from, from, [sizes[1], sizes[1]]),
  };
}

// --- the whole view -----------------------------------------------------------------------------------------------

let ready = null;

/** The view of `regard look`, fetched when it is first wanted. */
const viewer = () => (ready ??= new Promise((done, failed) => {
  document.head.append(h("link", { rel: "stylesheet", href: "static/look/look.css" }),
    h("script", { src: "static/look/look.js", onload: () => done(window.regardLook),
      onerror: () => { ready = null; failed(new ApiError("failed", { code: 404 })); } }));
}));

/** What gives the view other data of the model that is chosen now. */
function ask(models) {
  const model = models.name();
  return (given) => requestJson("v1/look", { ...given, model });
}

/** A button that shows what the attention of a model did with a text, where it can be seen. */
export function lookButton(models, note, text) {
  if (!models.can("look")) return "";
  const look = () => ask(models)({ text: text() }).then((data) => openView(data, models));
  return quiet("look.open", () => look().catch((error) => showError(error, note)));
}

export async function openView(data, models) {
  const regardLook = await viewer();
  const view = h("div", { class: "view" });
  const dialog = h("dialog", { class: "full", "aria-labelledby": "look-title" },
    h("header", {}, h("h2", { id: "look-title", t: "look.title" }), quiet("close", () => dialog.close())), view);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  regardLook(view, data, { language: currentLanguage(), compact: true, ask: ask(models), shell: "static/look/page.txt" });
}
