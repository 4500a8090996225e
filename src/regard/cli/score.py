"""`regard score`: the log-probability of given translations, or texts, one a line."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from regard.api import ModelLoader
from regard.cli.streams import LineStream, batched_lines, input_lines
from regard.cli.translate import records_with_trees
from regard.data.config import Corpus
from regard.data.readers import read_corpus
from regard.errors import RegardError
from regard.predict.generation import TextGenerator
from regard.predict.translation import Translator

Scores = Iterator[list[tuple[float, int]]]  # log-probability and tokens of each line, some lines at a time


def score(
    run: Path,
    source: Path | None,
    target: Path | None,
    trees: Path | None,
    device: str,
    loader: ModelLoader,
    as_json: bool,
) -> None:
    predictor = loader(run, device)
    scorer = SCORERS.get(type(predictor))
    if scorer is None:
        raise RegardError(f"{run}: a model of the task {predictor.recipe.task.kind}, which `regard score` is not for")
    done = 0
    for batch in scorer(predictor, source, target, trees):
        for number, (log_probability, tokens) in enumerate(batch, done + 1):
            if as_json:
                print(json.dumps({"line": number, "log_probability": log_probability, "tokens": tokens}))
            else:
                print(f"{log_probability:.6f}")
        sys.stdout.flush()
        done += len(batch)


def _score_pairs(translator: Translator, source: Path | None, target: Path | None, trees: Path | None) -> Scores:
    if (source is None) != (target is None):
        raise RegardError(
            "--source and --target belong together; without both, pairs are read from stdin as source TAB target"
        )
    lines = input_lines(None) if source is None else LineStream(iter(()))
    fields: Iterator[tuple[str, ...]]
    if source is not None and target is not None:
        fields = (record.fields for record in read_corpus(Corpus(source=str(source), target=str(target))))
    else:
        fields = (_split(line, number) for number, line in enumerate(lines, 1))
    number = 0
    for batch in batched_lines(records_with_trees(fields, trees, str(source or "standard input")), lines.ready):
        pairs = [(record.fields[0], record.fields[1]) for record in batch]
        parents = [record.parents or [] for record in batch] if trees else None
        yield translator.score(pairs, trees=parents, before=number)
        number += len(batch)


def _score_texts(generator: TextGenerator, source: Path | None, target: Path | None, trees: Path | None) -> Scores:
    if target is not None or trees is not None:
        raise RegardError("a language model scores texts, one a line, from --source or stdin; it takes nothing else")
    lines = input_lines(source)
    for batch in batched_lines(lines, lines.ready):
        yield generator.score(batch)


SCORERS: dict[type, Callable[..., Scores]] = {Translator: _score_pairs, TextGenerator: _score_texts}


def _split(line: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab:
        raise RegardError(f"standard input, line {number}: there is no tab between source and target")
    return source, target
