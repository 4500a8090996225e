/* The walk: one query through one head, in numbers that the page computes from the data. */
const CLAIMS = {w2: "C6 C7 C14", w3: "C11", w4: "C4 C5 C23", w6: "C10 C21 C24", w7: "C12 C13", w8: "C9"}; // of the lab, by step

/* From each heading to the next: the steps, side by side where there is room for two; each with the claims that it shows. */
function blocks(t, ...nodes) {
  const steps = [];
  for (const node of nodes.flat(Infinity).filter(Boolean)) node.nodeName === "H3" ? steps.push([node]) : steps.at(-1).push(node);
  const claims = ([head]) => CLAIMS[Object.keys(CLAIMS).find((step) => head.textContent.endsWith(` · ${t[step]}`))];
  return steps.map((step) => el("section", {}, step, claims(step) && para(fill(t.claims, {c: claims(step)}), "soft")));
}

class Walk extends Patches {
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
    const made = el("div", {class: "steps"}, blocks(t, el("h3", {}, `1 · ${t.w1}`), para(t.w1a), el("div", {class: "chips"}, place.queries.map(chip)),
      place.name !== "encoder" && para(fill(t.w1b, this.around(i)), "soft"),
      this.entering(i, layer), this.vectors(layer, found, j), this.weighing(i, layer, found, hidden, j),
      this.summing(layer, found, j), this.after(i, layer, found)));
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
      this.formula(layer, "embedding", `x = ${added.map((part) => t[part]).join(" + ")}`),
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
      layer.projected && this.formula(layer, "projection", "q = xWᵠ + bᵠ, k = xWᵏ + bᵏ, v = xWᵛ + bᵛ"),
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
      this.formula(layer, "score", `s = ${score.formula}`), this.formula(layer, "normalise", `w = ${formula}`),
      this.table(quoted(this.place.queries[i]), ["", ...columns.map(([, name]) => name)], rows,
        [t.sum, ...columns.map(([, , , sum]) => sum ?? "")])];
  }

  summing(layer, found, j) {
    const t = this.words, d = found.sum.length;
    const n = Math.min(d, SHOWN), first = (list) => [...list.slice(0, n)];
    const names = first(found.sum).map((_, c) => `w·v ${c + 1}`);
    const rows = this.place.keys.map((text, key) => ({"data-value": key, class: key === j ? "on" : "",
      row: [word(text), found.final[key], ...first(found.values[key]).map((v) => found.final[key] * v)]}));
    if (found.mixed) rows.push({"data-value": "mixed", class: "", row: [t.mixed, "", ...first(found.mixed)]});
    return [el("h3", {}, `5 · ${t.w5}`), para(fill(t.w5a, {n, d})),
      this.formula(layer, "attention", found.mixed ? "z = Σ wⱼ vⱼ + Σ wⱼ aⱼ" : "z = Σ wⱼ vⱼ"),
      this.table(t.w5, ["", t.weight, ...names], rows, [t.sum, "", ...first(found.sum)])];
  }
}
