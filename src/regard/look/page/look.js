/* regardLook(element, data, {language: "en" | "zh", compact: false}) shows what `regard.look.look` gives.

One function, no other name outside, no framework, no network; styles are look.css, under .regard-look. All text from
data goes in as text nodes. Heat maps are canvases; hovering moves marks over them and draws nothing anew. */
"use strict";
(() => {
  const HIDDEN = 65535, ONE = 65534, SHOWN = 8, STRANDS = 400; // lines that are drawn at most where no word is chosen
  const VIEWS = {lines: "l", map: "m", heads: "h", rollout: "r", walk: "w"};
  const PLACES = {encoder: "e", decoder: "d", cross: "c"};
  const WORDS = {
    en: {
      lines: "Lines", map: "Map", heads: "Heads", rollout: "Rollout", walk: "Walk", layer: "Layer", head: "Head",
      encoder: "Encoder", decoder: "Decoder", cross: "Cross", places: "Attention", views: "View",
      titles: {encoder: "words of the source attend to each other", decoder: "each word attends to those before it", cross: "each output word attends to the source", text: "words of the text attend to each other"},
      query: "queries", key: "keys",
      theme: "Light or dark", other: "中文", keys: "Keys", says: "predicts", looks: "attends to", seen: "is attended to by",
      asks: "query ↓ key →", hint: "Point at a word, or press J and K; a click keeps it.", of: "of", weight: "weight",
      legend: "weight, coloured by its root; the strongest colour is the largest here", hidden: "hidden", chooseHead: "layer {l}, head {h}",
      noRollout: "Rollout follows words through layers of self-attention, which this model has not got, or has shortened.",
      rolloutNote: "How much of each input word is in each place after layer {l}, if heads count alike and half of a place passes by in the residual: R ← (½W + ½I) R (Abnar and Zuidema 2020). In a decoder, rows of target and source together sum to 1.",
      noWalk: "The numbers behind these weights would make this page too large; take a shorter text.",
      noChoice: "The numbers behind these weights are not shown: this page does not know the choice ",
      note: "Weights say what was mixed, not why the model gave its output: other weights can give the same output (Jain and Wallace 2019; Wiegreffe and Pinter 2019).",
      help: [["← →", "head before, after"], ["↑ ↓", "layer below, above"], ["J K", "word after, before"], ["N B", "key after, before (walk)"], ["L M H R W", "lines, map, heads, rollout, walk"], ["E D C", "encoder, decoder, cross"], ["T", "light or dark"], ["Z", "中文"], ["Esc", "let go of a word"]],
      w1: "Words", w1a: "Choose the query. Everything below is about it, in this layer and head.", w1b: "At this position the model reads {r} and predicts {s}.",
      w2: "A vector for each word", word: "word", segment: "segment", position: "position", joined: "joined with its position, by a matrix", norm: "normalised", sum: "sum", first: "{w}: the first {n} of {d} numbers",
      w2a: "This is what enters layer 1. Layer {l} reads what layer {m} has made of it, which is not shown.", w2b: "No position is added here.", w2c: "Recurrent or convolutional layers come between this and the attention; they are not shown.",
      w3: "Query, key and value", w3a: "Three matrices of this head make of each word a query, a key and a value; the matrices ({D} × {d}, {D} × {d} and {D} × {v}) are not shown.",
      w3b: "There are no projections: the decoder's state is the query, the source's states are keys and values.", w3r: "Query and key are shown after they were turned by their positions (rotary).", w3s: "Keys and values are shown after several words were made one (compress).",
      w3t: "Query and key are shown as the score compares them: {f}.", dim: "number", allOf: "Key {k}: all {n} numbers of q and k, the sum of their terms, and all {m} numbers of v",
      w4: "Score, scale, mask, weights", scale: "× {s}", root: "÷ √{d}", w4a: "Each key's score, by {f}. √d_k uses the size of one head's keys, here d_k = {d} and √d_k = {r}: the sum of {d} products varies about √{d} times as much as one.", w4z: "Each key's score, by {f}.",
      bias: "+ position", mask: "mask", exp: "exp(s − max)", final: "weight", gain: "× nearness", w4n: "Weights by {f}.", w4h: "A hidden key gets −∞, so that its weight is exactly 0.", w4g: "local_p then multiplies weights by how near a place is to its centre.",
      w5: "Weighted sum", w5a: "Each value by its weight; the sum is this head's output for the word ({n} of {d} numbers shown).", mixed: "relative positions add",
      w6: "Output", w6a: "The vectors of all {h} heads, end to end ({h} × {d} = {n} numbers), go through one more matrix, which is not shown, and are added to the word's own vector (the residual).", w6b: "The decoder goes on with this vector.",
    },
    zh: {
      lines: "连线", map: "热图", heads: "各头", rollout: "累积", walk: "演算", layer: "层", head: "头",
      encoder: "编码器", decoder: "解码器", cross: "交叉", places: "注意力", views: "视图",
      titles: {encoder: "源文的词互相注意", decoder: "每个词注意它之前的词", cross: "输出的每个词注意源文", text: "文中的词互相注意"}, query: "查询", key: "键",
      theme: "浅色或深色", other: "English", keys: "按键", says: "预测", looks: "注意", seen: "被这些词注意：",
      asks: "查询 ↓ 键 →", hint: "指向一个词，或按 J、K；点击可固定。", of: "/", weight: "权重",
      legend: "权重，按平方根着色；颜色最强者为此处最大值", hidden: "被遮住", chooseHead: "第 {l} 层第 {h} 头",
      noRollout: "累积注意力沿自注意力各层追踪词；此模型没有自注意力，或其键被压缩过。",
      rolloutNote: "到第 {l} 层为止，每个位置含有多少各输入词：各头同等计算，残差保留一半，R ← (½W + ½I) R（Abnar 与 Zuidema 2020）。在解码器中，译文与源文两部分每行合计为 1。",
      noWalk: "这些权重背后的数字会使页面过大；请用短一些的文本。",
      noChoice: "这些权重背后的数字没有给出：本页不认识这一选择：",
      note: "权重说明混合了什么，不说明模型为什么这样输出：别的权重可以给出同样的输出（Jain 与 Wallace 2019；Wiegreffe 与 Pinter 2019）。",
      help: [["← →", "前一头、后一头"], ["↑ ↓", "下一层、上一层"], ["J K", "后一词、前一词"], ["N B", "后一键、前一键（演算）"], ["L M H R W", "连线、热图、各头、累积、演算"], ["E D C", "编码器、解码器、交叉"], ["T", "浅色或深色"], ["Z", "English"], ["Esc", "放开选中的词"]],
      w1: "词", w1a: "选择发出查询的词。以下都是它在这一层、这一头中的数字。", w1b: "模型在此位置读入 {r}，预测 {s}。",
      w2: "每个词一个向量", word: "词", segment: "句段", position: "位置", joined: "由矩阵与位置合并", norm: "归一化", sum: "和", first: "{w}：{d} 个数中的前 {n} 个",
      w2a: "这是进入第 1 层的向量。第 {l} 层读的是第 {m} 层的结果，未列出。", w2b: "这里不加位置。", w2c: "它与注意力之间还有循环层或卷积层，未列出。",
      w3: "查询、键、值", w3a: "这一头的三个矩阵把每个词变成查询、键和值；矩阵（{D} × {d}、{D} × {d} 和 {D} × {v}）未列出。",
      w3b: "这里没有投影：解码器的状态就是查询，源文的状态就是键和值。", w3r: "所示查询与键已按位置旋转（rotary）。", w3s: "所示键与值是几个词合成的（compress）。",
      w3t: "所示查询与键是打分时比较的样子：{f}。", dim: "序号", allOf: "键 {k}：q、k 的全部 {n} 个数，各项之和，以及 v 的全部 {m} 个数",
      w4: "分数、缩放、遮罩、权重", scale: "× {s}", root: "÷ √{d}", w4a: "每个键的分数：{f}。√d_k 用的是一个头的键的大小，这里 d_k = {d}，√d_k = {r}：{d} 个乘积之和的起伏约为单个的 √{d} 倍。", w4z: "每个键的分数：{f}。",
      bias: "+ 位置", mask: "遮罩", exp: "exp(s − max)", final: "权重", gain: "× 远近", w4n: "权重：{f}。", w4h: "被遮住的键得 −∞，权重恰为 0。", w4g: "local_p 再按离中心的远近乘以权重。",
      w5: "加权和", w5a: "每个值乘以它的权重；其和就是这一头对该词所说的（列出 {d} 个数中的 {n} 个）。", mixed: "相对位置所加",
      w6: "输出", w6a: "全部 {h} 个头的向量首尾相接（{h} × {d} = {n} 个数），再过一个矩阵（未列出），加到该词自己的向量上（残差）。", w6b: "解码器带着这个向量继续。",
    },
  };
  const RAMPS = {light: [[255, 255, 255], [128, 165, 245], [16, 28, 105]], dark: [[20, 22, 28], [62, 98, 205], [232, 240, 255]]};
  const INKS = {light: "77,99,147", dark: "232,240,255"}, GREYS = {light: [236, 238, 243], dark: [32, 35, 44]};
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
      else if (name === "class") made.className = value;
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

  // --- the view ----------------------------------------------------------------------------------------------------

  class Look {
    constructor(element, data, options) {
      this.data = data;
      this.compact = Boolean(options.compact);
      this.language = WORDS[options.language] ? options.language : /^zh/i.test(navigator.language) ? "zh" : "en";
      this.dark = matchMedia("(prefers-color-scheme: dark)");
      this.theme = this.dark.matches ? "dark" : "light";
      const names = data.places.map((place) => place.name);
      this.at = {place: Math.max(0, names.indexOf("cross")), layer: 0, head: 0, query: -1, key: -1, view: "lines"};
      this.at.layer = data.places[this.at.place].layers - 1;
      this.root = el("div", {class: `regard-look${this.compact ? "" : " whole"}`, tabindex: "-1"});
      this.onTheme = () => this.setTheme(this.dark.matches ? "dark" : "light");
      this.onKey = (event) => this.key(event);
      this.keys = this.compact ? this.root : document;
      this.keys.addEventListener("keydown", this.onKey);
      this.dark.addEventListener("change", this.onTheme);
      element.replaceChildren(this.root);
      this.build();
      this.resized = new ResizeObserver(() => this.drawn && this.root.clientWidth !== this.width && this.show());
      this.resized.observe(this.root);
    }

    destroy() {
      this.keys.removeEventListener("keydown", this.onKey);
      this.dark.removeEventListener("change", this.onTheme);
      this.resized.disconnect();
      this.root.remove();
    }

    get words() { return WORDS[this.language]; }
    get place() { return this.data.places[this.at.place]; }

    /* The weights of a head: at(i, j) is a number, or null where it is hidden. */
    weights(layer = this.at.layer, head = this.at.head, from = this.place.weights) {
      const [rows, width] = from.shape.slice(-2), number = from.shape.length === 4 ? layer * from.shape[1] + head : layer;
      const own = numbers(from).subarray(number * rows * width, (number + 1) * rows * width);
      const top = own.reduce((most, n) => (n !== HIDDEN && n > most ? n : most), 1) / ONE;
      return {rows, width, own, top, at: (i, j) => (own[i * width + j] === HIDDEN ? null : own[i * width + j] / ONE)};
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
      const titles = {...t.titles, encoder: data.places.length > 1 ? t.titles.encoder : t.titles.text};
      const places = data.places.map(({name}, n) => choose("place", n, t[name], titles[name]));
      const views = Object.keys(VIEWS).map((view) =>
        choose("view", view, t[view], `${t[view]} (${VIEWS[view].toUpperCase()})`, "tab"));
      const end = [button("◐", `${t.theme} (T)`, {"aria-label": t.theme, "data-do": "theme"}, () => this.turnTheme()),
        button(t.other, `${t.other} (Z)`, {"data-do": "language"}, () => this.turnLanguage())];
      this.drawn = "";
      this.root.lang = this.language === "zh" ? "zh-CN" : "en";
      this.root.dataset.theme = this.theme;
      this.view = el("div", {class: "view", role: "tabpanel", "aria-label": t.views});
      this.readout = el("p", {class: "readout", role: "status", "aria-live": "polite"});
      const keys = t.help.map(([names, what]) =>
        [el("dt", {}, names.split(" ").map((name) => el("kbd", {}, name))), el("dd", {}, what)]);
      const said = data.output && el("p", {class: "said"}, el("b", {}, "→ "), el("bdi", {}, whole(data.output)));
      const header = el("header", {}, el("h2", {}, "regard look"), para(visible(data.model.title), "soft"),
        el("p", {class: "said", dir: "auto"}, whole(data.text)), said);
      this.root.replaceChildren(...(this.compact ? [] : [header]),
        el("div", {class: "head"},
          el("div", {class: "bar", role: "toolbar", "aria-label": t.views},
            el("div", {role: "group", "aria-label": t.places}, places),
            el("div", {role: "tablist", "aria-label": t.views}, views),
            pick("layer"), pick("head"), el("div", {class: "end"}, end)),
          this.readout),
        this.view, el("details", {}, el("summary", {}, t.keys), el("dl", {}, keys)), para(t.note, "note"));
      this.set({});
    }

    setTheme(theme) { this.theme = theme; this.root.dataset.theme = theme; this.show(); }
    turnTheme() { this.setTheme(this.theme === "dark" ? "light" : "dark"); }
    turnLanguage() { this.language = this.language === "zh" ? "en" : "zh"; this.build(); }

    set(change) {
      const at = Object.assign(this.at, change), {layers, heads} = this.place;
      if ("place" in change) {
        Object.assign(at, {query: -1, key: -1, layer: Math.min(at.layer, layers - 1), head: Math.min(at.head, heads - 1)});
      }
      for (const button of this.root.querySelectorAll("[data-choose]")) {
        const [group, name] = button.dataset.choose.split(":");
        button.setAttribute(group === "view" ? "aria-selected" : "aria-pressed", String(at[group]) === name);
      }
      for (const [name, count] of [["layer", layers], ["head", heads]]) {
        const select = this.root.querySelector(`[data-pick=${name}]`);
        const option = (_, n) => el("option", {value: n}, `${n + 1} ${this.words.of} ${count}`);
        if (select.length !== count) select.replaceChildren(...Array.from({length: count}, option));
        select.value = at[name];
        select.disabled = name === "head" && at.view === "rollout";
      }
      if (this.drawn === "heads" && at.view === "heads" && !("place" in change)) this.mark();
      else this.show();
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
        t: () => this.turnTheme(), z: () => this.turnLanguage(), escape: () => this.set({query: -1, key: -1}),
      };
      for (const [view, letter] of Object.entries(VIEWS)) actions[letter] = () => this.set({view});
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
    }

    /* What the weights of a word are, in words: its five largest. */
    tell(query, key) {
      const t = this.words, {queries, keys, says} = this.place, from = this.source;
      if (!from || (query < 0 && key < 0)) { this.readout.textContent = t.hint; return; }
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
      const many = free && own.length > STRANDS, seen = many && own.filter((n) => n !== HIDDEN).sort();
      const least = many ? (seen[seen.length - STRANDS] ?? 0) / ONE : 0;
      canvas.style.height = `${height}px`;
      for (let i = 0; i < rows; i++) for (let j = 0; j < width; j++) {
        const w = at(i, j), chosen = i === query || j === key, share = w / top;
        if (!w || w < least || share < (chosen ? 0.004 : 0.06) || !(chosen || free)) continue;
        context.strokeStyle = `rgba(${ink},${chosen ? 0.1 + 0.9 * share : share})`;
        context.lineWidth = chosen ? 0.8 + 3 * w : 0.6 + 1.6 * w;
        context.beginPath();
        context.moveTo(0, (i + 0.5) * pitch);
        context.bezierCurveTo(gap / 2, (i + 0.5) * pitch, gap / 2, (j + 0.5) * pitch, gap, (j + 0.5) * pitch);
        context.stroke();
      }
      [query, key].forEach((chosen, side) => [...this.columns[side].children].forEach((item, n) => {
        const w = (side ? query >= 0 && at(query, n) : key >= 0 && at(n, key)) || 0, number = w < 5e-5 ? "" : digits(w);
        item.firstChild.classList.toggle("on", n === chosen);
        if (item.dataset.w === number) return; // what stays is not laid out again
        item.firstChild.style.setProperty("--w", (w / top).toFixed(3));
        item.dataset.w = number;
      }));
      this.tell(query, key);
    }

    // --- heat maps ---------------------------------------------------------------------------------------------------

    map(same) { this.heat(same, this.weights(), this.place, []); }

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
      const t = this.words, cell = clamp(Math.floor((this.view.clientWidth - 140) / keys.length), 12, 40);
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
        el("div", {class: "legend"}, "0", this.legend, el("span"), ` · ${t.legend}`), el("div", {}, notes));
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
      const size = clamp(Math.floor((this.view.clientWidth - 60) / heads) - 12, 44, 150);
      const names = Array.from({length: heads}, (_, h) => el("span", {}, `${t.head} ${h + 1}`));
      const grid = el("div", {class: "grid"}, el("span"), names);
      grid.style.setProperty("grid-template-columns", `max-content repeat(${heads}, max-content)`);
      grid.style.setProperty("--thumb", `${size}px`);
      this.thumbs = [];
      for (let l = layers - 1; l >= 0; l--) {
        grid.append(el("span", {}, `${t.layer} ${l + 1}`));
        for (let h = 0; h < heads; h++) {
          const source = this.weights(l, h), canvas = el("canvas", {width: source.width, height: source.rows});
          const title = fill(t.chooseHead, {l: l + 1, h: h + 1}), onclick = () => this.set({layer: l, head: h, view: "map"});
          this.paint(canvas, source, colours);
          this.thumbs.push([l, h, el("button", {type: "button", "aria-label": title, title, onclick}, canvas)]);
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

    // --- walk --------------------------------------------------------------------------------------------------------

    walk(same) {
      const t = this.words, {walk} = this.data, {at, place} = this;
      this.source = this.weights();
      if (!walk || walk.left_out) {
        this.tell(-1, -1);
        this.view.replaceChildren(para(!walk || walk.left_out === "size" ? t.noWalk : t.noChoice + walk.left_out));
        return;
      }
      const i = Math.max(at.query, 0), layer = walk[place.name][at.layer];
      const hidden = place.keys.map((_, j) => this.source.at(i, j) === null), found = steps(layer, hidden, at.head, i);
      const recorded = this.source.at; // rounded in another way: what stands above the tables is what they show
      this.source = {...this.source, at: (q, k) => (q === i && !hidden[k] ? found.final[k] : recorded(q, k))};
      const j = at.key < 0 ? found.final.indexOf(Math.max(...found.final)) : at.key;
      this.shown = {query: i, key: j}; // what keys go on from, though nobody may have chosen it
      const chip = (text, n) => el("button", {type: "button", dir: "auto", tabindex: n === i ? "0" : "-1",
        "aria-pressed": String(n === i), onclick: () => this.set({query: n, key: -1})}, word(text));
      const made = el("div", {class: "steps"},
        el("h3", {}, `1 · ${t.w1}`), para(t.w1a), el("div", {class: "chips"}, place.queries.map(chip)),
        place.name !== "encoder" && para(fill(t.w1b, this.around(i)), "soft"),
        this.entering(i, layer), this.vectors(layer, found, j), this.weighing(i, layer, found, hidden, j),
        this.summing(layer, found, j));
      if (same) become(this.view.firstChild, made);
      else this.view.replaceChildren(made);
      this.tell(i, -1);
    }

    /* What a decoder reads at a place, and what it says then. */
    around(i) {
      const decoder = this.data.places.find((each) => each.name === "decoder"), says = decoder?.says ?? this.place.queries;
      return {r: quoted(decoder ? decoder.queries[i] : i ? says[i - 1] : "<s>"), s: quoted(says[i])};
    }

    table(caption, head, rows, foot) {
      const text = (cell) => (typeof cell === "number" ? digits(cell) : cell);
      const first = (tag) => ({scope: tag === "th" ? "col" : "row"});
      const cells = (row, tag = "td") => row.map((cell, n) => el(n ? tag : "th", n ? {} : first(tag), text(cell)));
      const body = rows.map(({row: given, ...about}) => el("tr", about, cells(given)));
      return el("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": caption},
        el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, cells(head, "th"))), el("tbody", {}, body),
          foot && el("tfoot", {}, el("tr", {}, cells(foot)))));
    }

    entering(i, layer) {
      const t = this.words, {sides} = this.data.walk, {name} = this.place;
      const {size, parts} = sides[sides.text ? "text" : name === "encoder" ? "source" : "target"];
      const added = ["word", "segment", "position"].filter((part) => parts[part]), own = parts.word[i];
      const line = (part, numbers) => ({"data-part": part, class: part === "sum" ? "on" : "", row: [t[part], ...numbers]});
      const rows = Object.keys(parts).filter((part) => part !== "norm").map((part) => line(part, parts[part][i]));
      if (added.length > 1) rows.push(line("sum", own.map((_, n) => total(added.map((part) => parts[part][i][n])))));
      if (parts.norm) rows.push(line("norm", parts.norm[i]));
      const read = name === "cross" ? this.around(i).r : quoted(this.place.queries[i]), {layer: l} = this.at;
      return [el("h3", {}, `2 · ${t.w2}`), !parts.position && !parts.joined && para(t.w2b),
        this.table(fill(t.first, {w: read, n: own.length, d: size}), ["", ...own.map((_, n) => String(n + 1))], rows),
        layer.projected ? l > 0 && para(fill(t.w2a, {l: l + 1, m: l}), "soft") : para(t.w2c, "soft")];
    }

    vectors(layer, found, j) {
      const t = this.words, {score} = layer, {size} = Object.values(this.data.walk.sides)[0];
      const columns = [found.q, found.keys[j], found.terms(found.keys[j]), found.values[j]];
      const n = found.q.length, m = found.values[j].length;
      const rows = Array.from({length: Math.max(n, m)}, (_, i) =>
        ({"data-term": i, row: [String(i + 1), ...columns.map((column) => column[i] ?? "")]}));
      return [el("h3", {}, `3 · ${t.w3}`), para(layer.projected ? fill(t.w3a, {D: size, d: layer.d_k, v: layer.d_v}) : t.w3b),
        layer.rotates && para(t.w3r), layer.shortened && para(t.w3s),
        !["dot", "scaled_dot"].includes(score.kind) && para(fill(t.w3t, {f: score.formula})),
        this.table(fill(t.allOf, {k: quoted(this.place.keys[j]), n, m}),
          [t.dim, "q", "k", score.vector ? "v·tanh(q+k)" : "q·k", "v"], rows, [t.sum, "", "", found.raw[j], ""])];
    }

    weighing(i, layer, found, hidden, j) {
      const t = this.words, {score, d_k: d, normalise: {kind, formula}} = layer, {bias, gain} = found;
      const any = hidden.some(Boolean), about = (n) => `${n === j ? "on" : ""}${hidden[n] ? " hidden" : ""}`;
      const by = score.kind === "scaled_dot" ? fill(t.root, {d}) : fill(t.scale, {s: score.scale});
      const columns = [ // whether there is one, its name, its numbers
        [true, score.vector ? "Σ v·tanh" : "q·k", (n) => found.raw[n]],
        [(score.scale ?? 1) !== 1, by, (n) => found.scaled[n]],
        [bias, t.bias, (n) => bias[n]],
        [bias, "s", (n) => found.biased[n]],
        [any, t.mask, (n) => (hidden[n] ? "−∞" : found.biased[n])],
        [kind === "softmax", t.exp, (n) => found.exps[n], found.total ?? 0],
        [gain, kind, (n) => found.weights[n]],
        [gain, t.gain, (n) => gain[n]],
        [true, t.final, (n) => found.final[n], total(found.final)],
      ].filter(([there]) => there);
      const rows = this.place.keys.map((text, n) => ({"data-key": n, class: about(n), onclick: () => this.set({key: n}),
        row: [word(text), ...columns.map(([, , get]) => get(n))]}));
      return [el("h3", {}, `4 · ${t.w4}`), para(fill(score.kind === "scaled_dot" ? t.w4a : t.w4z, {f: score.formula, d, r: digits(Math.sqrt(d))})),
        any && para(t.w4h), para(fill(t.w4n, {f: `${kind}, ${formula}`})), gain && para(t.w4g),
        this.table(quoted(this.place.queries[i]), ["", ...columns.map(([, name]) => name)], rows,
          [t.sum, ...columns.map(([, , , sum]) => sum ?? "")])];
    }

    summing(layer, found, j) {
      const t = this.words, d = found.sum.length, {heads} = this.place;
      const n = Math.min(d, SHOWN), first = (list) => [...list.slice(0, n)];
      const names = first(found.sum).map((_, c) => `w·v ${c + 1}`);
      const rows = this.place.keys.map((text, key) => ({"data-value": key, class: key === j ? "on" : "",
        row: [word(text), found.final[key], ...first(found.values[key]).map((v) => found.final[key] * v)]}));
      if (found.mixed) rows.push({"data-value": "mixed", class: "", row: [t.mixed, "", ...first(found.mixed)]});
      return [el("h3", {}, `5 · ${t.w5}`), para(fill(t.w5a, {n, d})),
        this.table(t.w5, ["", t.weight, ...names], rows, [t.sum, "", ...first(found.sum)]),
        el("h3", {}, `6 · ${t.w6}`), para(layer.projected ? fill(t.w6a, {h: heads, d, n: heads * d}) : t.w6b)];
    }
  }

  globalThis.regardLook = (element, data, options = {}) => new Look(element, data, options);
})();
