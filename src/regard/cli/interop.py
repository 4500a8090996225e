"""`regard import`, `export` and `shortlist`: folders in, folders out, and a sentence on stderr about the result."""

from pathlib import Path

from regard.api import load_as
from regard.console import Console
from regard.data.config import Corpus
from regard.decoding.shortlist import FILE
from regard.errors import RegardError
from regard.examples import lexicon
from regard.examples.pairs import read_pairs
from regard.interop.families import DEFAULT, export_run, import_checkpoint
from regard.interop.model_folder import Storage
from regard.io.manifest import replacing
from regard.io.run_folder import run_folder_of
from regard.predict.translation import Translator


def import_model(form: str, name: str, out: Path) -> None:
    if form != "hf":
        raise RegardError(f"regard import {form}: there is no such form; write hf")
    imported = import_checkpoint(name, out)
    count = sum(tensor.numel() for tensor in imported.weights.values())
    _print_note(f"{out}: {count / 1e6:.2f} million parameters, {imported.recipe.task.title}")


def export_model(form: str, run: Path, out: Path, precision: str, storage: Storage = DEFAULT) -> None:
    _print_note(f"{out}: {export_run(form, run, out, precision, storage)}")


def _print_note(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True)


def learn_shortlist(run: Path, source: Path | None, target: Path | None, candidates: int, frequent: int) -> None:
    """`regard shortlist`: what `--shortlist` uses, learned from pairs and written into the model's folder."""
    translator = load_as(Translator, run, "cpu", "shortlist")
    if (source is None) != (target is None):
        raise RegardError("--source and --target belong together")
    corpora = list(translator.recipe.data.train) if source is None else [Corpus(source=str(source), target=str(target))]
    if not corpora:
        raise RegardError(f"{run} does not name its training data; give --source FILE and --target FILE")
    vocabulary, folder = translator.vocabulary, run_folder_of(run)
    pairs = read_pairs(corpora, translator.languages)
    shortlist, taught = lexicon.shortlist_from_pairs(vocabulary, pairs, candidates, frequent)
    with replacing(folder, [FILE]):
        shortlist.save(folder / FILE)
    _print_note(
        f"{folder / FILE}: {candidates} target pieces for each of {vocabulary.source.size:,} source pieces, and "
        f"{len(shortlist.always)} for every sentence, from {taught:,} of {len(pairs):,} pairs"
    )
