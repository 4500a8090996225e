/* The guided route: a few steps, each a layer, a head and a word with what is seen there, to the head that shows what a
pronoun refers to. */
const LITTLE = 0.1, SEEN = 0.25, HALF = 0.5, SLIGHT = 0.05; // changes of a weight and of a probability: what is called little, seen and much

class Route {
  constructor(look) {
    Object.assign(this, {look, data: look.data.route, text: el("p", {role: "status", "aria-live": "polite"})});
    const t = look.words, button = (text, name, by) => el("button", {type: "button", "data-do": name, onclick: () => this.go(by())}, text);
    this.start = button(fill(t.routeStart, {p: this.names.p, r: this.names.r, n: this.data.steps.length}), "start", () => 0);
    this.moves = [button(t.routeBack, "back", () => look.step - 1), button(t.routeNext, "next", () => look.step + 1),
      button(t.routeEnd, "end", () => -1)];
    this.open = el("div", {}, this.text, el("div", {class: "moves"}, this.moves));
    this.root = el("section", {class: "route", "aria-label": t.route}, this.start, this.open);
    this.render();
  }

  get names() {
    const {pronoun, referent, translation} = this.data;
    const named = (word) => `“${visible(word.text)}”`;
    return {p: named(pronoun), r: named(referent), t: translation && named(translation)};
  }

  /* To a step, or to none; past the last the route ends. */
  go(number) {
    const {look, data: {steps}} = this, had = this.root.contains(document.activeElement);
    look.step = number < steps.length ? Math.max(number, -1) : -1;
    const step = steps[look.step];
    if (step) {
      look.set({place: look.data.places.findIndex(({name}) => name === step.place), view: "lines"});
      look.set({layer: step.layer - 1, head: step.head - 1, query: step.query});
    } else look.show();
    this.render();
    if (had) (step ? this.moves[look.step < steps.length - 1 ? 1 : 2] : this.start).focus();
  }

  render() {
    const {look, data: {steps}} = this, step = steps[look.step];
    if (look.about) look.about.hidden = Boolean(step);
    this.start.hidden = Boolean(step);
    this.open.hidden = !step;
    this.moves[0].disabled = look.step === 0;
    this.moves[1].hidden = look.step === steps.length - 1;
    if (step) this.text.replaceChildren(el("b", {}, `${look.step + 1}/${steps.length}`), ` ${this.say(step)}`);
  }

  /* What is seen at a step, in a sentence or a few. */
  say(step) {
    const t = this.look.words, {how, pairs} = this.data, {names} = this, percent = (x) => `${Math.round(100 * x)}%`;
    const place = this.look.data.places.find(({name}) => name === step.place), found = step.most <= step.weight + 1e-3;
    const given = {...names, x: fill(step.place === "encoder" ? t.routeEncoder : t.routeCross, {l: step.layer, h: step.head}), k: quoted(place.keys[step.key]),
      m: step.most.toFixed(2), w: step.weight.toFixed(2), h: t[`route_${how}`], a: step.place === "encoder" ? names.p : names.t};
    const measured = {c: pairs?.count, e: pairs?.example, v: step.moved?.toFixed(2).replace("-0.00", "0.00"), g: step.right === undefined ? "" : percent(step.right)};
    const little = step.moved < LITTLE, of = (name) => fill(t[`route_${name}`], {...given, ...measured});
    if (step.step === "question") return [of("question"), names.t && of("choice"), of("begin")].filter(Boolean).join(t.space);
    if (step.step === "test") return [of("test"), of(little ? "testNo" : "testYes")].join(t.space);
    if (step.step === "follows") {
      return [of(found ? "follows" : "partly"), of(!pairs ? "mostHere" : little ? "movesLittle" : "movesMost")].join(t.space);
    }
    if (step.step === "off") {
      const {before, after, other, other_before: first, other_after: then} = step, fall = before - after;
      const numbers = {...given, b: percent(before), q: percent(after), o: quoted(other), y: percent(first), z: percent(then)};
      return [fill(t.route_off, numbers), t[fall >= HALF ? "route_offMuch" : fall >= SLIGHT ? "route_offSome" : "route_offNone"]].join(t.space);
    }
    return of(step.step === "usual" && step.weight < SEEN ? "usualNot" : step.step);
  }

  /* Frames the pronoun, or its translation, and the referent among the words of the lines. */
  mark() {
    const {look, data: {steps, pronoun, referent, translation}} = this, step = steps[look.step], {name} = look.place;
    if (look.at.view !== "lines") return;
    const sides = [(name === "encoder" ? pronoun : translation)?.at, referent.at];
    look.columns.forEach((column, side) => [...column.children].forEach((item, n) =>
      item.classList.toggle("referred", Boolean(step) && name !== "decoder" && Boolean(sides[side]?.includes(n)))));
  }
}
