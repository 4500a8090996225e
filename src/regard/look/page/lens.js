/* The logit lens: what the model would say at each place after every sub-layer; the stronger the colour, the more
probable. Data of `look/lens.py`; only where they were asked for. */
class Lens extends Views {
  lens() {
    const t = this.words, {rows, stages} = this.data.lens;
    this.source = null;
    this.readout.textContent = fill(t.lensHint, {p: this.touch ? t.tap : t.point});
    const short = {embedding: t.lensStart, attention: t.lensAttention, cross: t.cross, feed_forward: t.lensInner, layer: ""};
    const layers = stages.map(({layer}, n) => ({layer, first: layer !== stages[n - 1]?.layer}));
    const top = layers.filter(({first}) => first).map(({layer}) =>
      el("th", {scope: "colgroup", colspan: layers.filter((each) => each.layer === layer).length}, layer ? fill(t.layerN, {n: layer}) : ""));
    const names = stages.map(({after}) => el("th", {scope: "col"}, short[after] ?? after));
    const body = rows.map((row) => el("tr", {}, el("th", {scope: "row", dir: "auto"}, word(row.at)),
      row.stages.map((stage, n) => this.said(row, stage, n))));
    this.view.replaceChildren(
      el("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": t.lens},
        el("table", {class: "lens"}, el("thead", {}, el("tr", {}, el("td"), top), el("tr", {}, el("td"), names)), el("tbody", {}, body))),
      para(t.lensNote, "soft"));
  }

  /* One stage of a place: its likeliest token; where it is the last answer from here on, that is marked. */
  said(row, {words, probabilities, probability}, n) {
    const t = this.words, list = words.map((text, k) => `${quoted(text)} ${probabilities[k].toFixed(2)}`).join(", ");
    const tell = () => { this.readout.textContent = `${quoted(row.at)}: ${list}. ${quoted(row.says)} ${probability.toFixed(4)}`; };
    const cell = el("td", {class: n >= row.settled && "settled"},
      el("button", {type: "button", dir: "auto", onmouseenter: tell, onclick: tell, onfocus: tell, title: `${t.probability} ${probabilities[0].toFixed(2)}`}, word(words[0])));
    cell.firstChild.style.setProperty("--w", probabilities[0].toFixed(3));
    return cell;
  }
}
