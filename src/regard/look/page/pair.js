/* Two looks beside each other: one bar of buttons, the same attention, layer, head and word in both, and what moved. */
const MOVED = 0.1, LISTED = 8; // of a weight: from here on it is marked; heads that are listed

class Pair {
  constructor(element, data, options) {
    Object.assign(this, {data, compact: Boolean(options.compact)});
    this.root = el("div", {class: `regard-look pair${this.compact ? "" : " whole"}`, tabindex: "-1"});
    this.header = el("header");
    this.list = el("ol", {class: "moved"});
    const bar = el("div", {class: "head"}), sides = data.looks.map(() => el("div"));
    this.note = el("p", {class: "note"});
    this.root.append(this.header, bar, this.list, el("div", {class: "columns"}, sides), this.note);
    element.replaceChildren(this.root);
    this.looks = data.looks.map((look, side) => new Look(sides[side], look, {...options, compact: true, ask: undefined,
      bar: side ? el("div") : bar, other: (name) => this.other(name, side), moved: data.moved.heads,
      changed: () => this.follow(side), saver: side === 0 && savable(options) && (() => save(this.looks[0], data, options))}));
    this.onKey = (event) => this.looks[0].key(event);
    this.keys = this.compact ? this.root : document;
    this.keys.addEventListener("keydown", this.onKey);
    this.follow(0);
    if (data.start) this.begin(data.start);
    else if (data.moved.heads.length) this.open(data.moved.heads[0]);
  }

  /* As a saved view was. */
  begin({theme, language, place, step, ...at}) {
    const [first] = this.looks;
    if (language !== first.language) first.turnLanguage();
    first.setTheme(theme);
    first.set({place});
    first.set(at);
  }

  destroy() {
    this.keys.removeEventListener("keydown", this.onKey);
    for (const look of this.looks) look.destroy();
    this.root.remove();
  }

  /* The other side's place of this name, and by its own positions those there. */
  other(name, side) {
    const {queries, keys} = this.data.moved.places.find((each) => each.name === name);
    const turned = (pairs) => new Map(pairs.map((pair) => [pair[side], pair[1 - side]]));
    return {place: this.data.looks[1 - side].places.find((each) => each.name === name), queries: turned(queries), keys: turned(keys)};
  }

  /* The side that did not change goes where the other is. */
  follow(side) {
    if (this.following || !this.looks) return;
    this.following = true;
    const from = this.looks[side], to = this.looks[1 - side], {queries, keys} = this.other(from.place.name, side);
    if (to.language !== from.language) to.turnLanguage();
    if (to.theme !== from.theme) to.setTheme(from.theme);
    const {place, layer, head, view} = from.at, query = queries.get(from.at.query) ?? -1, key = keys.get(from.at.key) ?? -1;
    to.set({place}); // which lets go of a word
    to.set({layer, head, view, query, key});
    this.following = false;
    this.describe(from);
  }

  describe({words: t, language, theme, at, place}) {
    this.root.dataset.theme = theme;
    this.root.lang = LANGS[language];
    if (!this.compact) document.documentElement.lang = this.root.lang;
    this.header.replaceChildren(...(this.compact ? [] : [el("h2", {}, "regard look"), para(titleOf(this.data.model, t), "soft")]),
      el("p", {class: "about"}, t.aboutPair));
    this.note.textContent = t.note;
    this.list.replaceChildren(...this.data.moved.heads.slice(0, LISTED).map((each) => {
      const first = this.data.looks[0].places.find(({name}) => name === each.place), [before, after] = each.weights;
      const chosen = place.name === each.place && at.layer === each.layer - 1 && at.head === each.head - 1;
      const text = fill(t.movedHead, {p: t[each.place], l: each.layer, h: each.head, q: quoted(first.queries[each.query[0]]),
        k: quoted(first.keys[each.key[0]]), a: before.toFixed(2), b: after.toFixed(2)});
      return el("li", {}, el("button", {type: "button", "aria-pressed": String(chosen), onclick: () => this.open(each)}, text));
    }));
  }

  open({place: name, layer, head, query}) {
    const place = this.data.looks[0].places.findIndex((each) => each.name === name);
    this.looks[0].set({place});
    this.looks[0].set({layer: layer - 1, head: head - 1, query: query[0]});
  }
}
