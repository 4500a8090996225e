/* The frame and the views of weights: lines, map, heads, rollout. Heat maps are canvases; hovering moves marks over them
and draws nothing anew. All text from data goes in as text nodes. */
const VIEWS = {lines: "l", map: "m", heads: "h", rollout: "r", walk: "w", lens: "a", patch: "p"};
const LANGS = {en: "en", zh: "zh-CN"};
const PLACES = {encoder: "e", decoder: "d", cross: "c"};
const RAMPS = {light: [[255, 255, 255], [128, 165, 245], [16, 28, 105]], dark: [[20, 22, 28], [62, 98, 205], [232, 240, 255]]};
const MARKS = {light: "200,80,30", dark: "255,162,107"};
const INKS = {light: "77,99,147", dark: "232,240,255"}, GREYS = {light: [236, 238, 243], dark: [32, 35, 44]};

/* What the model is, in the words of a language. */
function titleOf({kind, task, languages, sizes, recurrence}, t) {
  const named = [t.tasks[task] ?? task, languages].filter(Boolean).join(" ");
  return visible([kind, named, fill(t.sizes, {s: sizes}), recurrence && fill(t.recurrence, {r: recurrence})].filter(Boolean).join(" · "));
}

class Views {
  constructor(element, data, options) {
    this.data = data;
    this.options = options; // of a pair: bar, other, moved, changed, saver
    this.compact = Boolean(options.compact);
    this.language = WORDS[options.language] ? options.language : /^zh/i.test(navigator.language) ? "zh" : "en";
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.theme = this.dark.matches ? "dark" : "light";
    const names = data.places.map((place) => place.name);
    this.at = {place: Math.max(0, names.indexOf("encoder")), layer: 0, head: 0, query: -1, key: -1, view: ["lens", "patch"].find((view) => data[view]) ?? "lines"};
    this.touch = matchMedia("(hover: none)").matches;
    this.step = -1; // of the guided route
    this.saver = options.saver ?? (savable(options) && (() => save(this, this.data, options)));
    if (data.start) this.begin(data.start);
    this.root = el("div", {class: `regard-look${this.compact ? "" : " whole"}`, tabindex: "-1"});
    this.onTheme = () => this.setTheme(this.dark.matches ? "dark" : "light");
    this.onKey = (event) => this.key(event);
    this.keys = options.bar ? el("div") : this.compact ? this.root : document;
    this.keys.addEventListener("keydown", this.onKey);
    this.dark.addEventListener("change", this.onTheme);
    element.replaceChildren(this.root);
    this.build();
    this.resized = new ResizeObserver(() => this.drawn && this.root.clientWidth !== this.width && this.show());
    this.resized.observe(this.root);
  }

  /* As a saved view was. */
  begin({theme, language, step, ...at}) {
    Object.assign(this.at, at);
    Object.assign(this, {theme: RAMPS[theme] ? theme : this.theme, language: this.options.bar ? this.language : language, step});
  }

  destroy() {
    this.keys.removeEventListener("keydown", this.onKey);
    this.dark.removeEventListener("change", this.onTheme);
    this.resized.disconnect();
    this.root.remove();
  }

  get words() { return WORDS[this.language]; }
  get views() { return Object.keys(VIEWS).filter((view) => !["lens", "patch"].includes(view) || this.data[view]); }
  get place() { return this.data.places[this.at.place]; }

  /* The weights of a head: at(i, j) is a number, or null where it is hidden. */
  weights(layer = this.at.layer, head = this.at.head, from = this.place.weights) {
    const [rows, width] = from.shape.slice(-2), number = from.shape.length === 4 ? layer * from.shape[1] + head : layer;
    const own = numbers(from).subarray(number * rows * width, (number + 1) * rows * width);
    const top = own.reduce((most, n) => (n !== HIDDEN && n > most ? n : most), 1) / ONE;
    return {rows, width, own, top, at: (i, j) => (own[i * width + j] === HIDDEN ? null : own[i * width + j] / ONE)};
  }

  /* By how much the weight at (i, j) is larger here than in the other look of a pair. */
  difference() {
    const {at, options, place} = this;
    if (!options.other) return () => 0;
    const {place: {weights}, queries, keys} = options.other(place.name), own = this.weights();
    const other = this.weights(at.layer, at.head, weights);
    return (i, j) => (queries.has(i) && keys.has(j) ? (own.at(i, j) ?? 0) - (other.at(queries.get(i), keys.get(j)) ?? 0) : 0);
  }

  // --- frame -------------------------------------------------------------------------------------------------------

  build() {
    const t = this.words, {data} = this;
    const button = (text, title, given, onclick) => el("button", {type: "button", title, ...given, onclick}, text);
    const choose = (group, name, text, title, role) =>
      button(text, title, {role, "data-choose": `${group}:${name}`}, () => this.set({[group]: name}));
    const pick = (name) => {
      const onchange = (event) => this.set({[name]: Number(event.target.value)});
      return el("label", {}, t[name], el("select", {"data-pick": name, onchange}));
    };
    const title = (name) => t[`${name === "encoder" && data.places.length === 1 ? "text" : name}Title`];
    const places = data.places.map(({name}, n) => choose("place", n, t[name], title(name)));
    const views = this.views.map((view) =>
      choose("view", view, t[view], `${t[view]} (${VIEWS[view].toUpperCase()})`, "tab"));
    const end = [this.saver && button("⤓", t.save, {"aria-label": t.save, "data-do": "save"}, this.saver), button("◐", `${t.theme} (T)`, {"aria-label": t.theme, "data-do": "theme"}, () => this.turnTheme()),
      button(t.other, `${t.other} (Z)`, {"data-do": "language"}, () => this.turnLanguage())];
    this.drawn = "";
    this.root.lang = LANGS[this.language];
    if (!this.compact) document.documentElement.lang = this.root.lang;
    this.root.dataset.theme = this.theme;
    this.view = el("div", {class: "view", role: "tabpanel", "aria-label": t.views});
    this.about = el("p", {class: "about"}, fill(t.about, {p: this.touch ? t.tap : t.point}));
    this.route = data.route && !this.options.bar ? new Route(this) : null;
    this.readout = el("p", {class: "readout", role: "status", "aria-live": "polite"});
    const keys = t.help.map(([names, what]) =>
      [el("dt", {}, names.split(" ").map((name) => el("kbd", {}, name))), el("dd", {}, what)]);
    const off = data.ablated?.map((name) => this.headName(name)).join(", ");
    const ablated = off && el("p", {class: "said ablated"}, fill(t.ablated, {h: off}), " ", el("bdi", {}, whole(data.output_before)));
    const asking = this.options.ask ? this.asking(ablated) : "";
    const said = data.output && el("p", {class: "said"}, el("b", {}, "→ "), el("bdi", {}, whole(data.output)));
    const header = el("header", {}, el("h2", {}, "regard look"), para(titleOf(data.model, t), "soft"),
      el("p", {class: "said", dir: "auto"}, whole(data.text)), said, !asking && ablated);
    this.bar = el("div", {class: "bar", role: "toolbar", "aria-label": t.views},
      el("div", {role: "group", "aria-label": t.places}, places),
      el("div", {role: "tablist", "aria-label": t.views}, views),
      pick("layer"), pick("head"), this.options.ask && button(t.switch, t.switch, {"data-do": "ablate"}, () => this.turnHead()),
      el("div", {class: "end"}, end.filter(Boolean)));
    if (this.options.bar) {
      this.options.bar.replaceChildren(this.bar);
      this.root.replaceChildren(el("p", {class: "said", dir: "auto"}, whole(data.text)), said ?? "", ablated || "", this.readout, this.view);
    } else {
      const help = this.touch ? "" : el("details", {}, el("summary", {}, t.keys), el("dl", {}, keys));
      this.root.replaceChildren(...(this.compact ? asking ? [] : [ablated || ""] : [header]), asking, this.about,
        this.route?.root ?? "", el("div", {class: "head"}, this.bar, this.readout), this.view, help, para(t.note, "note"));
    }
    this.set({});
  }

  headName(name) {
    const [place, l, h] = name.split("."), t = this.words;
    return fill(t.placeHead, {p: t[place], l, h});
  }

  isOff(head, {place, layer} = {place: this.place.name, layer: this.at.layer}) {
    return Boolean(this.data.ablated?.includes(`${place}.${layer + 1}.${head + 1}`));
  }

  /* Where the page can ask for other data: the text, to be changed; what came out; and what is wrong with it. */
  asking(ablated) {
    const t = this.words, {data} = this, input = el("input", {"aria-label": t.text, value: data.text, name: "text"});
    this.told = el("p", {class: "told", role: "status"});
    const onsubmit = (event) => { event.preventDefault(); this.load({text: input.value}); };
    return el("form", {class: "asking", onsubmit}, input, el("button", {}, t.show),
      el("p", {class: "said"}, el("b", {}, "→ "), el("bdi", {}, whole(data.output ?? ""))), ablated, this.told);
  }

  turnHead() {
    const {at, data, place} = this, name = `${place.name}.${at.layer + 1}.${at.head + 1}`, off = data.ablated ?? [];
    this.load({text: data.text, ablate: off.includes(name) ? off.filter((each) => each !== name) : [...off, name]});
  }

  /* Other data of the same model in place of these. */
  async load(given) {
    const turn = this.turn = (this.turn ?? 0) + 1;
    try {
      const data = await this.options.ask({ablate: this.data.ablated ?? [], ...given});
      if (turn !== this.turn) return; // a later one was asked for
      this.data = data;
      this.step = -1;
      Object.assign(this.at, {query: -1, key: -1});
      this.build();
    } catch (error) {
      this.told.textContent = visible(error.message);
    }
  }

  setTheme(theme) { this.theme = theme; this.root.dataset.theme = theme; this.show(); this.options.changed?.(); }
  turnTheme() { this.setTheme(this.theme === "dark" ? "light" : "dark"); }
  turnLanguage() { this.language = this.language === "zh" ? "en" : "zh"; this.build(); }

  set(change) {
    const at = Object.assign(this.at, change), {layers, heads} = this.place;
    if ("place" in change) {
      Object.assign(at, {query: -1, key: -1, layer: Math.min(at.layer, layers - 1), head: Math.min(at.head, heads - 1)});
    }
    for (const button of this.bar.querySelectorAll("[data-choose]")) {
      const [group, name] = button.dataset.choose.split(":");
      button.setAttribute(group === "view" ? "aria-selected" : "aria-pressed", String(at[group]) === name);
    }
    for (const [name, count] of [["layer", layers], ["head", heads]]) {
      const select = this.bar.querySelector(`[data-pick=${name}]`);
      const option = (_, n) => el("option", {value: n}, `${n + 1} ${this.words.of} ${count}`);
      if (select.length !== count) select.replaceChildren(...Array.from({length: count}, option));
      select.value = at[name];
      select.disabled = ["lens", "patch"].includes(at.view) || (name === "head" && at.view === "rollout");
    }
    this.bar.querySelector("[data-do=ablate]")?.setAttribute("aria-pressed", this.isOff(at.head));
    if (this.drawn === "heads" && at.view === "heads" && !("place" in change)) this.mark();
    else this.show();
    this.options.changed?.();
  }

  key(event) {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const {at} = this, {layers, heads, queries, keys} = this.place, key = event.key.toLowerCase();
    const next = (now, by, count) => (now < 0 && by < 0 ? count - 1 : (now + by + count) % count);
    const turn = (what, by, count) => this.set({[what]: next(this.shown[what] ?? at[what], by, count)});
    const actions = {
      arrowleft: () => turn("head", -1, heads), arrowright: () => turn("head", 1, heads),
      arrowdown: () => turn("layer", -1, layers), arrowup: () => turn("layer", 1, layers),
      j: () => turn("query", 1, queries.length), k: () => turn("query", -1, queries.length),
      n: () => turn("key", 1, keys.length), b: () => turn("key", -1, keys.length),
      ".": () => this.route?.go(this.step + 1), ",": () => this.step >= 0 && this.route?.go(this.step - 1),
      t: () => this.turnTheme(), z: () => this.turnLanguage(),
    };
    if (at.query >= 0 || at.key >= 0) actions.escape = () => this.set({query: -1, key: -1}); // else it closes a dialog
    for (const view of this.views) actions[VIEWS[view]] = () => this.set({view});
    this.data.places.forEach(({name}, n) => { actions[PLACES[name]] = () => this.set({place: n}); });
    if (!actions[key]) return;
    actions[key]();
    event.preventDefault();
  }

  show() {
    const width = this.root.clientWidth, drawn = `${this.at.view} ${this.at.place} ${this.language} ${width}`;
    const same = this.drawn === this.at.view && this.drawnAs === drawn;
    Object.assign(this, {width, drawn: this.at.view, drawnAs: drawn, shown: {}});
    this[this.at.view](same);
    this.route?.mark();
  }

  /* What the weights of a word are, in words: its five largest. */
  tell(query, key) {
    const t = this.words, {queries, keys, says} = this.place, from = this.source;
    if (!from || (query < 0 && key < 0)) { this.readout.textContent = this.touch ? t.tapHint : t.hint; return; }
    if (query >= 0 && key >= 0) {
      const w = from.at(query, key);
      this.readout.textContent = `${quoted(queries[query])} → ${quoted(keys[key])}: ${w === null ? t.hidden : digits(w)}`;
      return;
    }
    const asks = query >= 0, others = asks ? keys : queries;
    const at = (n) => (asks ? from.at(query, n) : from.at(n, key)) ?? 0;
    const best = others.map((_, n) => n).sort((a, b) => at(b) - at(a)).slice(0, 5).filter((n) => at(n) > 0);
    const list = best.map((n) => `${quoted(others[n])} ${digits(at(n))}`).join(", ");
    const next = asks && says ? ` (${t.says} ${quoted(says[query])})` : "";
    this.readout.textContent = `${quoted(asks ? queries[query] : keys[key])}${next} ${asks ? t.looks : t.seen} ${list}`;
  }

  /* To draw on, empty, in the screen's own pixels. */
  context(canvas, width, height) {
    const context = canvas.getContext("2d"), sizes = [width, height].map((n) => Math.round(n * devicePixelRatio));
    if (canvas.width !== sizes[0] || canvas.height !== sizes[1]) [canvas.width, canvas.height] = sizes; // new memory: slow
    context.setTransform(sizes[0] / width, 0, 0, sizes[1] / height, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  /* 256 colours from nothing to everything, as bytes. */
  get colours() {
    const stops = RAMPS[this.theme];
    return Array.from({length: 256}, (_, n) => {
      const side = n < 128 ? 0 : 1, part = (n / 255) * 2 - side;
      return stops[side].map((value, c) => Math.round(value + (stops[side + 1][c] - value) * part));
    });
  }

  // --- lines -------------------------------------------------------------------------------------------------------

  lines(same) {
    this.source = this.weights();
    this.differs = this.difference();
    if (!same) {
      const {queries, keys} = this.place, t = this.words, long = Math.max(queries.length, keys.length) > 40;
      const column = (side, other, words) => el("ol", {"aria-label": t[side]}, words.map((text, n) => {
        const chosen = () => ({[side]: n, [other]: -1}), onmouseenter = () => this.point(chosen().query, chosen().key);
        const onclick = () => this.set(this.at[side] === n ? {query: -1, key: -1} : chosen());
        return el("li", {}, el("button", {type: "button", tabindex: "-1", dir: "auto", onmouseenter, onclick}, word(text)));
      }));
      this.canvas = el("canvas", {role: "img", "aria-label": t.lines});
      this.columns = [column("query", "key", queries), column("key", "query", keys)];
      const onmouseleave = () => this.point(this.at.query, this.at.key);
      const frame = el("div", {class: "lines", onmouseleave}, this.columns[0], this.canvas, this.columns[1]);
      this.pitch = long ? 19 : 27;
      frame.style.setProperty("--row", `${this.pitch}px`);
      frame.style.setProperty("--word", long ? "12.5px" : "14.5px");
      this.view.replaceChildren(frame);
    }
    this.gap = this.canvas.clientWidth;
    this.point(this.at.query, this.at.key);
  }

  point(query, key) {
    const {rows, width, own, at, top} = this.source, {canvas, pitch, gap} = this, height = Math.max(rows, width) * pitch;
    if (query >= 0) key = -1;
    const free = query < 0 && key < 0, context = this.context(canvas, gap, height), ink = INKS[this.theme];
    const by = this.differs;
    const many = free && own.length > STRANDS, seen = many && own.filter((n) => n !== HIDDEN).sort();
    const least = many ? (seen[seen.length - STRANDS] ?? 0) / ONE : 0;
    canvas.style.height = `${height}px`;
    for (let i = 0; i < rows; i++) for (let j = 0; j < width; j++) {
      const w = at(i, j), chosen = i === query || j === key, share = w / top;
      if (!w || w < least || share < (chosen ? 0.004 : 0.06) || !(chosen || free)) continue;
      const colour = Math.abs(by(i, j)) >= MOVED ? MARKS[this.theme] : ink;
      context.strokeStyle = `rgba(${colour},${chosen ? 0.1 + 0.9 * share : share})`;
      context.lineWidth = chosen ? 0.8 + 3 * w : 0.6 + 1.6 * w;
      context.beginPath();
      context.moveTo(0, (i + 0.5) * pitch);
      context.bezierCurveTo(gap / 2, (i + 0.5) * pitch, gap / 2, (j + 0.5) * pitch, gap, (j + 0.5) * pitch);
      context.stroke();
    }
    [query, key].forEach((chosen, side) => [...this.columns[side].children].forEach((item, n) => {
      const w = (side ? query >= 0 && at(query, n) : key >= 0 && at(n, key)) || 0;
      const change = (side ? query : key) < 0 ? 0 : side ? by(query, n) : by(n, key), sign = change > 0 ? "+" : "−";
      const number = (w < 5e-5 ? "" : digits(w)) + (Math.abs(change) < MOVED ? "" : ` (${sign}${Math.abs(change).toFixed(2)})`);
      item.firstChild.classList.toggle("on", n === chosen);
      if (item.dataset.w === number) return; // what stays is not laid out again
      item.firstChild.style.setProperty("--w", (w / top).toFixed(3));
      item.dataset.w = number;
    }));
    this.tell(query, key);
  }

  // --- heat maps ---------------------------------------------------------------------------------------------------

  map(same) {
    this.heat(same, this.weights(), this.place, []);
    const {source: {rows, width}, cell} = this, by = this.difference(), context = this.canvas.getContext("2d");
    context.strokeStyle = `rgb(${MARKS[this.theme]})`;
    context.lineWidth = 2;
    for (let i = 0; i < rows; i++) for (let j = 0; j < width; j++) {
      if (Math.abs(by(i, j)) >= MOVED) context.strokeRect(j * cell + 1.5, i * cell + 1.5, cell - 3, cell - 3);
    }
  }

  rollout(same) {
    const found = this.data.rollout[this.place.name], t = this.words;
    if (!found) {
      this.source = null;
      this.tell(-1, -1);
      this.view.replaceChildren(para(t.noRollout));
    } else {
      const note = para(fill(t.rolloutNote, {l: this.at.layer + 1}), "soft");
      this.heat(same, this.weights(this.at.layer, 0, found), this.place, [note]);
    }
  }

  heat(same, source, {queries, keys}, notes) {
    this.source = source;
    if (same) this.view.lastChild.replaceChildren(...notes);
    else this.frame(queries, keys, notes);
    const {rows, width} = source, {cell, colours, canvas} = this, small = el("canvas", {width, height: rows});
    this.paint(small, source, colours);
    canvas.style.width = `${width * cell}px`;
    canvas.style.height = `${rows * cell}px`;
    const context = this.context(canvas, width * cell, rows * cell), legend = this.legend.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, width * cell, rows * cell);
    colours.forEach((colour, n) => { legend.fillStyle = `rgb(${colour.join()})`; legend.fillRect(n / 2, 0, 1, 10); });
    this.legend.nextSibling.textContent = digits(source.top);
    this.cross(this.at.query, this.at.key);
  }

  frame(queries, keys, notes) {
    const t = this.words, cell = clamp(Math.floor((this.view.clientWidth - 140) / keys.length), 12, 56);
    const label = (text) => el("span", {class: "label", dir: "auto", title: visible(text)}, word(text));
    this.cell = cell;
    this.labels = [queries.map(label), keys.map(label)];
    this.canvas = el("canvas", {role: "img", "aria-label": t.map});
    this.marks = [el("div", {class: "cross"}), el("div", {class: "cross"})];
    this.legend = el("canvas", {width: 128, height: 10, "aria-hidden": "true"});
    const where = ({clientX, clientY}) => {
      const {left, top} = this.canvas.getBoundingClientRect(), at = (n, count) => clamp(Math.floor(n / cell), 0, count - 1);
      return {query: at(clientY - top, queries.length), key: at(clientX - left, keys.length)};
    };
    const show = ({query, key}) => this.cross(query, key);
    const cells = el("div", {class: "cells", onmousemove: (event) => show(where(event)), onmouseleave: () => show(this.at),
      onclick: (event) => show(Object.assign(this.at, where(event)))}, this.canvas, this.marks);
    const frame = el("div", {class: "map"}, el("div", {class: "corner"}, t.asks),
      el("div", {class: "top"}, this.labels[1]), el("div", {class: "left"}, this.labels[0]), cells);
    frame.style.setProperty("--cell", `${cell}px`);
    frame.style.setProperty("--word", `${clamp(cell - 2, 10, 14)}px`);
    this.view.replaceChildren(el("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": t.map}, frame),
      el("div", {class: "legend"}, "0", this.legend, el("span"), el("span", {}, t.legend)), el("div", {}, notes));
  }

  /* One pixel for one weight. */
  paint(canvas, {rows, width, own, top}, colours) {
    const context = canvas.getContext("2d"), image = context.createImageData(width, rows);
    own.forEach((n, at) => {
      image.data.set(n === HIDDEN ? GREYS[this.theme] : colours[Math.round(Math.sqrt(n / ONE / top) * 255)], 4 * at);
      image.data[4 * at + 3] = 255;
    });
    context.putImageData(image, 0, 0);
  }

  /* Marks a row and a column, over the map. */
  cross(query, key) {
    const {cell} = this, {rows, width} = this.source, boxes = [[query, 0, query, width, 1], [key, key, 0, 1, rows]];
    this.marks.forEach((mark, n) => {
      const [there, ...box] = boxes[n];
      mark.hidden = there < 0;
      ["left", "top", "width", "height"].forEach((name, side) => { mark.style[name] = `${box[side] * cell}px`; });
    });
    const turn = (labels, chosen) => labels.forEach((label, n) => label.classList.toggle("on", n === chosen));
    [query, key].forEach((chosen, side) => turn(this.labels[side], chosen));
    this.tell(query, key);
  }

  // --- all heads ---------------------------------------------------------------------------------------------------

  heads() {
    const {layers, heads} = this.place, t = this.words, {colours} = this;
    const size = clamp(Math.floor((this.view.clientWidth - 60) / heads) - 12, 44, 260);
    const names = Array.from({length: heads}, (_, h) => el("span", {}, fill(t.headN, {n: h + 1})));
    const grid = el("div", {class: "grid"}, el("span"), names);
    grid.style.setProperty("grid-template-columns", `max-content repeat(${heads}, max-content)`);
    grid.style.setProperty("--thumb", `${size}px`);
    this.thumbs = [];
    for (let l = layers - 1; l >= 0; l--) {
      grid.append(el("span", {}, fill(t.layerN, {n: l + 1})));
      for (let h = 0; h < heads; h++) {
        const source = this.weights(l, h), canvas = el("canvas", {width: source.width, height: source.rows});
        const off = this.isOff(h, {place: this.place.name, layer: l}) ? ` (${t.off})` : "";
        const title = fill(t.chooseHead, {l: l + 1, h: h + 1}) + off, onclick = () => this.set({layer: l, head: h, view: "map"});
        this.paint(canvas, source, colours);
        const moved = this.options.moved?.some((each) => each.place === this.place.name && each.layer === l + 1 &&
          each.head === h + 1 && Math.abs(each.weights[1] - each.weights[0]) >= MOVED);
        this.thumbs.push([l, h, el("button", {type: "button", class: moved && "moved", "aria-label": title, title, onclick}, canvas)]);
        grid.append(this.thumbs.at(-1)[2]);
      }
    }
    this.view.replaceChildren(el("div", {class: "wide"}, grid));
    this.mark();
  }

  mark() {
    const {layer, head, query} = this.at;
    for (const [l, h, thumb] of this.thumbs) thumb.setAttribute("aria-pressed", l === layer && h === head);
    this.source = this.weights();
    if (query >= 0) this.tell(query, -1);
    else this.readout.textContent = fill(this.words.chooseHead, {l: layer + 1, h: head + 1});
  }
}
