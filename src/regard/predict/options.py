"""What commands change of a recipe: the search, and which of its data are measured on. Knows no task."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from regard.data.config import Corpus
from regard.decoding import Beam, DecodingConfig, Greedy, Sample
from regard.errors import RegardError
from regard.examples.recipe_like import RecipeLike

SPLITS = ("test", "valid")
DRAWN = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")  # what may be said of drawing words


class SearchOptions(TypedDict, total=False):
    """What a call in Python may say of how text is written; what is not said, or None, is as in the recipe."""

    greedy: bool
    beam: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    seed: int | None


class TranslationSearch(TypedDict, total=False):
    """How translations are searched for, as the command, a call in Python and a request say it; None: not said."""

    beam: int | None  # 1 is greedy
    sample: bool  # draw words at random
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None


def split_of(recipe: RecipeLike, split: str | None, instead: str) -> list[Corpus]:
    """The corpora of a split, by default test if there is one; `instead` says what to do where there is none."""
    corpora: list[Corpus] = getattr(recipe.data, split) if split else recipe.data.test or recipe.data.valid
    if not corpora:
        raise RegardError(f"the recipe names no {split or 'test or valid'} data; {instead}")
    return corpora


def texts_of(recipe: RecipeLike, split: str | None, text: object) -> list[Corpus]:
    """A text that is given, else the corpora of a split."""
    return [Corpus(path=str(text))] if text else split_of(recipe, split, "give --text FILE")


def with_beam(base: DecodingConfig, size: int | None) -> DecodingConfig:
    """The recipe's search, or one with a beam of another size; 1 is greedy."""
    if size is None:
        return base
    if size < 1:
        raise RegardError(f"a beam has a size of at least 1, not {size}")
    if size == 1:
        return Greedy(**_limits(base))
    kept: dict[str, Any] = {}
    if isinstance(base, Beam):
        kept = {"length_penalty": base.length_penalty, "penalty": base.penalty}
    return Beam(size=size, **kept, **_limits(base))


def searching(base: DecodingConfig, phrases: bool, outputs: int = 1) -> DecodingConfig:
    """The recipe's search, or a beam where a greedy one cannot give what is asked: phrases, or several outputs."""
    size = max(Beam().size if phrases else 1, outputs)
    return with_beam(base, size) if isinstance(base, Greedy) and size > 1 else base


def translating(
    base: DecodingConfig, asked: TranslationSearch, phrases: bool, outputs: int, dashes: str = ""
) -> DecodingConfig:
    """The search that is asked for, else the recipe's, where that gives phrases or so many outputs."""
    beam = asked.get("beam")
    drawn = {key: asked[key] for key in DRAWN if asked.get(key) is not None}  # type: ignore[literal-required]
    if not asked.get("sample"):
        if drawn:
            name, add = next(iter(drawn)), "--sample" if dashes else "sample=True"
            shown = f"{dashes}{name.replace('_', '-') if dashes else name}"
            raise RegardError(f"{shown} is for drawing words at random; add {add}")
        return searching(base, phrases, outputs) if beam is None else with_beam(base, beam)
    if beam is not None:
        raise RegardError(f"{dashes}sample draws words and {dashes}beam searches; give one of them")
    return drawing(base, **drawn)


def drawing(base: DecodingConfig, **choices: Any) -> DecodingConfig:
    """Words drawn at random, as chosen, at a temperature of 0 the likeliest; what cannot be is told in one sentence."""
    temperature = choices.get("temperature", 1.0)
    if temperature == 0:
        return Greedy(**_limits(base))
    if not 0 < temperature < 1e6:  # a recipe has no 0: it says greedy
        raise RegardError(f"temperature must be 0 or more, and less than a million, not {temperature}")
    try:
        return Sample(**choices, **_limits(base))
    except ValueError as error:
        raise RegardError(str(error)) from None


def chosen(
    base: DecodingConfig, beam: int | None, drawn: Mapping[str, Any], named: Callable[[str], str] = str
) -> DecodingConfig:
    """The recipe's search, with what is said of it: a beam (1 is greedy), or keys of sampling; one is enough."""
    drawn = {key: value for key, value in drawn.items() if value is not None}
    if beam is not None:
        if drawn:
            raise RegardError(f"{named(next(iter(drawn)))} is about drawing words, not about searching")
        return with_beam(base, beam)
    kept = {key: getattr(base, key) for key in DRAWN} if isinstance(base, Sample) else {}
    return drawing(base, **(kept | drawn)) if drawn else base


def asked(base: DecodingConfig, drawn: Mapping[str, Any], greedy: bool, beam: int | None) -> DecodingConfig:
    """The same, from the keywords of a call in Python."""
    return chosen(base, either(greedy, beam), drawn)


def either(greedy: bool, beam: int | None, dashes: str = "") -> int | None:
    """The beam that is meant; a greedy search is one of 1."""
    if greedy and beam not in (None, 1):
        raise RegardError(f"{dashes}greedy takes the likeliest word and {dashes}beam searches; give one of them")
    return 1 if greedy else beam


def _limits(base: DecodingConfig) -> dict[str, Any]:
    return {"max_ratio": base.max_ratio, "max_extra": base.max_extra}
