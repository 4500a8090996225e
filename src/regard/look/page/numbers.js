/* The data's numbers, and small helpers: text, elements, and one query's way through one head. */
const HIDDEN = 65535, ONE = 65534, SHOWN = 8, STRANDS = 400; // lines that are drawn at most where no word is chosen
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/* Characters that would not be seen, or turn others around, are named instead. */
const named = (c) => `⟨${c.codePointAt(0).toString(16).padStart(4, "0")}⟩`;
const visible = (text) => text.replace(ODD, named);
const whole = (text) => visible(text).replace(/^\s+|\s+$/g, (ends) => ends.replace(/\s/g, named)); // at its ends
const word = (text) => visible(text).replace(/[\n\t ]/g, "▁") || "∅";
const quoted = (text) => `“${word(text)}”`;
const total = (list) => list.reduce((a, b) => a + b, 0);
const fill = (text, given) => text.replace(/\{(\w)\}/g, (_, name) => given[name]);
const digits = (x) => (Object.is(x, -0) || Math.abs(x) < 5e-5 ? 0 : x).toFixed(4);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value || "";
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

const para = (text, kind = "") => el("p", {class: kind}, text);

/* Makes of nodes that are shown others like them: what is alike stays, and is neither laid out nor scrolled anew. */
function become(old, made) {
  if (old.nodeName !== made.nodeName || old.childNodes.length !== made.childNodes.length) old.replaceWith(made);
  else if (old.nodeType === Node.TEXT_NODE) old.data === made.data || (old.data = made.data);
  else {
    for (const {name} of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const parts = [...made.childNodes];
    [...old.childNodes].forEach((child, n) => become(child, parts[n]));
  }
}

// --- numbers -----------------------------------------------------------------------------------------------------

const decoded = new WeakMap();
function numbers(packed) {
  if (!decoded.has(packed)) {
    const text = atob(packed.data), bytes = new Uint8Array(text.length);
    for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
    decoded.set(packed, packed.steps ? new Int16Array(bytes.buffer) : new Uint16Array(bytes.buffer));
  }
  return decoded.get(packed);
}

/* Row i of head h of what `packed` made of [H, N, d] (or, with one row, [H, d]), in full precision. */
function row(packed, h, i = 0) {
  const width = packed.shape.at(-1), all = packed.shape.length === 2 ? 1 : packed.shape[1];
  const start = (h * all + i) * width;
  return Float64Array.from(numbers(packed).subarray(start, start + width), (n) => n * packed.steps[h]);
}

/* softmax, hard, sparsemax (α = 2), entmax (α = 1.5); −∞ gives exactly 0, and nothing to see gives zeros. */
function normalise(kind, scores) {
  const top = Math.max(...scores);
  if (top === -Infinity) return {exps: scores.map(() => 0), weights: scores.map(() => 0)};
  const exps = scores.map((s) => Math.exp(s - top)), sum = total(exps);
  if (kind === "softmax") return {exps, total: sum, weights: exps.map((e) => e / sum)};
  if (kind === "hard") return {weights: scores.map((_, j) => (j === scores.indexOf(top) ? 1 : 0))};
  const alpha = kind === "sparsemax" ? 2 : 1.5, z = scores.map((s) => (s - top) * (alpha - 1));
  let low = -1, high = 0; // τ lies between: halve until both are one number
  const given = (tau) => z.map((s) => Math.max(s - tau, 0) ** (1 / (alpha - 1)));
  for (let n = 0; n < 60; n++) {
    const tau = (low + high) / 2;
    if (total(given(tau)) >= 1) low = tau;
    else high = tau;
  }
  return {weights: given(low)};
}

/* One query's way through one head, from the page's data: everything the walk shows. */
function steps(layer, hidden, h, i) {
  const {score} = layer, q = row(layer.q, h, i), count = layer.k.shape[1];
  const keys = Array.from({length: count}, (_, j) => row(layer.k, h, j));
  const vector = score.vector && row(score.vector, h);
  const terms = (k) => q.map((value, n) => (vector ? vector[n] * Math.tanh(value + k[n]) : value * k[n]));
  const raw = keys.map((k) => total(terms(k)));
  const scaled = raw.map((s) => s * (score.scale ?? 1));
  const bias = layer.bias && row(layer.bias, h, i);
  const biased = bias ? scaled.map((s, j) => s + bias[j]) : scaled;
  const found = normalise(layer.normalise.kind, biased.map((s, j) => (hidden[j] ? -Infinity : s)));
  const gain = layer.gain && row(layer.gain, h, i);
  const final = gain ? found.weights.map((w, j) => w * gain[j]) : found.weights;
  const values = keys.map((_, j) => row(layer.v, h, j)), mixed = layer.mixed && row(layer.mixed, h, i);
  const sum = values[0].map((_, n) => final.reduce((all, w, j) => all + w * values[j][n], mixed ? mixed[n] : 0));
  return {q, keys, terms, raw, scaled, bias, biased, ...found, gain, final, values, mixed, sum};
}
