"""One page that holds everything: the data, the script and the style. It asks for nothing over a network."""

import base64
import hashlib
import json
from html import escape
from importlib.resources import files

from regard.reporting import Json

PAGE = files("regard.look") / "page"
# of the script, in this order
PARTS = ("words", "numbers", "views", "lens", "patch", "walk", "after", "route", "save", "pair", "look")
LANGUAGES = ("", "en", "zh")  # none: the browser's own
START = """
const data = JSON.parse(document.getElementById("data").textContent);
regardLook(document.getElementById("look"), data, {language: document.documentElement.dataset.language});
"""


def script() -> str:
    """What defines `regardLook`, and no other name."""
    parts = "\n".join((PAGE / f"{name}.js").read_text(encoding="utf-8") for name in PARTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def style() -> str:
    return (PAGE / "look.css").read_text(encoding="utf-8")


def page(data: Json, language: str = "") -> str:
    """The whole file; without data, what a view is saved in.

    Nothing in it runs or styles but what is named by its hash: text stays text.
    """
    code, css = script() + START, style() + "body { margin: 0; }"
    policy = (
        f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(css)}; base-uri 'none'; form-action 'none'"
    )
    title = escape(" · ".join(filter(None, [data.get("text", "")[:60], "regard look"])))
    return (
        f'<!doctype html>\n<html lang="{language or "en"}" data-language="{language}">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f'<style>{css}</style>\n<body><main id="look"></main>\n'
        f'<script type="application/json" id="data">{inline(data)}</script>\n<script>{code}</script>\n</body></html>\n'
    )


def inline(data: object) -> str:
    """JSON that may stand inside an HTML page: no tag, no comment and no line end of another kind can appear in it."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
