/* Models that answer as one types: gaps, classes, tags, answers, choices. Each is its fields, what it asks, what it shows. */

import { requestJson, latestOnly } from "./api.js";
import { lookButton } from "./attention.js";
import { bars, field, h, errorLine, percent, quiet, localize } from "./dom.js";
import { EXAMPLES, exampleRow } from "./examples.js";

/** Fields whose answer follows the typing. `body` makes the request, or a sentence that says what is missing. */
function form(panel, models, name, fields, body, show) {
  const wrapped = fields.map(([key, rows]) => {
    const alone = fields.length === 1 && { bare: true, hint: `${name}.hint` };
    return field("textarea", `${name}.${key}`, { rows, class: "text", spellcheck: "false", ...alone });
  });
  const inputs = wrapped.map(([, input]) => input);
  const output = h("div", { class: "output", "aria-live": "polite" });
  const [note, showNote] = errorLine();
  const work = latestOnly(async (signal) => {
    const values = inputs.map((input) => input.value.trim());
    if (values.some((value) => !value)) return output.replaceChildren();
    const request = body(...values);
    if (typeof request === "string") return output.replaceChildren(h("p", { class: "faint", t: request }));
    output.setAttribute("aria-busy", "true");
    const answer = await requestJson(`v1/${name}`, { ...request, model: models.name() }, signal).finally(() =>
      output.removeAttribute("aria-busy"));
    const seen = lookButton(models, showNote, () => request.text ?? JSON.stringify(request));
    output.replaceChildren(...show(answer.results[0], ...values), h("div", { class: "row" }, seen));
  }, (key, args) => { showNote(key, args); if (key) output.replaceChildren(); });
  inputs.forEach((input) => input.addEventListener("input", work.soon));
  models.changed(work.now);
  const use = (example) => {
    [example].flat().forEach((value, n) => { inputs[n].value = value; inputs[n].dispatchEvent(new Event("input")); });
    work.now();
  };
  panel.append(models.shown, ...wrapped.map(([shown]) => shown), exampleRow(models, () => EXAMPLES[name], use), note, output);
  return { refresh: work.now, inputs, output };
}

// --- gaps ---------------------------------------------------------------------------------------------------------

const GAP = /\[MASK\]|_{2,}/;

export function fill(panel, models) {
  const { refresh, inputs: [input], output } = form(panel, models, "fill", [["text", 3]],
    (text) => (GAP.test(text) ? { text: text.split(GAP).join("[MASK]"), top: 6 } : "fill.none"),
    ({ gaps }, text) => {
      const slots = gaps.map((guesses) => h("mark", { dir: "auto" }, bare(guesses[0]?.word)));
      const around = text.split(GAP);
      const whole = h("p", { class: "page", dir: "auto" }, ...around.flatMap((part, n) => [part, slots[n]]));
      const lists = gaps.map((guesses, n) => h("div", {}, gaps.length > 1 ? localize(h("h3"), "fill.number", { n: n + 1 }) : null,
        bars(guesses.map(({ word, probability }) => [word, probability]),
          { pick: (word) => { slots[n].textContent = bare(word); } })));
      return [whole, h("div", { class: "columns" }, ...lists)];
    });
  const insert = quiet("fill.gap", () => {
    input.setRangeText("[MASK]", input.selectionStart, input.selectionEnd, "end");
    input.dispatchEvent(new Event("input"));
    input.focus();
  });
  output.before(h("div", { class: "row" }, insert));
  return refresh;
}

const bare = (word = "") => word.replace(/^##/, ""); // a piece that goes on with the word before it

// --- classes ------------------------------------------------------------------------------------------------------

const byChance = (list) => list.sort((a, b) => b[1] - a[1]);

export const classify = (panel, models) => form(panel, models, "classify", [["text", 3]], (text) => ({ text }),
  ({ label, value, probabilities }) => probabilities
    ? [h("p", { class: "page", dir: "auto" }, label), bars(byChance(Object.entries(probabilities)), { best: 0 })]
    : [h("p", { class: "page" }, h("span", { t: "classify.value", class: "faint" }), " ", Number(value).toFixed(2))]).refresh;

// --- tags ---------------------------------------------------------------------------------------------------------

/** The same colour for the same type, wherever it stands. */
const hue = (type) => [...type].reduce((sum, letter) => (31 * sum + letter.codePointAt(0)) % 360, 7);

function tagged(words, type, probability) {
  const element = h("span", { class: "tag", title: percent(probability) }, words, h("small", {}, type));
  element.style.setProperty("--hue", hue(type));
  return element;
}

export const tag = (panel, models) => form(panel, models, "tag", [["text", 3]], (text) => ({ text }),
  ({ words, tags, probabilities, entities }) => {
    const shown = [];
    for (let n = 0; n < words.length; n++) {
      const entity = entities?.find(({ begin }) => begin === n);
      const end = entity?.end ?? n + 1;
      if (entity) shown.push(tagged(entity.text, entity.type, Math.min(...probabilities.slice(n, end))));
      else shown.push(tags[n] === "O" ? words[n] : tagged(words[n], tags[n], probabilities[n]));
      shown.push(" ");
      n = end - 1;
    }
    return [h("p", { class: "page tags", dir: "auto" }, ...shown)];
  }).refresh;

// --- questions ----------------------------------------------------------------------------------------------------

export const answer = (panel, models) => form(panel, models, "answer", [["question", 1], ["context", 5]],
  (question, context) => ({ question, context }),
  ({ answer: text, start, end, probability }, _, context) => {
    if (!text) return [h("p", { class: "page", t: "answer.none" })];
    const points = [...context]; // the server counts characters, not UTF-16 units
    const part = (...range) => points.slice(...range).join("");
    return [
      h("p", { class: "page", dir: "auto" }, text, " ", h("span", { class: "number" }, percent(probability))),
      h("p", { class: "quote", dir: "auto" }, part(0, start), h("mark", {}, part(start, end)), part(end)),
    ];
  }).refresh;

export const choose = (panel, models) => form(panel, models, "choose", [["question", 1], ["context", 5], ["options", 3]],
  (question, context, options) => {
    const list = options.split("\n").map((line) => line.trim()).filter(Boolean);
    return list.length < 2 ? "choose.few" : { question, context, options: list };
  },
  ({ probabilities, index }, question, context, options) => {
    const list = options.split("\n").map((line) => line.trim()).filter(Boolean);
    return [bars(list.map((option, n) => [option, probabilities[n]]), { best: index })];
  }).refresh;
