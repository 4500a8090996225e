/* The walk after one head: all heads and the output projection, residual, norm, feed-forward, and the scores of words. */
const RESIDUALS = {post_norm: "norm(x + f(x))", pre_norm: "x + f(norm(x))", none: "norm(f(x))"};
const NORMS = {layer: "(s − μ) / σ · g + b", rms: "s / √mean(s²) · g", batch: "(s − μ) / σ · g + b"};
const WORDS_SHOWN = 12;

class Look extends Walk {
  /* A step's formula, and the file and line that compute it. */
  formula(layer, step, text) {
    const source = layer.sources?.[step];
    return el("p", {class: "formula", "data-step": step}, text, source && el("code", {class: "soft"}, source));
  }

  after(i, layer, found) {
    const t = this.words, {at, place} = this, {after} = layer;
    if (!after) return [el("h3", {}, `6 · ${t.w6}`), para(t.w6b), this.scores(i, layer, 7)];
    const parts = after.parts.flatMap((part, n) => [...(n ? this.feedForward(i, layer, part) : []),
      ...this.connection(i, layer, part, n ? 9 : 7)]);
    const last = at.layer === place.layers - 1, inside = after.parts.length === 1 && this.data.places.some(({name}) => name === "cross");
    const next = inside && place.name === "decoder" ? t.goesAcross : last ? t.goesUp : fill(t.goesOn, {l: at.layer + 2});
    return [...this.joining(i, layer, found), ...parts, para(next, "soft"), this.scores(i, layer, 10)];
  }

  /* What each head adds to the first numbers of the output: its vector times its rows of W^O. */
  joining(i, layer, found) {
    const t = this.words, {output} = layer.after, {heads, keys} = this.place, d = found.sum.length;
    const vectors = Array.from({length: heads}, (_, h) => {
      const {at} = this.weights(this.at.layer, h), hidden = keys.map((_, j) => at(i, j) === null);
      return h === this.at.head ? found.sum : steps(layer, hidden, h, i).sum;
    });
    const added = vectors.map((z, h) => output.bias.map((_, n) =>
      this.isOff(h) ? 0 : total([...row(output.weight, h, n)].map((w, c) => w * z[c]))));
    const rows = added.map((numbers, h) => ({"data-head": h, class: h === this.at.head ? "on" : "",
      row: [`${fill(t.headN, {n: h + 1})}${this.isOff(h) ? ` (${t.off})` : ""}`, ...numbers]}));
    const sums = output.bias.map((b, n) => b + total(added.map((numbers) => numbers[n])));
    rows.push({"data-head": "bias", row: ["b", ...output.bias]});
    return [el("h3", {}, `6 · ${t.w6}`), para(fill(t.w6a, {h: heads, d, n: heads * d})),
      this.formula(layer, "heads", "y = [z₁; z₂; …] Wᴼ + b"),
      this.table(fill(t.adds, {n: sums.length}), ["", ...sums.map((_, n) => String(n + 1))], rows, ["y", ...sums])];
  }

  connection(i, layer, {residual, vectors, norm}, number) {
    const t = this.words, [x, y, out] = [0, 1, 2].map((part) => [...row(vectors, part, i)]), {mean, deviation, gain, bias} = norm;
    const sum = x.map((value, n) => value + y[n]), line = (name, numbers, kind = "") => ({"data-vector": name, class: kind, row: [name, ...numbers]});
    const normal = (list) => list.map((value, n) => ((value - mean[i]) / deviation[i]) * (gain?.[n] ?? 1) + (bias?.[n] ?? 0));
    const known = mean !== undefined, before = residual === "pre_norm";
    const rows = [line("x", x)];
    if (before && known) rows.push(line("norm(x)", normal(x)));
    rows.push(line("y = f(…)", y));
    if (residual !== "none") rows.push(line("s = x + y", sum, before ? "on" : ""));
    if (!before) rows.push(line("norm(s)", known ? normal(residual === "none" ? y : sum) : out, "on"));
    const about = known ? fill(t.w7n, {m: digits(mean[i]), d: digits(deviation[i])}) : "";
    return [el("h3", {}, `${number} · ${t.w7}`), para(`${before ? t.w7b : t.w7a} ${about}`),
      this.formula(layer, "residual", RESIDUALS[residual] ?? residual),
      norm.kind !== "none" && this.formula(layer, "norm", NORMS[norm.kind] ?? norm.kind),
      this.table(fill(t.first, {w: quoted(this.place.queries[i]), n: x.length, d: Object.values(this.data.walk.sides)[0].size}),
        ["", ...x.map((_, n) => String(n + 1))], rows)];
  }

  feedForward(i, layer, {feed_forward: {gated, activation, size, above, inner}, vectors}) {
    const t = this.words, name = activation === "ReLU" ? "max(0, xW₁ + b₁)" : `${activation}(xW₁ + b₁)`;
    const first = [...row(inner, 0, i)], rows = [{"data-inner": "inner", row: [t.inner, ...first]},
      {"data-inner": "y", class: "on", row: ["y", ...row(vectors, 1, i)]}];
    return [el("h3", {}, `8 · ${t.w8}`), para(fill(t.w8a, {n: size, a: above[i]})),
      this.formula(layer, "feed_forward", gated ? `(${activation}(xW₁) ⊙ xW₃) W₂ + b₂` : `${name} W₂ + b₂`),
      this.table(t.w8, ["", ...first.map((_, n) => String(n + 1))], rows)];
  }

  /* The likeliest words at this place, at a temperature, among the k best. */
  scores(i, layer, number) {
    const t = this.words, {scores} = this.data.walk, {place, at} = this;
    const top = this.data.places.some(({name}) => name === "cross") ? "cross" : "decoder";
    if (!scores || place.name !== top || at.layer < place.layers - 1) return [];
    const most = scores.ids[i].length, {temperature, k} = (this.sampling ??= {temperature: 1, k: most + 1});
    const logits = [...row(scores.logits, 0, i)], counts = scores.counts ?? [], rest = scores.rest ? row(scores.rest, 0, i) : [];
    const raised = logits.map((s, n) => (n < k ? Math.exp((s - logits[0]) / temperature) : 0));
    const others = k > most ? total(counts.map((count, n) => count * Math.exp((rest[n] - logits[0]) / temperature))) : 0;
    const sum = total(raised) + others, chosen = quoted((this.data.places.find(({says}) => says)?.says ?? place.queries)[i]);
    const rows = logits.slice(0, WORDS_SHOWN).map((s, n) => ({"data-word": n, class: n < k ? "" : "hidden",
      row: [word(scores.words[scores.ids[i][n]]), s, raised[n] / sum]}));
    const slide = (name, min, max, step, value, shown) => el("label", {class: "slide"}, t[name], el("input",
      {type: "range", "data-slide": name, min, max, step, value, oninput: (event) => this.sample(name, Number(event.target.value))}), el("output", {}, shown));
    return [el("h3", {}, `${number} · ${t.w10}`), para(fill(t.w10a, {v: scores.vocabulary, w: chosen})),
      this.formula(layer, "scores", "s = E·x,  p = softmax(s / T)"),
      el("div", {class: "sliders"}, slide("temperature", 0.1, 3, 0.1, temperature, temperature.toFixed(1)),
        slide("k", 1, most + 1, 1, k, k > most ? t.all : String(k))),
      this.table(t.w10, ["", t.score, t.probability], rows, [t.others, "", Math.max(0, 1 - total(rows.map(({row: [, , p]}) => p)))])];
  }

  sample(name, value) {
    this.sampling[name] = value;
    this.show();
  }
}
