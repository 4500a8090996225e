/* Patches: how much of the first text's answer comes back when an output for it is put into the run on the second; the
stronger the colour, the more. Data of `look/patching.py`; only where they were asked for. */
class Patches extends Lens {
  patch() {
    const t = this.words, {texts, at, answer, other, first, second, unmatched, patches} = this.data.patch;
    const alone = [...new Set(Object.values(unmatched).flat())];
    const share = (n) => `${(100 * n).toFixed(1)}%`;
    this.source = null;
    this.readout.textContent = t.patchHint;
    this.view.replaceChildren(...[
      para(fill(t.patchSaid, {t: texts[0], w: quoted(at), a: quoted(answer), p: share(first)})),
      para(fill(t.patchOther, {t: texts[1], a: quoted(answer), o: quoted(other), p: share(second)})),
      ...[...new Set(patches.map(({patch}) => this.kind(patch)))].sort().map((kind) =>
        this.patched(kind, patches.filter(({patch}) => this.kind(patch) === kind))),
      alone.length && para(fill(t.patchAlone, {w: alone.map(quoted).join(" ")}), "soft"), para(t.patchNote, "soft")].filter(Boolean));
  }

  /* `encoder.1.3` is a head of the encoder, `encoder.1` a layer, `encoder.1@4` a layer at a token; the rest stand by themselves. */
  kind(patch) {
    const [, role, head, token] = /^(\w+)\.\d+(?:\.(\d+))?(?:@(\d+))?$/.exec(patch) ?? [];
    return !role || (head && token) ? "" : `${role} ${head ? "Head" : token ? "Token" : "Layer"}`;
  }

  /* Those of a kind: a row for each layer, a column for each head or token. */
  patched(kind, rows) {
    const t = this.words, [role, what] = kind.split(" "), names = this.data.places.find(({name}) => name === role)?.queries ?? [];
    const split = ({patch}) => (kind ? patch.split(/[.@]/).slice(1).map(Number) : [patch, 0]);
    const every = (k) => [...new Set(rows.map((row) => split(row)[k] ?? 0))].sort((a, b) => a - b);
    const column = (n) => (what === "Token" ? word(names[n - 1] ?? `${n}`) : n ? fill(t.headN, {n}) : "");
    const head = el("tr", {}, el("td"), every(1).map((n) => el("th", {scope: "col", dir: "auto"}, column(n))));
    const body = every(0).map((layer) => el("tr", {}, el("th", {scope: "row"}, kind ? fill(t.layerN, {n: layer}) : layer),
      every(1).map((n) => this.recovered(rows.find((row) => split(row)[0] === layer && (split(row)[1] ?? 0) === n)))));
    return el("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": kind || t.patch},
      el("table", {class: "lens"}, el("caption", {}, kind && `${t[role] ?? role} · ${t[`patch${what}`]}`), el("thead", {}, head), el("tbody", {}, body)));
  }

  recovered(row) {
    if (!row) return el("td");
    const share = row.recovered === null ? "" : `${Math.round(100 * row.recovered)}%`;
    const tell = () => {
      this.readout.textContent = fill(this.words.patchTold, {n: row.patch, r: share || "–", p: row.probability.toFixed(4), a: quoted(row.says)});
    };
    const cell = el("td", {}, el("button", {type: "button", onmouseenter: tell, onclick: tell, onfocus: tell, title: row.patch}, share || "–"));
    cell.firstChild.style.setProperty("--w", Math.max(0, Math.min(1, row.recovered ?? 0)).toFixed(3));
    return cell;
  }
}
