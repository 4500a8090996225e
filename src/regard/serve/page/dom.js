/* Elements, with text always as text, and messages in the reader's language. Knows no model and no server. */

import { MESSAGES } from "./messages.js";

const localized = new WeakMap(); // element → {where: [key, arguments]}, to render it again in another language
let language = [stored("localStorage", "regard.language"), navigator.language.slice(0, 2)].find((one) => one in MESSAGES) ?? "en";

/** A stored value, or with a third argument: store it. A browser may forbid both. */
export function stored(store, key, ...value) {
  try {
    return value.length ? window[store].setItem(key, value[0]) : window[store].getItem(key);
  } catch {
    return null;
  }
}

export const knows = (key) => Object.hasOwn(MESSAGES[language], key);

/** A message of messages.js; a key that is not there, such as a message of the server, stays as it is. */
const t = (key, args = {}) =>
  knows(key) ? MESSAGES[language][key].replace(/\{(\w+)\}/g, (_, name) => args[name] ?? "") : key;

/** Give an element a message, as its text or as an attribute; it follows the language from then on. */
export function localize(element, key, args = {}, where = "text") {
  const all = localized.get(element) ?? {};
  localized.set(element, { ...all, [where]: [key, args] });
  element.toggleAttribute("data-localized", true);
  render(element);
  return element;
}

function render(element) {
  for (const [where, [key, args]] of Object.entries(localized.get(element) ?? {})) {
    if (where === "text") element.textContent = key ? t(key, args) : "";
    else element.setAttribute(where, t(key, args));
  }
}

export function setLanguage(name) {
  language = name;
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  document.querySelectorAll("[data-localized]").forEach(render);
}

export const currentLanguage = () => language;

const LOCALIZED_PROPS = { t: "text", name: "aria-label", hint: "placeholder", tip: "title" };

/** An element: h("button", {t: "copy", class: "quiet", onclick: …}, child, "text"). */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key in LOCALIZED_PROPS) localize(element, value, {}, LOCALIZED_PROPS[key]);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-")) element.setAttribute(key, value);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

/** A button, and one without a border. */
export const button = (key, onclick, props = {}) => h("button", { type: "button", t: key, onclick, ...props });
export const quiet = (key, onclick, props = {}) => button(key, onclick, { class: "quiet", ...props });

let lastId = 0;

/** An id that no other element has. */
export const unique = () => `own-${++lastId}`;

/** A labelled field: [wrapper, input]. The label is seen unless `bare`. */
export function field(tag, key, { bare, ...props } = {}) {
  const id = unique();
  const input = h(tag, { id, autocomplete: "off", dir: "auto", ...props });
  if (tag === "textarea") input.addEventListener("input", () => autosize(input));
  return [h("div", { class: "field" }, h("label", { for: id, t: key, class: bare ? "hidden" : undefined }), input), input];
}

/** As high as its text, in browsers that do not know field-sizing. */
export function autosize(area) {
  if (CSS.supports("field-sizing", "content")) return;
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

/** A line for errors: [element, (key, arguments)]. */
export function errorLine() {
  const note = h("p", { class: "note", role: "alert" });
  return [note, (key, args) => localize(note, key, args)];
}

/** Labels with their probabilities, best first; `pick` makes them buttons. */
export function bars(list, { pick, best } = {}) {
  return h("ul", { class: "bars" }, ...list.map(([label, share], n) => {
    const bar = h("span", { class: "share", "aria-hidden": "true" });
    bar.style.setProperty("--share", share);
    const row = [h("span", { class: "label", dir: "auto" }, label), bar, h("span", { class: "number" }, percent(share))];
    const inner = pick ? h("button", { type: "button", onclick: () => pick(label) }, ...row) : h("div", {}, ...row);
    return h("li", { class: n === best ? "best" : undefined }, inner);
  }));
}

export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%`;

export async function copy(text, pressed, key = "copy") {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard without https, but the older way is there
    const area = h("textarea", { class: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    pressed.focus();
  }
  localize(pressed, "copied");
  setTimeout(() => localize(pressed, key), 1500);
}
