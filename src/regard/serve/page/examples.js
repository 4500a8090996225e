/* Texts to try in each tab, where the card of the model that is chosen names none, and the row of buttons for them. */

import { h } from "./dom.js";

const SEA = "The lighthouse was built in 1858 by Anna Berg. It stands on a cliff above the harbour, " +
  "and its lamp can be seen from twenty miles away.";

/** By tab; where a tab has several fields, an example has a value for each, and its first is shown. */
export const EXAMPLES = {
  translate: { // by the language that a model reads
    en: ["The goat couldn't carry the basket because it was too thirsty.",
         "The goat couldn't carry the basket because it was too heavy.", "Every evening my sister washes her car.", "The mouse is sitting on the carpet. It is round."],
    de: ["Die Ziege konnte den Korb nicht tragen, weil sie zu durstig war.", "Jeden Abend wäscht meine Schwester ihr Auto."],
    zh: ["山羊搬不动篮子，因为它太渴了。", "我姐姐每天晚上都洗她的车。"],
    lzh: ["学而时习之，不亦说乎？", "温故而知新，可以为师矣。"],
  },
  chat: ["Hi how are you", "Hello! Who are you?", "Tell me something about the sea."],
  story: ["As aliens entered our planet", "Once upon a time", "The ship left the harbour at night, and"],
  fill: ["The animal didn't cross the [MASK] because it was too tired.", "The goat was too [MASK] to carry the basket.", "Paris is the [MASK] of [MASK]."],
  classify: ["A warm, funny and beautifully acted film.", "Two hours that I will never get back."],
  tag: ["Anna Berg moved from Hamburg to Paris in May .", "The European Commission met in Brussels on Thursday ."],
  answer: [["Who built the lighthouse?", SEA], ["How far can the lamp be seen?", SEA]],
  choose: [["Where does the lighthouse stand?", SEA, "On a cliff\nIn a forest\nOn a ship"]],
};

/** A row of examples to click, which follows the model that is chosen; of an example with several fields the first is shown. */
export function exampleRow(models, usual, use) {
  const row = h("div", { class: "examples" });
  const show = () => row.replaceChildren(h("span", { t: "try", class: "faint" }), ...models.examples(usual()).map((one) =>
    h("button", { type: "button", class: "chip", dir: "auto", onclick: () => use(one) }, [one].flat()[0])));
  models.changed(show);
  show();
  return row;
}
