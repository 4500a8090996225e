/* The page at `/`: which tabs there are, which model each asks, the language, and what happens when the server is away. */

import { requestJson, showError, hooks } from "./api.js";
import { button, h, quiet, stored, localize, setLanguage, currentLanguage, knows, unique } from "./dom.js";
import { answer, choose, classify, fill, tag } from "./forms.js";
import { chat, story } from "./chat.js";
import { offerTour, startTour } from "./tour.js";
import { translate } from "./translate.js";

const TABS = { // name: [what a model must be able to do, what builds the panel]
  translate: ["translate", translate], chat: ["chat", chat], story: ["generate", story], fill: ["fill", fill],
  classify: ["classify", classify], tag: ["tag", tag], answer: ["answer", answer], choose: ["choose", choose],
};
const main = document.getElementById("main");
const tablist = document.getElementById("tabs");
const notice = document.getElementById("notice");
const switcher = document.getElementById("language");
const tabs = new Map(); // name → {tab, panel, models, refresh}
let current = null;

// --- notices and the API key --------------------------------------------------------------------------------------

hooks.notice = (key, args) => localize(notice, key, args);

let reconnecting = false;
hooks.offline = async () => {
  if (reconnecting) return;
  reconnecting = true;
  localize(notice, "away");
  for (let seconds = 1, back = false; !back; seconds = Math.min(2 * seconds, 10)) {
    await new Promise((done) => setTimeout(done, 1000 * seconds));
    back = await fetch("v1/models").then((response) => response.status < 500, () => false);
  }
  reconnecting = false;
  localize(notice, "");
  if (!tabs.size) begin();
  for (const { refresh } of tabs.values()) refresh?.();
};

let keyDialog = null; // several requests may be refused at once; one dialog serves all
hooks.requestKey = (wrong) => (keyDialog ??= new Promise((done) => {
  const input = h("input", { type: "password", id: "key", autocomplete: "off", required: true });
  const dialog = h("dialog", { class: "small", "aria-labelledby": "key-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "key-title", t: wrong ? "key.wrong" : "key.title" }), h("label", { for: "key", t: "key.label" }), input,
      h("p", { class: "faint", t: "key.why" }), h("button", { t: "key.send", class: "primary" })));
  dialog.addEventListener("close", () => { dialog.remove(); keyDialog = null; done(input.value.trim()); });
  document.body.append(dialog);
  dialog.showModal();
}));

// --- tabs ---------------------------------------------------------------------------------------------------------

function show(name, focus = false) {
  current = name;
  for (const [other, { tab, panel }] of tabs) {
    tab.setAttribute("aria-selected", other === name);
    tab.tabIndex = other === name ? 0 : -1;
    panel.hidden = other !== name;
  }
  const chosen = tabs.get(name);
  if (!chosen.refresh) chosen.refresh = TABS[name][1](chosen.panel, chosen.models) ?? (() => {});
  if (focus) chosen.tab.focus();
  chosen.tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
}

tablist.addEventListener("keydown", (event) => {
  const names = [...tabs.keys()], at = names.indexOf(current);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + names.length, Home: 0, End: names.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  show(names[to % names.length], true);
});
addEventListener("hashchange", () => tabs.has(location.hash.slice(1)) && show(location.hash.slice(1)));

/** The models of a panel: which is chosen, what it can do, and what to do when another is chosen. */
function modelPicker(models, can) {
  const id = unique(), select = h("select", { id }, ...models.map((model) => withTitle(h("option", { value: model.name }), model)));
  const only = withTitle(h("span", { class: "faint", dir: "auto" }), models[0]);
  const shown = models.length > 1 ? h("div", { class: "picker" }, h("label", { for: id, t: "model" }), select) : only;
  const chosen = () => models.find(({ name }) => name === select.value) ?? models[0];
  return {
    shown, name: () => chosen().name, can: (what) => chosen().can.includes(what), languages: () => chosen().languages ?? [],
    examples: (usual) => (chosen().can[0] === can && chosen().examples?.length ? chosen().examples : usual),
    changed: (act) => select.addEventListener("change", act),
  };
}

/** The name of a model and what it is: its task in the language of the page, or the title of its card as it is. */
function withTitle(element, { name, kind, title }) {
  if (title?.split(" ")[0] === kind && knows(`kind.${kind}`)) localize(element, `kind.${kind}`, { name, rest: title.slice(kind.length) });
  else element.textContent = title ? `${name} · ${title}` : name;
  return element;
}

// --- the beginning ------------------------------------------------------------------------------------------------

function switchLanguage(language) {
  setLanguage(language);
  switcher.lang = language === "zh" ? "en" : "zh-CN"; // it names the other one
}
switcher.addEventListener("click", () => {
  switchLanguage(currentLanguage() === "zh" ? "en" : "zh");
  stored("localStorage", "regard.language", currentLanguage());
});

async function start() {
  const { models } = await requestJson("v1/models");
  for (const [name, [can]] of Object.entries(TABS)) {
    const fitting = models.filter((model) => model.can.includes(can));
    if (!fitting.length) continue;
    const tab = button(name, () => show(name), { role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}` });
    const panel = h("section", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` });
    tabs.set(name, { tab, panel, models: modelPicker(fitting, can) });
    tablist.append(tab);
    main.append(panel);
  }
  if (!tabs.size) return main.replaceChildren(h("p", { class: "empty", t: "nothing" }));
  tablist.hidden = tabs.size < 2;
  const hash = location.hash.slice(1);
  show(tabs.has(hash) ? hash : tabs.keys().next().value);
  offerTour(document.getElementById("tour"), tabs.size);
}

const begin = () => start().catch((error) => showError(error, hooks.notice));

localize(switcher, "other");
localize(tablist, "tabs", {}, "aria-label");
document.getElementById("footer").append(h("span", { t: "about" }), h("span", { class: "row" },
  quiet("tour.again", () => startTour(document.getElementById("tour"), tabs.size)), h("a", { href: "docs", t: "api" })));
switchLanguage(currentLanguage());
begin();
