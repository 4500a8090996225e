/* The view as a file: the page that `regard look` writes, with these data, opened where this view is. */
const UNSAFE = /[<>&\u2028\u2029]/g; // in JSON inside a page: as their numbers
const JSON_IN_PAGE = /(<script type="application\/json" id="data">)[^<]*(<\/script>)/;

const savable = (options) => Boolean(options.shell || (!options.compact && document.getElementById("data")));

/* The page without data: of a written page its own; another has its address in `options.shell`. */
async function shell({shell: address}) {
  if (address) return (await fetch(address)).text();
  const page = document.documentElement.cloneNode(true);
  page.querySelector("#look").replaceChildren();
  page.querySelector("#data").textContent = "{}";
  return `<!doctype html>\n${page.outerHTML}\n`;
}

async function save(view, data, options) {
  const {at, theme, language, step} = view, start = {...at, theme, language, step};
  const text = JSON.stringify({...data, start}).replace(UNSAFE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const page = (await shell(options)).replace(JSON_IN_PAGE, (_, before, after) => before + text + after);
  const link = el("a", {download: "look.html", href: URL.createObjectURL(new Blob([page], {type: "text/html"}))});
  link.click();
  URL.revokeObjectURL(link.href);
}
