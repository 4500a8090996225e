"""Makes a model that commands know by name: trains its recipe, measures, stores in 8 bits, measures, writes its card.

    python tools/make_model.py en-de
    python tools/make_model.py sst2                    # begins with models/bert
    python tools/make_model.py en-de --teacher runs/tatoeba-en-de    # learns from its translations, too
    python tools/make_model.py en-de --out /tmp/en-de training.steps=20    # to try it

A training that was stopped goes on. Exits with 1 where the model is larger than its card allows, or storing it in 8
bits costs more than 0.1 BLEU or 0.5% of perplexity; the folder is written all the same, so that it can be looked at.
"""

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import regard
from regard import recipe as recipes
from regard.api import load_as
from regard.distil.translations import TranslationChoices, read_sources, translate_in_chunks, write_filtered
from regard.interop.families import export_run
from regard.interop.model_folder import Storage
from regard.io.files import json_safe
from regard.io.manifest import write_manifest
from regard.io.run_folder import RESULTS
from regard.predict.translation import Translator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # it is run as a file, too
from tools.model_card import CARDS, slice_metrics, write_card

ROOT = Path(__file__).resolve().parent.parent

COST = {"bleu": (0.1, False), "perplexity": (0.005, True), "word_perplexity": (0.005, True)}  # (most, is a share of it)
RANK = 8
KEPT = ("parameters", "weights", "steps", "epochs", "seconds", "seed", "commit", "device", "regard", "torch")


def make_model(
    name: str, out: Path, run: Path, overrides: list[str], device: str, teacher: Path | None = None,
    commit: str | None = None,
) -> list[str]:  # fmt: skip
    """Writes the folder `out`; returns sentences about what is not as it should be."""
    words = _read_words(name)
    base = out.parent / words["over"] if words.get("over") else None
    if base is not None and not base.is_dir():
        raise SystemExit(f"{base}: make this model first: python tools/make_model.py {base.name} --out {base}")
    if out.exists() and any(out.iterdir()):
        raise SystemExit(f"{out} is there already; remove it to make it anew (the training in {run} is kept)")
    own = [*overrides, *([f"training.init={base}"] if base else [])]
    if teacher is not None:
        own.append(_with_translations(name, teacher, run.with_name(f"{run.name}-distilled.tsv"), device))
    trained = regard.train(name, out=run, overrides=own, device=device)
    if not trained.finished:
        raise SystemExit(f"{run}: stopped; the same command goes on")
    print(export_run("safetensors", run, out, "", Storage(8, base, RANK)))
    shipped = _evaluate(out, device)
    taught = ["--teacher", str(teacher)] if teacher else []
    results = (
        {key: trained.results[key] for key in KEPT}
        | ({"commit": commit} if commit else {})
        | {
            "command": shlex.join(["python", "tools/make_model.py", name, *taught, *overrides]),
            "valid": shipped,
            "float32": trained.results["valid"]["metrics"],
            "slice": slice_metrics(out),
        }
    )
    (out / RESULTS).write_text(json.dumps(json_safe(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_manifest(out)
    write_card(out)
    return list(_complaints(out, words["most_megabytes"], results))


def _with_translations(name: str, teacher: Path, path: Path, device: str) -> str:
    """Sequence distillation (Kim and Rush 2016): the training text once more, with a larger model's translations.

    As in `regard distil`, they are kept in chunks, beside `path`, and what is left of them is there. Returns what makes
    them part of data.train.
    """
    recipe, choices = recipes.load_recipe(name), TranslationChoices()
    if not path.exists():
        translator = load_as(Translator, teacher, device, "translate")
        sources = read_sources(recipe.data.train, translator.languages)
        print(f"{path}: translations of {len(sources):,} lines by {teacher}", flush=True)
        chunks = path.with_suffix("")
        counts = write_filtered(
            translate_in_chunks(translator, sources, chunks, choices, lambda what, done, of: None), path, choices
        )
        print(", ".join(f"{what} {count:,}" for what, count in counts.items()), flush=True)
    return f"data.train=[{', '.join([*(str(corpus.set) for corpus in recipe.data.train), str(path.absolute())])}]"


def _read_words(name: str) -> dict[str, Any]:
    path = CARDS / f"{name}.yaml"
    if not path.is_file():
        raise SystemExit(f"{path}: there is no such file; it is what a person writes of the model")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _evaluate(folder: Path, device: str) -> dict[str, Any]:
    """The report of the model as it is shipped, on the validation data."""
    predictor = regard.load(folder, device)
    return dict(predictor.recipe.task.evaluate(predictor, "valid", {}, lambda what, done, of: None))


def _complaints(out: Path, most: float, results: dict[str, Any]) -> Iterator[str]:
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    if size > most:
        yield f"{out}: {size:.2f} MB, where its card allows {most:g}"
    for name, (allowed, relative) in COST.items():
        if name in results["float32"] and name in results["valid"]["metrics"]:
            before, after = results["float32"][name]["value"], results["valid"]["metrics"][name]["value"]
            cost = abs(after - before) / (before if relative else 1)
            print(f"{name}: {before:.4f} in float32, {after:.4f} in 8 bits")
            if cost > allowed and (after > before) == relative:
                yield f"{out}: storing it in 8 bits costs {cost:.4f} of {name}, more than {allowed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of a recipe and of a file of tools/cards")
    parser.add_argument("overrides", nargs="*", help="keys to change, as training.steps=20")
    parser.add_argument("--out", type=Path, help="default: models/NAME")
    parser.add_argument("--run", type=Path, help="the folder to train in; default: runs/NAME")
    parser.add_argument("--teacher", type=Path, help="a larger translator, whose translations are learned from, too")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", help="where the code is not in a git checkout: the commit it is of")
    parser.add_argument("--anew", action="store_true", help="remove --out first")
    given = parser.parse_intermixed_args()
    out = given.out or ROOT / "models" / given.name
    if given.anew:
        shutil.rmtree(out, ignore_errors=True)
    try:
        run = given.run or Path("runs") / given.name
        complaints = make_model(given.name, out, run, given.overrides, given.device, given.teacher, given.commit)
    except regard.RegardError as error:
        raise SystemExit(f"make_model: {error}") from None
    for sentence in complaints:
        print(sentence, file=sys.stderr)
    raise SystemExit(bool(complaints))


if __name__ == "__main__":
    main()
