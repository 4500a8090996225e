"""`regard look` and `figures`: what attention does with one text, as a page, a picture or JSON; the docs' figures."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from regard.api import load
from regard.cli.commands.options import LookOptions
from regard.cli.streams import check_distinct_files, decode_lines, open_output, warn
from regard.cli.translate import records_with_trees
from regard.errors import RegardError
from regard.look.attention import look as recorded
from regard.look.html import LANGUAGES, page
from regard.look.pair import look_pair
from regard.look.quantize import unpack_weights
from regard.reporting import Json

DEFAULT = Path("look.html")


def look(options: LookOptions) -> None:
    language, output, png, other = options.language, options.output, options.png, options.other
    if language not in LANGUAGES:
        raise RegardError(f"--language is {language!r}; write {' or '.join(filter(None, LANGUAGES))}")
    drawn = options.place, options.layer, options.head
    if any(choice is not None for choice in drawn) and png is None:
        raise RegardError("--place, --layer and --head choose what --png draws; the page shows all of them")
    if png is not None and other is not None:
        raise RegardError("--png draws one text; leave the second out, or --png")
    check_distinct_files([output, png], [None] if options.text is None else [])
    text = given_text(options.text)
    if options.referent is not None and other is not None:
        raise RegardError("--referent leads through one text; leave the second out, or --referent")
    parents, ablate = parents_of(options.trees, [text] if other is None else [text, other]), options.ablate or []
    predictor = load(options.run, options.device)
    data = (
        recorded(predictor, text, options.target, ablate, trees=parents, referent=options.referent)
        if other is None
        else look_pair(predictor, text, other, options.target, ablate, trees=parents)
    )
    if png is not None:
        from regard.look.plot import plot_attention

        plot_attention(data, png, *drawn)
        warn(f"{png} shows it")
    if options.as_json:
        print(json.dumps(_json_data(data), ensure_ascii=False))
    if output is not None or not (png or options.as_json):
        with open_output(output or DEFAULT) as file:
            file.write(page(data, language))
        warn(f"{output or DEFAULT} shows it; open it in a browser")


def given_text(text: str | None) -> str:
    """What is looked at: the argument, or all of stdin."""
    if text is None:
        text = "\n".join(decode_lines(sys.stdin.buffer, "standard input"))
    return text.strip("\r\n")


def parents_of(trees: Path | None, texts: list[str]) -> list[Sequence[int]] | None:
    """The heads of the texts' words, from a CoNLL-U file with a sentence for each, if there is one."""
    if trees is None:
        return None
    records = records_with_trees(((text,) for text in texts), trees, "the text" if len(texts) == 1 else "the texts")
    return [record.parents or [] for record in records]


def _json_data(data: Json) -> Json:
    """The same for programs: weights as numbers, None where a position is hidden, and no walk."""
    if "looks" in data:
        return {**data, "looks": [_json_data(each) for each in data["looks"]]}
    places = [{**place, "weights": unpack_weights(place["weights"])} for place in data["places"]]
    rollout = {place: unpack_weights(weights) for place, weights in data["rollout"].items()}
    return {**{key: value for key, value in data.items() if key != "walk"}, "places": places, "rollout": rollout}


def figures(names: list[str], out: Path, form: str, language: str) -> None:
    from regard.look.figures import FIGURES, draw

    out.mkdir(parents=True, exist_ok=True)
    suffix = "" if language == "en" else f".{language}"
    for name in names or FIGURES:
        path = out / f"{name}{suffix}.{form}"
        draw(name, path, language)
        warn(f"{path} is written")
