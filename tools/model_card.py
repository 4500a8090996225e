"""Writes the card of a model: README.md in its folder, of results.json, its outputs as they come, and a few words.

    python tools/model_card.py models/en-de

The words that a person writes are tools/cards/NAME.yaml: title, data and terms, texts that come out well and badly,
limits.
"""

import argparse
import gzip
import json
import os
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

import regard
from regard.cli.evaluate import NAMES
from regard.data.catalog import resolve_set, set_files
from regard.io.manifest import file_sha256
from regard.io.run_folder import RESULTS, WEIGHTS
from regard.predict.chat import ChatPredictor
from regard.predict.classification import TextClassifier
from regard.predict.filling import MaskFiller
from regard.predict.generation import TextGenerator
from regard.predict.translation import Translator

CARDS = Path(__file__).parent / "cards"
WRITTEN = 100  # tokens of a sample of a text that goes on
SLICE = 60  # lines of the validation set that a test measures again
EXAMPLE_TOKENS = 12  # of one that a test compares


def greedy_output(predictor: Any, text: str) -> str:
    """What a model says to a text, always the same: what the head of the card has, and a test compares."""
    if isinstance(predictor, ChatPredictor):
        return predictor.reply([text], greedy=True)
    if isinstance(predictor, TextGenerator):
        return predictor.generate(text, greedy=True, max_tokens=EXAMPLE_TOKENS)[0].text
    return shown_output(predictor, text)


def shown_output(predictor: Any, text: str, seed: int = 1) -> str:
    """What it says as people use it."""
    if isinstance(predictor, Translator):
        return predictor.translate([text])[0]
    if isinstance(predictor, ChatPredictor):
        return predictor.reply([text], seed=seed)
    if isinstance(predictor, TextGenerator):
        return predictor.generate(text, max_tokens=WRITTEN, seed=seed)[0].text
    if isinstance(predictor, MaskFiller):
        return "; ".join(", ".join(guess.word for guess in gap[:3]) for gap in predictor.fill([text])[0])
    if isinstance(predictor, TextClassifier):
        return predictor.classify([text])[0].label
    raise SystemExit(f"{type(predictor).__name__}: a card cannot show what it does")


def card_text(folder: Path, words: dict[str, Any], predictor: Any) -> str:
    """The whole README.md."""
    results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    name, head = folder.name, {key: words[key] for key in ("title", "command", "terms", "noncommercial", "examples")}
    head["output"] = greedy_output(predictor, words["examples"][0])
    head |= {"base": words["over"]} if words.get("over") else {}
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "README.md")
    parts = [
        f"---\n{yaml.safe_dump(head, allow_unicode=True, sort_keys=False, width=1000)}---",
        f"# {name}: {words['title'][0].lower()}{words['title'][1:]}",
        words["what"],
        _how_to_use(words["command"], name, words["examples"][0]),
        _how_it_was_made(name, results),
        "## Data and terms\n\n" + _list(words["data"]) + f"\n\nTerms of use of the model: {words['terms']}.",
        _figures(results),
        _examples(predictor, words),
        "## Limits\n\n" + _list(words["limits"]),
        f"## Files\n\n{size / 1e6:.2f} MB in all; weights in 8 bits, a scale for each row.\n"
        f"sha256 of `{WEIGHTS}`: `{file_sha256(folder / WEIGHTS)}`.",
    ]
    return "\n\n".join(parts) + "\n"


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _how_to_use(command: str, name: str, text: str) -> str:
    usage = {"generate": f'regard generate {name} "{text}"', "chat": f"regard chat {name}"}
    line = usage.get(command, f'echo "{text}" | regard {command} {name}')
    return f"```bash\n{line}\n```"


def _how_it_was_made(name: str, results: dict[str, Any]) -> str:
    facts = (
        f"{results['parameters']:,} parameters, {results['steps']:,} steps in {results['seconds']:,.0f} s of training "
        f"on {results['device']}, seed {results['seed']}, commit {results['commit']}, regard {results['regard']}."
    )
    recipe = f"[recipes/{name}.yaml](../../recipes/{name}.yaml)"
    return f"## How it was made\n\nRecipe: {recipe}. {facts}\n\n```bash\n{results['command']}\n```"


def _figures(results: dict[str, Any]) -> str:
    """A table of what was measured on text that was held out, as trained and as shipped."""
    shipped, trained = results["valid"]["metrics"], results["float32"]
    both = {NAMES.get(key, key): (trained[key], entry) for key, entry in shipped.items() if key in trained}
    rows = [f"| {name} | {before['value']:.4g} | {after['value']:.4g} |" for name, (before, after) in both.items()]
    signatures = [f"{name}: `{after['signature']}`" for name, (_, after) in both.items() if "signature" in after]
    table = "| | as trained, float32 | as shipped, 8 bits |\n|---|---:|---:|\n" + "\n".join(rows)
    on = ", ".join(results["valid"]["data"])
    return f"## Figures\n\nOn {on}, which training did not see:\n\n{table}" + (
        "\n\n" + _list(signatures) if signatures else ""
    )


def _examples(predictor: Any, words: dict[str, Any]) -> str:
    """Outputs as they came, uncut, of texts that were chosen to turn out well and badly."""
    parts = ["## Examples, as they came"]
    for title, key in (("Texts of its kind", "good"), ("Texts that are not", "bad")):
        lines = []
        for text in words[key]:
            for seed in range(1, 1 + words.get("samples", 1)):
                output = shown_output(predictor, text, seed).strip().replace("\n", "\n  ")
                lines.append(f"{text}\n  → {output}")
        parts.append(f"{title}:\n\n```text\n" + "\n".join(lines) + "\n```")
    return "\n\n".join(parts)


def slice_metrics(folder: Path, lines: int = SLICE) -> dict[str, float]:
    """What a model reaches on the first lines of what its card's figures were measured on: seconds, not minutes.

    Reads the sets that REGARD_DATA has, cut short in a folder of their own.
    """
    predictor, usual = regard.load(folder, "cpu"), os.environ.get("REGARD_DATA")
    with tempfile.TemporaryDirectory() as place:
        for corpus in predictor.recipe.data.valid:
            entry, _ = resolve_set(str(corpus.set))
            for path in set_files(str(corpus.set)):
                cut = Path(place) / entry.name / path.name.removesuffix(".gz")
                cut.parent.mkdir(parents=True, exist_ok=True)
                with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
                    cut.write_bytes(b"".join(islice(file, lines)))
        os.environ["REGARD_DATA"] = place
        try:
            report = predictor.recipe.task.evaluate(predictor, "valid", {}, lambda what, done, of: None)
        finally:
            os.environ.pop("REGARD_DATA") if usual is None else os.environ.update(REGARD_DATA=usual)
    return {name: entry["value"] for name, entry in report["metrics"].items()}


def write_card(folder: Path, words: Path | None = None) -> Path:
    own = yaml.safe_load((words or CARDS / f"{folder.name}.yaml").read_text(encoding="utf-8"))
    card = folder / "README.md"
    card.write_text(card_text(folder, own, regard.load(folder, "cpu")), encoding="utf-8")
    return card


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--words", type=Path, help="what a person writes; default: tools/cards/NAME.yaml")
    given = parser.parse_args()
    print(write_card(given.folder, given.words))


if __name__ == "__main__":
    main()
