/* First steps: three sentences at the top of the page, each beside what it speaks of; shown once, and again when asked for. */

import { button, h, localize, quiet, stored } from "./dom.js";

const STEPS = [ // what is spoken of, in the tab that is shown
  { at: ".examples", done: "click" },
  { at: ".pair .to, .output, .page, .log", done: "pointerover", within: ".word" },
  { at: ".tools, .row", done: null },
];
let end = () => {};

/** The tour at a first visit. */
export function offerTour(aside, tabCount) {
  if (!stored("localStorage", "regard.tour")) startTour(aside, tabCount);
}

export function startTour(aside, tabCount) {
  end();
  const count = h("span", { class: "number" }), sentence = h("p", { "aria-live": "polite" });
  const next = button("tour.next", () => show(step + 1), { class: "primary" });
  const skip = quiet("tour.skip", () => end());
  let step = 0;
  const panel = () => document.querySelector('[role="tabpanel"]:not([hidden])');

  function show(number) {
    if (number === STEPS.length) return end();
    step = number;
    const translating = panel()?.id === "panel-translate";
    const key = ["tour.1", translating ? "tour.2" : "tour.2.other", tabCount > 1 ? "tour.3.tabs" : "tour.3"][step];
    localize(count, "tour.at", { n: step + 1 });
    localize(sentence, key);
    localize(next, step === STEPS.length - 1 ? "tour.end" : "tour.next");
    skip.hidden = step === STEPS.length - 1;
    point();
  }

  /** Mark what the step speaks of; it may come later, as an answer does. */
  function point() {
    document.querySelectorAll(".pointed").forEach((one) => one.classList.remove("pointed"));
    panel()?.querySelector(STEPS[step].at)?.classList.add("pointed");
  }

  function follow(event) {
    const { at, done, within = at } = STEPS[step];
    if (event.type === done && event.target.closest?.(within) && event.target !== event.target.closest(".examples")) show(step + 1);
    else if (event.type === "click") setTimeout(point, 300);
  }

  const main = document.getElementById("main"), tabs = document.getElementById("tabs");
  const again = () => setTimeout(() => aside.hidden || show(step)); // another tab has other things to point at
  const heard = [[main, "click", follow], [main, "pointerover", follow], [tabs, "click", again], [tabs, "keydown", again]];

  end = () => {
    stored("localStorage", "regard.tour", "done");
    document.querySelectorAll(".pointed").forEach((one) => one.classList.remove("pointed"));
    for (const [where, kind, act] of heard) where.removeEventListener(kind, act);
    aside.hidden = true;
    aside.replaceChildren();
    end = () => {};
  };
  for (const [where, kind, act] of heard) where.addEventListener(kind, act);
  localize(aside, "tour", {}, "aria-label");
  aside.replaceChildren(count, sentence, h("span", { class: "row" }, skip, next));
  aside.hidden = false;
  show(0);
}
