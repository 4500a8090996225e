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
      encoderTitle: "words of the source look at each other", decoderTitle: "each word looks at those before it",
      crossTitle: "each word that is said looks at the source", textTitle: "words of the text look at each other",
      theme: "Light or dark", other: "中文", keys: "Keys", reads: "reads", says: "says", looks: "looks at", seen: "is looked at by",
      asks: "asks ↓ asked →", hint: "Point at a word, or press J and K; a click keeps it.", of: "of", weight: "weight",
      legend: "weight, coloured by its root; the strongest colour is the largest here", hidden: "hidden", chooseHead: "layer {l}, head {h}",
      noRollout: "Rollout follows words through layers of self-attention, which this model has not got, or has shortened.",
      rolloutNote: "How much of each input word is in each place after layer {l}, if heads count alike and half of a place passes by in the residual: R ← (½W + ½I) R (Abnar and Zuidema 2020). In a decoder, rows of target and source together sum to 1.",
      noWalk: "The numbers behind these weights would make this page too large; take a shorter text.",
      noChoice: "The numbers behind these weights are not shown: this page does not know the choice ",
      note: "Weights say what was mixed, not why something was said: other weights can give the same output (Jain and Wallace 2019; Wiegreffe and Pinter 2019).",
      help: [["← →", "head before, after"], ["↑ ↓", "layer below, above"], ["J K", "word after, before"], ["N B", "key after, before (walk)"], ["L M H R W", "lines, map, heads, rollout, walk"], ["E D C", "encoder, decoder, cross"], ["T", "light or dark"], ["Z", "中文"], ["Esc", "let go of a word"]],
      w1: "Words", w1a: "Choose the word that asks. Everything below is about it, in this layer and head.", w1b: "At this place the model reads {r} and is about to say {s}.",
      w2: "A vector for each word", word: "word", segment: "segment", position: "position", joined: "joined with its position, by a matrix", norm: "normalised", sum: "sum", first: "{w}: the first {n} of {d} numbers",
      w2a: "This is what enters layer 1. Layer {l} reads what layer {m} has made of it, which is not shown.", w2b: "No position is added here.", w2c: "Recurrent or convolutional layers come between this and the attention; they are not shown.",
      w3: "Query, key and value", w3a: "Three matrices of this head make of each word a query, a key and a value; the matrices (each {D} × {d}) are not shown.",
      w3b: "There are no projections: the decoder's state is the query, the source's states are keys and values.", w3r: "Query and key are shown after they were turned by their positions (rotary).", w3s: "Keys and values are shown after several words were made one (compress).",
      w3t: "Query and key are shown as the score compares them: {f}.", product: "product", dim: "number", allOf: "Key {k}: all {n} numbers, and their sum",
      w4: "Score, scale, mask, weights", scale: "× {s}", root: "÷ √{d} = ÷ {r}", w4a: "Each key's score, by {f}. √d_k uses the size of one head's keys, here d_k = {d}: the sum of {d} products varies about √{d} times as much as one.", w4z: "Each key's score, by {f}.",
      bias: "+ position", mask: "mask", exp: "exp(s − max)", final: "weight", gain: "× nearness", shown: "hidden: −∞", w4n: "Weights by {f}.", w4h: "A hidden key gets −∞, so that its weight is exactly 0.", w4g: "local_p then multiplies weights by how near a place is to its centre.",
      w5: "Weighted sum", w5a: "Each value by its weight; the sum is what this head says of the word ({n} of {d} numbers shown).", mixed: "relative positions add",
      w6: "Output", w6a: "The vectors of all {h} heads, end to end ({h} × {d} = {n} numbers), go through one more matrix, which is not shown, and are added to the word's own vector (the residual).", w6b: "The decoder goes on with this vector.",
    },
    zh: {
      lines: "连线", map: "热图", heads: "各头", rollout: "累积", walk: "演算", layer: "层", head: "头",
      encoder: "编码器", decoder: "解码器", cross: "交叉", places: "注意力", views: "视图",
      encoderTitle: "源文的词互相注意", decoderTitle: "每个词注意它之前的词", crossTitle: "说出的每个词注意源文", textTitle: "文中的词互相注意",
      theme: "浅色或深色", other: "English", keys: "按键", reads: "读入", says: "说出", looks: "注意", seen: "被这些词注意：",
      asks: "查询 ↓ 键 →", hint: "指向一个词，或按 J、K；点击可固定。", of: "/", weight: "权重",
      legend: "权重，按平方根着色；颜色最强者为此处最大值", hidden: "被遮住", chooseHead: "第 {l} 层第 {h} 头",
      noRollout: "累积注意力沿自注意力各层追踪词；此模型没有自注意力，或其键被压缩过。",
      rolloutNote: "到第 {l} 层为止，每个位置含有多少各输入词：各头同等计算，残差保留一半，R ← (½W + ½I) R（Abnar 与 Zuidema 2020）。在解码器中，译文与源文两部分每行合计为 1。",
      noWalk: "这些权重背后的数字会使页面过大；请用短一些的文本。",
      noChoice: "这些权重背后的数字没有给出：本页不认识这一选择：",
      note: "权重说明混合了什么，不说明为什么这样说：别的权重可以给出同样的输出（Jain 与 Wallace 2019；Wiegreffe 与 Pinter 2019）。",
      help: [["← →", "前一头、后一头"], ["↑ ↓", "下一层、上一层"], ["J K", "后一词、前一词"], ["N B", "后一键、前一键（演算）"], ["L M H R W", "连线、热图、各头、累积、演算"], ["E D C", "编码器、解码器、交叉"], ["T", "浅色或深色"], ["Z", "English"], ["Esc", "放开选中的词"]],
      w1: "词", w1a: "选择发出查询的词。以下都是它在这一层、这一头中的数字。", w1b: "模型在此读入 {r}，将要说出 {s}。",
      w2: "每个词一个向量", word: "词", segment: "句段", position: "位置", joined: "由矩阵与位置合并", norm: "归一化", sum: "和", first: "{w}：{d} 个数中的前 {n} 个",
      w2a: "这是进入第 1 层的向量。第 {l} 层读的是第 {m} 层的结果，未列出。", w2b: "这里不加位置。", w2c: "它与注意力之间还有循环层或卷积层，未列出。",
      w3: "查询、键、值", w3a: "这一头的三个矩阵把每个词变成查询、键和值；矩阵（各 {D} × {d}）未列出。",
      w3b: "这里没有投影：解码器的状态就是查询，源文的状态就是键和值。", w3r: "所示查询与键已按位置旋转（rotary）。", w3s: "所示键与值是几个词合成的（compress）。",
      w3t: "所示查询与键是打分时比较的样子：{f}。", product: "乘积", dim: "序号", allOf: "键 {k}：全部 {n} 个数及其和",
      w4: "分数、缩放、遮罩、权重", scale: "× {s}", root: "÷ √{d} = ÷ {r}", w4a: "每个键的分数：{f}。√d_k 用的是一个头的键的大小，这里 d_k = {d}：{d} 个乘积之和的起伏约为单个的 √{d} 倍。", w4z: "每个键的分数：{f}。",
      bias: "+ 位置", mask: "遮罩", exp: "exp(s − max)", final: "权重", gain: "× 远近", shown: "遮住：−∞", w4n: "权重：{f}。", w4h: "被遮住的键得 −∞，权重恰为 0。", w4g: "local_p 再按离中心的远近乘以权重。",
      w5: "加权和", w5a: "每个值乘以它的权重；其和就是这一头对该词所说的（列出 {d} 个数中的 {n} 个）。", mixed: "相对位置所加",
      w6: "输出", w6a: "全部 {h} 个头的向量首尾相接（{h} × {d} = {n} 个数），再过一个矩阵（未列出），加到该词自己的向量上（残差）。", w6b: "解码器带着这个向量继续。",
    },
  };
  const RAMPS = {light: [[255, 255, 255], [128, 165, 245], [16, 28, 105]], dark: [[20, 22, 28], [62, 98, 205], [232, 240, 255]]};
  const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

  /* Characters that would not be seen, or turn others around, are named instead. */
  const visible = (text) => text.replace(ODD, (c) => `⟨${c.codePointAt(0).toString(16).padStart(4, "0")}⟩`);
  const word = (text) => visible(text).replace(/[\n\t ]/g, "▁") || "∅";
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

  /* Makes of nodes that are shown others like them: what is alike stays, and is neither laid out nor scrolled anew. */
  function become(old, made) {
    if (old.nodeName !== made.nodeName || old.childNodes.length !== made.childNodes.length) { old.replaceWith(made); return; }
    if (old.nodeType === Node.TEXT_NODE) { if (old.data !== made.data) old.data = made.data; return; }
    for (const {name, value} of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const parts = [...made.childNodes];
    [...old.childNodes].forEach((child, n) => become(child, parts[n]));
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
    const exps = scores.map((s) => Math.exp(s - top)), total = exps.reduce((a, b) => a + b, 0);
    if (kind === "softmax") return {exps, total, weights: exps.map((e) => e / total)};
    if (kind === "hard") return {weights: scores.map((_, j) => (j === scores.indexOf(top) ? 1 : 0))};
    const alpha = kind === "sparsemax" ? 2 : 1.5, z = scores.map((s) => (s - top) * (alpha - 1));
    let low = -1, high = 0; // τ lies between: halve until both are one number
    const given = (tau) => z.map((s) => Math.max(s - tau, 0) ** (1 / (alpha - 1)));
    for (let n = 0; n < 60; n++) {
      const tau = (low + high) / 2;
      if (given(tau).reduce((a, b) => a + b, 0) >= 1) low = tau;
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
    const raw = keys.map((k) => terms(k).reduce((a, b) => a + b, 0));
    const scaled = raw.map((s) => s * (score.scale ?? 1));
    const bias = layer.bias && row(layer.bias, h, i);
    const biased = bias ? scaled.map((s, j) => s + bias[j]) : scaled;
    const found = normalise(layer.normalise.kind, biased.map((s, j) => (hidden[j] ? -Infinity : s)));
    const gain = layer.gain && row(layer.gain, h, i);
    const final = gain ? found.weights.map((w, j) => w * gain[j]) : found.weights;
    const values = keys.map((_, j) => row(layer.v, h, j)), mixed = layer.mixed && row(layer.mixed, h, i);
    const sum = Float64Array.from(values[0], (_, n) => final.reduce((total, w, j) => total + w * values[j][n], mixed ? mixed[n] : 0));
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

    /* The weights of the chosen head: at(i, j) is a number, or null where it is hidden. */
    weights(layer = this.at.layer, head = this.at.head, from = this.place.weights) {
      const all = numbers(from), [, , rows, width] = from.shape.length === 4 ? from.shape : [0, 0, ...from.shape.slice(1)];
      const start = (from.shape.length === 4 ? layer * from.shape[1] + head : layer) * rows * width;
      const own = all.subarray(start, start + rows * width), top = own.reduce((most, n) => (n !== HIDDEN && n > most ? n : most), 1);
      return {rows, width, own, top: top / ONE, at: (i, j) => { const n = own[i * width + j]; return n === HIDDEN ? null : n / ONE; }};
    }

    // --- frame -------------------------------------------------------------------------------------------------------

    build() {
      const t = this.words, {data} = this;
      const button = (name, group, text, title) => el("button", {type: "button", title, "data-choose": `${group}:${name}`,
        ...(group === "view" ? {role: "tab"} : {}), onclick: () => this.set({[group]: name})}, text);
      const pick = (name) => el("label", {}, t[name], el("select", {"data-pick": name, onchange: (event) => this.set({[name]: Number(event.target.value)})}));
      const titles = {encoder: data.places.length > 1 ? t.encoderTitle : t.textTitle, decoder: t.decoderTitle, cross: t.crossTitle};
      this.root.lang = this.language === "zh" ? "zh-CN" : "en";
      this.root.dataset.theme = this.theme;
      this.view = el("div", {class: "view", role: "tabpanel", "aria-label": t.views});
      this.readout = el("p", {class: "readout", role: "status", "aria-live": "polite"});
      this.root.replaceChildren(...[
        !this.compact && el("header", {}, el("h2", {}, "regard look"), el("p", {class: "soft"}, data.model.title),
          el("p", {class: "said", dir: "auto"}, visible(data.text)), data.output && el("p", {class: "said"}, el("b", {}, "→ "), el("bdi", {}, visible(data.output)))),
        el("div", {class: "head"}, el("div", {class: "bar", role: "toolbar", "aria-label": t.views},
          el("div", {role: "group", "aria-label": t.places}, data.places.map((place, n) => button(n, "place", t[place.name], titles[place.name]))),
          el("div", {role: "tablist", "aria-label": t.views}, Object.keys(VIEWS).map((view) => button(view, "view", t[view], `${t[view]} (${VIEWS[view].toUpperCase()})`))),
          pick("layer"), pick("head"),
          el("div", {class: "end"},
            el("button", {type: "button", "aria-label": t.theme, title: `${t.theme} (T)`, "data-do": "theme", onclick: () => this.setTheme(this.theme === "dark" ? "light" : "dark")}, "◐"),
            el("button", {type: "button", title: `${t.other} (Z)`, "data-do": "language", onclick: () => this.setLanguage(this.language === "zh" ? "en" : "zh")}, t.other))), this.readout),
        this.view,
        el("details", {}, el("summary", {}, t.keys), el("dl", {}, t.help.map(([keys, what]) => [el("dt", {}, keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, what)]))),
        el("p", {class: "note"}, t.note)].filter(Boolean));
      this.set({});
    }

    setTheme(theme) { this.theme = theme; this.root.dataset.theme = theme; this.show(); }
    setLanguage(language) { this.language = language; this.build(); }

    set(change) {
      const at = Object.assign(this.at, change);
      if ("place" in change) Object.assign(at, {query: -1, key: -1, layer: Math.min(at.layer, this.place.layers - 1), head: Math.min(at.head, this.place.heads - 1)});
      for (const button of this.root.querySelectorAll("[data-choose]")) {
        const [group, name] = button.dataset.choose.split(":");
        button.setAttribute(group === "view" ? "aria-selected" : "aria-pressed", String(at[group]) === name);
      }
      for (const [name, count] of [["layer", this.place.layers], ["head", this.place.heads]]) {
        const select = this.root.querySelector(`[data-pick=${name}]`);
        if (select.length !== count) select.replaceChildren(...Array.from({length: count}, (_, n) => el("option", {value: n}, `${n + 1} ${this.words.of} ${count}`)));
        select.value = at[name];
        select.disabled = name === "head" && at.view === "rollout";
      }
      if (this.drawn === "heads" && at.view === "heads" && !("place" in change)) return this.mark();
      this.show();
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      const at = this.at, key = event.key.toLowerCase(), name = (table) => Object.keys(table).find((each) => table[each] === key);
      const turn = (what, by, count) => this.set({[what]: (at[what] + by + count) % count});
      const view = name(VIEWS), place = this.data.places.findIndex((each) => each.name === name(PLACES));
      if (key === "arrowleft") turn("head", -1, this.place.heads);
      else if (key === "arrowright") turn("head", 1, this.place.heads);
      else if (key === "arrowdown") turn("layer", -1, this.place.layers);
      else if (key === "arrowup") turn("layer", 1, this.place.layers);
      else if (key === "j" || key === "k") turn("query", key === "j" ? 1 : at.query < 0 ? 0 : -1, this.place.queries.length);
      else if (key === "n" || key === "b") turn("key", key === "n" ? 1 : at.key < 0 ? 0 : -1, this.place.keys.length);
      else if (view) this.set({view});
      else if (place >= 0) this.set({place});
      else if (key === "t") this.setTheme(this.theme === "dark" ? "light" : "dark");
      else if (key === "z") this.setLanguage(this.language === "zh" ? "en" : "zh");
      else if (key === "escape") this.set({query: -1, key: -1});
      else return;
      event.preventDefault();
    }

    show() {
      const same = this.drawn === this.at.view && this.drawnFor === `${this.at.place} ${this.language} ${this.root.clientWidth}`;
      this.width = this.root.clientWidth;
      this[this.at.view](same);
      this.drawn = this.at.view;
      this.drawnFor = `${this.at.place} ${this.language} ${this.width}`;
    }

    /* What the weights of a word are, in words: its five largest. */
    tell(query, key) {
      const t = this.words, {queries, keys, says} = this.place, from = this.source, quoted = (text) => `“${word(text)}”`;
      if (!from || (query < 0 && key < 0)) { this.readout.textContent = t.hint; return; }
      if (query >= 0 && key >= 0) {
        const w = from.at(query, key);
        this.readout.textContent = `${quoted(queries[query])} → ${quoted(keys[key])}: ${w === null ? t.hidden : digits(w)}`;
        return;
      }
      const asks = query >= 0, others = asks ? keys : queries, at = (n) => (asks ? from.at(query, n) : from.at(n, key)) ?? 0;
      const best = others.map((_, n) => n).sort((a, b) => at(b) - at(a)).slice(0, 5).filter((n) => at(n) > 0);
      const next = asks && says ? ` (${t.says} ${quoted(says[query])})` : "";
      this.readout.textContent = `${quoted(asks ? queries[query] : keys[key])}${next} ${asks ? t.looks : t.seen} ${best.map((n) => `${quoted(others[n])} ${digits(at(n))}`).join(", ")}`;
    }

    context(canvas, width, height) {
      const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d"), size = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size; // new memory, which takes time
      context.setTransform(size[0] / width, 0, 0, size[1] / height, 0, 0);
      context.clearRect(0, 0, width, height);
      return context;
    }

    /* 256 colours from nothing to everything, as bytes. */
    get colours() {
      const stops = RAMPS[this.theme];
      return Array.from({length: 256}, (_, n) => {
        const x = (n / 255) * 2, from = stops[Math.min(Math.floor(x), 1)], to = stops[Math.min(Math.floor(x), 1) + 1], part = n === 255 ? 1 : x % 1;
        return from.map((value, c) => Math.round(value + (to[c] - value) * part));
      });
    }

    // --- lines -------------------------------------------------------------------------------------------------------

    lines(same) {
      this.source = this.weights();
      if (!same) {
        const {queries, keys} = this.place, long = Math.max(queries.length, keys.length) > 40;
        const column = (words, side) => el("ol", {"aria-label": side}, words.map((text, n) => el("li", {}, el("button", {type: "button", tabindex: "-1", dir: "auto",
          onmouseenter: () => this.point(side === "query" ? n : -1, side === "key" ? n : -1),
          onclick: () => this.set(side === "query" ? {query: this.at.query === n ? -1 : n, key: -1} : {key: this.at.key === n ? -1 : n, query: -1})}, word(text)))));
        this.canvas = el("canvas", {role: "img", "aria-label": this.words.lines});
        this.columns = [column(queries, "query"), column(keys, "key")];
        const frame = el("div", {class: "lines", onmouseleave: () => this.point(this.at.query, this.at.key)}, this.columns[0], this.canvas, this.columns[1]);
        this.pitch = long ? 19 : 27;
        frame.style.setProperty("--row", `${this.pitch}px`);
        frame.style.setProperty("--word", long ? "12.5px" : "14.5px");
        this.view.replaceChildren(frame);
      }
      this.gap = this.canvas.clientWidth;
      this.point(this.at.query, this.at.key);
    }

    point(query, key) {
      const {rows, width, at, top} = this.source, {canvas, pitch, gap} = this, free = query < 0 && key < 0, height = Math.max(rows, width) * pitch;
      if (query >= 0 && key >= 0) key = -1;
      const context = this.context(canvas, gap, height), ink = RAMPS[this.theme][this.theme === "dark" ? 2 : 1].map((c) => (this.theme === "dark" ? c : Math.round(c * 0.6)));
      const least = free && rows * width > STRANDS ? [...this.source.own].map((n) => (n === HIDDEN ? 0 : n)).sort((a, b) => b - a)[STRANDS] / ONE : 0;
      canvas.style.height = `${height}px`;
      for (let i = 0; i < rows; i++) for (let j = 0; j < width; j++) {
        const w = at(i, j), chosen = i === query || j === key, share = w / top;
        if (!w || w < least || share < (chosen ? 0.004 : 0.06) || !(chosen || free)) continue;
        context.strokeStyle = `rgba(${ink.join()},${chosen ? 0.1 + 0.9 * share : share})`;
        context.lineWidth = chosen ? 0.8 + 3 * w : 0.6 + 1.6 * w;
        context.beginPath();
        context.moveTo(0, (i + 0.5) * pitch);
        context.bezierCurveTo(gap / 2, (i + 0.5) * pitch, gap / 2, (j + 0.5) * pitch, gap, (j + 0.5) * pitch);
        context.stroke();
      }
      [[query, (n) => at(n, key), key], [key, (n) => at(query, n), query]].forEach(([own, get, other], side) => {
        [...this.columns[side].children].forEach((item, n) => {
          const w = other >= 0 ? get(n) : undefined, button = item.firstChild;
          const number = w === undefined || w === null || w < 0.00005 ? "" : digits(w);
          button.classList.toggle("on", n === own);
          if (item.dataset.w === number) return; // what stays is not laid out again
          button.style.setProperty("--w", ((w ?? 0) / top).toFixed(3));
          item.dataset.w = number;
        });
      });
      this.tell(query, key);
    }

    // --- heat maps ---------------------------------------------------------------------------------------------------

    map(same) { this.heat(same, this.weights(), this.place, []); }

    rollout(same) {
      const found = this.data.rollout[this.place.name], t = this.words;
      this.source = null;
      if (!found) { this.tell(-1, -1); return this.view.replaceChildren(el("p", {}, t.noRollout)); }
      const keys = this.place.name === "cross" ? this.data.places.find((each) => each.name === "encoder").keys : this.place.keys;
      this.heat(same, this.weights(Math.min(this.at.layer, found.shape[0] - 1), 0, found), {...this.place, keys}, [el("p", {class: "soft"}, fill(t.rolloutNote, {l: this.at.layer + 1}))]);
    }

    heat(same, source, {queries, keys}, notes) {
      this.source = source;
      if (!same) {
        const room = this.view.clientWidth - 140, cell = clamp(Math.floor(room / keys.length), 12, 40);
        const labels = (words) => words.map((text) => el("span", {class: "label", dir: "auto", title: visible(text)}, word(text)));
        this.cell = cell;
        this.labels = [labels(queries), labels(keys)];
        this.canvas = el("canvas", {role: "img", "aria-label": this.words.map});
        this.marks = [el("div", {class: "cross"}), el("div", {class: "cross"})];
        const where = (event) => {
          const box = this.canvas.getBoundingClientRect();
          return [clamp(Math.floor((event.clientY - box.top) / cell), 0, queries.length - 1), clamp(Math.floor((event.clientX - box.left) / cell), 0, keys.length - 1)];
        };
        const cells = el("div", {class: "cells", onmousemove: (event) => this.cross(...where(event)), onmouseleave: () => this.cross(this.at.query, this.at.key),
          onclick: (event) => { const [query, key] = where(event); Object.assign(this.at, {query, key}); this.cross(query, key); }}, this.canvas, this.marks);
        const frame = el("div", {class: "map"}, el("div", {class: "corner"}, this.words.asks), el("div", {class: "top"}, this.labels[1]), el("div", {class: "left"}, this.labels[0]), cells);
        frame.style.setProperty("--cell", `${cell}px`);
        frame.style.setProperty("--word", `${clamp(cell - 2, 10, 14)}px`);
        this.legend = el("canvas", {width: 128, height: 10, "aria-hidden": "true"});
        this.view.replaceChildren(el("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": this.words.map}, frame), el("div", {class: "legend"}, "0", this.legend, el("span", {}), ` · ${this.words.legend}`), el("div", {}, notes));
      } else this.view.lastChild.replaceChildren(...notes);
      const {rows, width} = source, cell = this.cell, colours = this.colours, side = this.legend.getContext("2d");
      this.legend.nextSibling.textContent = digits(source.top);
      const small = el("canvas", {width, height: rows});
      this.paint(small, source, colours);
      this.canvas.style.width = `${width * cell}px`;
      this.canvas.style.height = `${rows * cell}px`;
      const context = this.context(this.canvas, width * cell, rows * cell);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, width * cell, rows * cell);
      colours.forEach((colour, n) => { side.fillStyle = `rgb(${colour.join()})`; side.fillRect(n / 2, 0, 1, 10); });
      this.cross(this.at.query, this.at.key);
    }

    /* One pixel for one weight. */
    paint(canvas, {rows, width, own, top}, colours) {
      const context = canvas.getContext("2d"), image = context.createImageData(width, rows), hidden = this.theme === "dark" ? [32, 35, 44] : [236, 238, 243];
      own.forEach((weight, n) => {
        image.data.set(weight === HIDDEN ? hidden : colours[Math.round(Math.sqrt(weight / (top * ONE)) * 255)], 4 * n);
        image.data[4 * n + 3] = 255;
      });
      context.putImageData(image, 0, 0);
    }

    cross(query, key) {
      const {cell} = this, {rows, width} = this.source, boxes = [[0, query, width, 1, query], [key, 0, 1, rows, key]];
      this.marks.forEach((mark, n) => {
        const [x, y, w, h, there] = boxes[n];
        mark.hidden = there < 0;
        for (const [name, value] of [["left", x], ["top", y], ["width", w], ["height", h]]) mark.style[name] = `${value * cell}px`;
      });
      this.labels.forEach((labels, side) => labels.forEach((label, n) => label.classList.toggle("on", n === (side ? key : query))));
      this.tell(query, key);
    }

    // --- all heads ---------------------------------------------------------------------------------------------------

    heads() {
      const {layers, heads} = this.place, t = this.words, size = clamp(Math.floor((this.view.clientWidth - 60) / heads) - 12, 44, 150);
      const grid = el("div", {class: "grid"}, el("span", {}, ""), Array.from({length: heads}, (_, h) => el("span", {}, `${t.head} ${h + 1}`)));
      grid.style.setProperty("grid-template-columns", `max-content repeat(${heads}, max-content)`);
      grid.style.setProperty("--thumb", `${size}px`);
      const colours = this.colours;
      this.source = this.weights();
      this.thumbs = [];
      for (let l = layers - 1; l >= 0; l--) {
        grid.append(el("span", {}, `${t.layer} ${l + 1}`));
        for (let h = 0; h < heads; h++) {
          const source = this.weights(l, h), canvas = el("canvas", {width: source.width, height: source.rows});
          this.paint(canvas, source, colours);
          const thumb = el("button", {type: "button", "aria-label": fill(t.chooseHead, {l: l + 1, h: h + 1}), title: fill(t.chooseHead, {l: l + 1, h: h + 1}),
            onclick: () => this.set({layer: l, head: h, view: "map"})}, canvas);
          grid.append(thumb);
          this.thumbs.push([l, h, thumb]);
        }
      }
      this.view.replaceChildren(el("div", {class: "scroll"}, grid));
      this.mark();
    }

    mark() {
      for (const [l, h, thumb] of this.thumbs) thumb.setAttribute("aria-pressed", l === this.at.layer && h === this.at.head);
      this.source = this.weights();
      if (this.at.query >= 0) this.tell(this.at.query, -1);
      else this.readout.textContent = fill(this.words.chooseHead, {l: this.at.layer + 1, h: this.at.head + 1});
    }

    // --- walk --------------------------------------------------------------------------------------------------------

    walk(same) {
      const t = this.words, {walk} = this.data, {at, place} = this;
      this.source = this.weights();
      if (!walk || walk.left_out) {
        this.tell(-1, -1);
        return this.view.replaceChildren(el("p", {}, !walk || walk.left_out === "size" ? t.noWalk : t.noChoice + walk.left_out));
      }
      const i = Math.max(at.query, 0), layer = walk[place.name][at.layer], hidden = place.keys.map((_, j) => this.source.at(i, j) === null);
      const found = steps(layer, hidden, at.head, i);
      const best = found.final.indexOf(Math.max(...found.final)), j = at.key < 0 ? best : at.key;
      const chips = el("div", {class: "chips"}, place.queries.map((text, n) => el("button", {type: "button", dir: "auto", tabindex: n === i ? "0" : "-1", "aria-pressed": n === i, onclick: () => this.set({query: n, key: -1})}, word(text))));
      const made = el("div", {class: "steps"}, el("h3", {}, `1 · ${t.w1}`), el("p", {}, t.w1a), chips,
        place.name === "encoder" ? null : el("p", {class: "soft"}, fill(t.w1b, this.around(i))),
        this.entering(i, layer), this.vectors(layer, found, j), this.weighing(layer, found, hidden, j), this.summing(layer, found, j));
      if (same) become(this.view.firstChild, made);
      else this.view.replaceChildren(made);
      this.tell(i, -1);
    }

    around(i) {
      const decoder = this.data.places.find((each) => each.name === "decoder"), says = decoder?.says ?? this.place.queries;
      const read = decoder ? decoder.queries[i] : i ? says[i - 1] : "<s>";
      return {r: `“${word(read)}”`, s: `“${word(says[i])}”`};
    }

    table(caption, head, rows, foot) {
      const cells = (row, tag = "td") => row.map((cell, n) => el(n ? tag : "th", n ? {} : {scope: tag === "th" ? "col" : "row"}, typeof cell === "number" ? digits(cell) : cell));
      return el("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": caption}, el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, cells(head, "th"))),
        el("tbody", {}, rows.map(({row: given, ...about}) => el("tr", about, cells(given)))), foot && el("tfoot", {}, el("tr", {}, cells(foot)))));
    }

    entering(i, layer) {
      const t = this.words, {sides} = this.data.walk, side = sides.text ? "text" : this.place.name === "encoder" ? "source" : "target";
      const {size, parts} = sides[side], order = Object.keys(parts), added = order.filter((name) => ["word", "segment", "position"].includes(name));
      const rows = order.filter((name) => name !== "norm").map((name) => ({"data-part": name, row: [t[name], ...parts[name][i]]}));
      if (added.length > 1) rows.push({"data-part": "sum", class: "on", row: [t.sum, ...parts.word[i].map((_, n) => added.reduce((all, name) => all + parts[name][i][n], 0))]});
      if (parts.norm) rows.push({"data-part": "norm", row: [t.norm, ...parts.norm[i]]});
      const shown = parts.word[i].length, read = this.place.name === "cross" ? this.around(i).r : `“${word(this.place.queries[i])}”`;
      return [el("h3", {}, `2 · ${t.w2}`), parts.position || parts.joined ? null : el("p", {}, t.w2b),
        this.table(fill(t.first, {w: read, n: shown, d: size}), ["", ...parts.word[i].map((_, n) => String(n + 1))], rows),
        !layer.projected ? el("p", {class: "soft"}, t.w2c) : this.at.layer > 0 ? el("p", {class: "soft"}, fill(t.w2a, {l: this.at.layer + 1, m: this.at.layer})) : null];
    }

    vectors(layer, found, j) {
      const t = this.words, {score} = layer, key = word(this.place.keys[j]), d = found.q.length, value = found.values[j];
      const terms = [...found.terms(found.keys[j])], product = score.vector ? "v·tanh(q+k)" : `q·k`;
      const special = !["dot", "scaled_dot"].includes(score.kind);
      const {size} = Object.values(this.data.walk.sides)[0];
      return [el("h3", {}, `3 · ${t.w3}`), el("p", {}, layer.projected ? fill(t.w3a, {D: size, d: layer.d_k}) : t.w3b),
        layer.rotates ? el("p", {}, t.w3r) : null, layer.shortened ? el("p", {}, t.w3s) : null, special ? el("p", {}, fill(t.w3t, {f: score.formula})) : null,
        this.table(fill(t.allOf, {k: `“${key}”`, n: d}), [t.dim, "q", "k", product, "v"],
          Array.from({length: Math.max(d, value.length)}, (_, n) => ({"data-term": n, row: [String(n + 1), found.q[n] ?? "", found.keys[j][n] ?? "", terms[n] ?? "", value[n] ?? ""]})), [t.sum, "", "", found.raw[j], ""])];
    }

    weighing(layer, found, hidden, j) {
      const t = this.words, {score, d_k: d} = layer, softmax = layer.normalise.kind === "softmax", scaled = score.scale !== undefined && score.scale !== 1;
      const by = score.kind === "scaled_dot" ? fill(t.root, {d, r: digits(Math.sqrt(d))}) : fill(t.scale, {s: score.scale});
      const any = hidden.some(Boolean), column = (there, name, get) => (there ? [[name, get]] : []);
      const columns = [[score.vector ? "Σ v·tanh" : "q·k", (n) => found.raw[n]], ...column(scaled, by, (n) => found.scaled[n]), ...column(found.bias, t.bias, (n) => found.biased[n]),
        ...column(any, t.mask, (n) => (hidden[n] ? "−∞" : found.biased[n])), ...column(softmax, t.exp, (n) => found.exps[n]), ...column(found.gain, layer.normalise.kind, (n) => found.weights[n]),
        ...column(found.gain, t.gain, (n) => found.gain[n]), [t.final, (n) => found.final[n]]];
      const rows = this.place.keys.map((text, n) => ({"data-key": n, class: `${n === j ? "on" : ""}${hidden[n] ? " hidden" : ""}`, onclick: () => this.set({key: n}), row: [word(text), ...columns.map(([, get]) => get(n))]}));
      const total = (list) => list.reduce((a, b) => a + b, 0);
      const foot = [t.sum, ...columns.map(([name]) => (name === t.exp ? found.total ?? 0 : name === t.final ? total(found.final) : ""))];
      return [el("h3", {}, `4 · ${t.w4}`), el("p", {}, fill(score.kind === "scaled_dot" ? t.w4a : t.w4z, {f: score.formula, d})), any ? el("p", {}, t.w4h) : null,
        el("p", {}, fill(t.w4n, {f: `${layer.normalise.kind}, ${layer.normalise.formula}`})), found.gain ? el("p", {}, t.w4g) : null,
        this.table(`“${word(this.place.queries[Math.max(this.at.query, 0)])}”`, ["", ...columns.map(([name]) => name)], rows, foot)];
    }

    summing(layer, found, j) {
      const t = this.words, d = found.sum.length, shown = Math.min(d, SHOWN), heads = this.place.heads, first = (list) => [...list.slice(0, shown)];
      const rows = this.place.keys.map((text, n) => ({"data-value": n, class: n === j ? "on" : "", row: [word(text), found.final[n], ...first(found.values[n]).map((v) => found.final[n] * v)]}));
      if (found.mixed) rows.push({"data-value": "mixed", row: [t.mixed, "", ...first(found.mixed)]});
      return [el("h3", {}, `5 · ${t.w5}`), el("p", {}, fill(t.w5a, {n: shown, d})),
        this.table(t.w5, ["", t.weight, ...Array.from({length: shown}, (_, n) => `w·v ${n + 1}`)], rows, [t.sum, "", ...first(found.sum)]),
        el("h3", {}, `6 · ${t.w6}`), el("p", {}, layer.projected ? fill(t.w6a, {h: heads, d, n: heads * d}) : t.w6b)];
    }
  }

  globalThis.regardLook = (element, data, options = {}) => new Look(element, data, options);
})();
