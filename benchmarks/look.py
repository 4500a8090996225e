"""How quickly the page of `regard look` answers: 60 × 60 tokens, 6 layers, 8 heads, in Chromium.

python benchmarks/look.py [--tokens 60] [--chromium /usr/bin/chromium] [--json FILE]

Each interaction is timed inside the page, from the event to the frame that shows it, many times; beside it stands how
long the page's own thread was busy with one, which does not depend on what else the machine does. A model of the size
`base` that nobody has trained has as many numbers as one that was.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
from common import arguments, write_json

from regard import recipe as recipes
from regard.look import look
from regard.look.html import page as whole_page

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
             "--disable-component-update"]  # fmt: skip
COUNT = 40
TIMED = """async ([count, events]) => {
  const work = [], frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let n = 0; n < count; n++) {
    const [kind, selector, value] = events[n % events.length];
    const target = selector ? document.querySelector(selector) : document;
    await frame();
    const box = target.getBoundingClientRect?.();
    const begun = performance.now();
    if (kind === "key") target.dispatchEvent(new KeyboardEvent("keydown", {key: value, bubbles: true}));
    else {
      const clientX = box.left + (n * 37) % box.width, clientY = box.top + (n * 53) % box.height;
      target.dispatchEvent(new MouseEvent(kind, {bubbles: kind !== "mouseenter", clientX, clientY}));
    }
    await frame();
    await new Promise((done) => setTimeout(done)); // after the frame is painted
    work.push(performance.now() - begun);
  }
  return work;
}"""


def parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    return parser


def main() -> None:
    given = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), given.tokens)
        size, rows = path.stat().st_size, measure(path, given.chromium)
    write_json(given.json, {"page_bytes": size, "interactions": rows})


def write(folder: Path, tokens: int) -> Path:
    words = [f"w{n}" for n in range(50)]
    for side in ("en", "de"):
        (folder / f"text.{side}").write_text((" ".join(words) + "\n") * 5, encoding="utf-8")
    pair = [str(folder / f"text.{side}") for side in ("en", "de")]
    keys = {"data": {"train": pair, "cache": str(folder)}, "text": "word", "model": {"preset": "base"}}
    recipe = recipes.load_recipe(keys)
    task = recipe.task.prepare(recipe, None, lambda *told: None)
    task.save(folder / "made")
    torch.manual_seed(1)
    made = recipe.task.load_predictor(recipe, folder / "made")
    text = " ".join(random.Random(1).choices(words, k=tokens - 1))
    begun = time.perf_counter()
    data = look(made, text, text)
    print(f"look: {time.perf_counter() - begun:.2f} s for {[p['weights']['shape'] for p in data['places']]}")
    path = folder / "look.html"
    path.write_text(whole_page(data, "en"), encoding="utf-8")
    print(f"page: {path.stat().st_size / 1e6:.2f} MB, of which script and style {sizes()} kB")
    return path


def sizes() -> str:
    from regard.look.html import script, style

    return f"{len(script()) / 1e3:.1f} + {len(style()) / 1e3:.1f}"


def measure(path: Path, chromium: str) -> dict[str, dict[str, float]]:
    from playwright.sync_api import sync_playwright

    key = lambda name: ("key", "", name)  # noqa: E731
    actions = {
        "lines: point at words": (
            "l",
            [("mouseenter", f".lines ol li:nth-child({n}) button", "") for n in range(1, 40)],
        ),
        "lines: next head": ("l", [key("ArrowRight")]),
        "map: point at cells": ("m", [("mousemove", ".cells", "")]),
        "map: next head": ("m", [key("ArrowRight")]),
        "heads: shown": ("h", [key("m"), key("h")]),
        "heads: next head": ("h", [key("ArrowRight")]),
        "rollout: next layer": ("r", [key("ArrowUp")]),
        "walk: next head": ("w", [key("ArrowRight")]),
        "walk: next layer": ("w", [key("ArrowUp")]),
        "walk: next word": ("w", [key("j")]),
        "all views in turn": ("l", [key(name) for name in "mhrwl"]),
        "light and dark": ("m", [key("t")]),
    }
    rows = {}
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            """Milliseconds of the page's thread so far."""
            found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
            return 1000 * float(found["TaskDuration"])

        begun = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_selector(".lines")
        print(f"opened in {1000 * (time.perf_counter() - begun):.0f} ms; milliseconds for one interaction:")
        for name, (first, events) in actions.items():
            page.keyboard.press(first)
            before = busy()
            times = page.evaluate(TIMED, [COUNT, events])
            own, slow = (busy() - before) / COUNT, sorted(times)[int(0.95 * COUNT)]
            rows[name] = {"busy_ms": own, "median_ms": statistics.median(times), "p95_ms": slow}
            print(f"  {name:24} busy {own:5.1f}   median {rows[name]['median_ms']:6.1f}   p95 {slow:6.1f}")
        browser.close()
    return rows


if __name__ == "__main__":
    main()
