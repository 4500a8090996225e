"""Options of predictions, one set for commands, Python calls and server requests; and their checks.

A wrong name or value in a Python call is one sentence, with the nearest option that exists. Knows no model.
"""

import dataclasses
import functools
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Self, TypedDict, TypeVar, Union, cast, get_args, get_origin

from regard.config import choices, field_values, is_slot, nearest
from regard.data.config import Corpus
from regard.decoding import Beam, DecodingConfig, Greedy, Sample, Speculative
from regard.decoding.config import NO_SHAPE
from regard.errors import RegardError
from regard.examples.long_text import Long
from regard.examples.recipe_like import RecipeLike
from regard.reporting import Progress, Warn

F = TypeVar("F", bound=Callable[..., object])
SPLITS = ("test", "valid")
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")  # options of sampling
RENAMED = {"heads": "trees"}  # options of Python calls that have another name today

# Text for people, or as the tokenizer's own stage left it (Moses tokens, lower case).
Form = Literal["plain", "prepared"]
AttentionKind = Literal["encoder", "decoder", "cross"]
Pooling = Literal["mean", "cls", "max", "pooler"]


# --- option sets ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """Options of one kind of call."""

    @classmethod
    def from_kwargs(cls, call: str, kwargs: Mapping[str, object]) -> Self:
        """From the keywords of a Python call, checked by the type hints of the fields; `call` is its name."""
        hints = _hints(cast(Callable[..., object], cls))
        kwargs = current_names(call, kwargs, hints)
        check_arguments(call, kwargs.items(), hints)
        return cls(**kwargs)

    @classmethod
    def of(cls, command: object) -> Self:
        """From the options of a command that have the same names."""
        given = vars(command)
        return cls(**{f.name: given[f.name] for f in dataclasses.fields(cls) if f.name in given})


@dataclass(frozen=True, kw_only=True)
class NamedSearch(CallOptions):
    """A search by its name, and what parallel decoding needs; what is None is as in the recipe."""

    search: str | None = None  # greedy, beam, sample, speculative or blockwise
    draft: str | Path | None = None  # of a speculative search: ngrams, layers(n) or a run
    draft_tokens: int | None = None  # how many tokens it guesses at a step
    accept: str | None = None  # of a blockwise search: exact, top_k(n) or distance(n)

    def named_search(self, base: DecodingConfig, cli: bool) -> DecodingConfig:
        """The recipe's search, or the one that is named: by its options alone, too."""
        own: dict[str, dict[str, object]] = {
            "speculative": {"draft": None if self.draft is None else str(self.draft), "tokens": self.draft_tokens},
            "blockwise": {"accept": self.accept},
        }
        given = {name: {k: v for k, v in values.items() if v is not None} for name, values in own.items()}
        name, known = self.search or next((name for name in given if given[name]), base.kind), choices(DecodingConfig)
        option = option_name("search", cli)
        if name not in known:
            raise RegardError(f"{option} is {name!r}; {nearest(name, known)}")
        for other in (other for other in given if given[other] and other != name):
            key = {"draft": "draft", "tokens": "draft_tokens", "accept": "accept"}[next(iter(given[other]))]
            raise RegardError(f"{option_name(key, cli)} is for {other} search, not for {name}")
        if name == base.kind and not given.get(name):
            return base
        fields = {f.name for f in dataclasses.fields(known[name])}
        kept = {key: value for key, value in field_values(base).items() if key in fields}
        if name == "sample" and not kept.get("temperature"):
            kept.pop("temperature", None)
        try:
            chosen: DecodingConfig = known[name](**kept | given.get(name, {}))
        except ValueError as error:
            raise RegardError(f"{option} {name}: {error}") from None
        return chosen

    def refuse_beam(self, search: DecodingConfig, beam: int | None, cli: bool) -> None:
        """Raise RegardError where a search that keeps one hypothesis is named, and a beam too."""
        named = search.parallel and (self.search, self.draft, self.draft_tokens, self.accept) != (None,) * 4
        if named and beam not in (None, 1):
            name = option_name("beam", cli)
            raise RegardError(f"{name} keeps {beam} hypotheses, and {search.kind} search one; leave out one of the two")


@dataclass(frozen=True, kw_only=True)
class SearchOptions(NamedSearch):
    """How text is generated; what is None is as in the recipe. One option of sampling is enough to sample."""

    decoding: DecodingConfig | None = None  # a whole search, instead of the recipe's
    greedy: bool = False
    beam: int | None = None  # 1 is greedy
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None

    def decoding_config(self, base: DecodingConfig, cli: bool = False) -> DecodingConfig:
        """The recipe's search with these options; messages name options as the command line does where `cli`."""
        base = self.named_search(self.decoding or base, cli)
        self.refuse_beam(base, self.beam, cli)
        beam, greedy = option_name("beam", cli), option_name("greedy", cli)
        if self.greedy and self.beam not in (None, 1):
            raise RegardError(f"{greedy} takes the likeliest word and {beam} searches; give one of them")
        size, sampling = 1 if self.greedy else self.beam, _sampling(self)
        if size is not None:
            if sampling:
                name = option_name(next(iter(sampling)), cli)
                raise RegardError(f"{name} is about drawing words, not about searching")
            return likeliest(base) if self.greedy else with_beam(base, size)
        kept = {key: vars(base)[key] for key in SAMPLING} if isinstance(base, Sample) and base.samples else {}
        return with_sampling(base, kept | sampling) if sampling else base


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(SearchOptions):
    """Options of `generate` and `stream` of a language model."""

    prompt: str = ""
    count: int = 1  # continuations
    max_tokens: int = 256
    stop: Sequence[str] = ()  # strings that end the text, and are left out
    strict: bool = False  # refuse a prompt longer than the context, instead of keeping its last tokens
    warn: Warn | None = None


@dataclass(frozen=True, kw_only=True)
class ReplyOptions(SearchOptions):
    """Options of `reply` and `stream` of a chat model."""

    max_tokens: int | None = None

    def decoding_config(self, base: DecodingConfig, cli: bool = False) -> DecodingConfig:
        base = self.decoding or base
        if self.max_tokens is not None:
            if self.max_tokens < 1:
                raise RegardError(f"max_tokens must be at least 1, not {self.max_tokens}")
            base = replace(base, max_ratio=0.0, max_extra=self.max_tokens)
        return SearchOptions.decoding_config(replace(self, decoding=None), base, cli)


@dataclass(frozen=True, kw_only=True)
class TranslationSearch(NamedSearch):
    """How translations are searched for; what is None is as in the recipe."""

    beam: int | None = None  # 1 is greedy
    sample: bool = False  # draw words at random
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def decoding_config(self, base: DecodingConfig, phrases: bool, nbest: int, cli: bool = False) -> DecodingConfig:
        """The recipe's search with these options; a beam where a greedy one cannot give phrases, or so many outputs."""
        sampling, base = _sampling(self), self.named_search(base, cli)
        self.refuse_beam(base, self.beam, cli)
        if self.sample:
            if self.beam is not None:
                sample, beam = option_name("sample", cli), option_name("beam", cli)
                raise RegardError(f"{sample} draws words and {beam} searches; give one of them")
            return with_sampling(base, sampling)
        if sampling:
            name, sample = option_name(next(iter(sampling)), cli), "--sample" if cli else "sample=True"
            raise RegardError(f"{name} is for drawing words at random; add {sample}")
        if self.beam is not None:
            return with_beam(base, self.beam)
        size = max(Beam().size if phrases else 1, nbest)
        return with_beam(base, size) if isinstance(base, Greedy) and size > 1 else base


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(TranslationSearch):
    """Options of `translate` and `nbest` of a translation model."""

    decoding: DecodingConfig | None = None  # a whole search, instead of the recipe's
    nbest: int = 1
    prefixes: Sequence[str] | None = None  # for each line how its output must begin; empty: anyhow
    phrases: Sequence[Sequence[str]] | None = None  # for each line what must appear in its output; needs a beam
    files: Mapping[str, str] | None = None  # where prefixes and phrases were read, for messages
    trees: Sequence[Sequence[int]] | None = None  # for each line the parent of each word, for structural positions
    form: Form = "plain"
    batch_tokens: int = 4096  # padded tokens computed at once
    long: Long | None = None  # what becomes of a line longer than the model knows; None: as the recipe says
    warn: Warn | None = None  # gets sentences about lines that were cut; None: Python warnings
    progress: Progress | None = None
    before: int = 0  # lines that came earlier: messages count them, samples are drawn as if all came at once
    scores: bool = True  # whether scores are used; else an engine may leave them out, as NaN
    attention: Sequence[AttentionKind] = ()  # the attentions whose weights are recorded
    unknown: list[int] | None = None  # receives the numbers of lines that are mostly unknown; None: a warning

    def chosen_search(self, base: DecodingConfig) -> DecodingConfig:
        """The search that is asked for, by `decoding` or by single options."""
        if self.decoding is None:
            return self.decoding_config(base, bool(self.phrases), self.nbest)
        for name in ("beam", "sample", "search", "draft", "draft_tokens", "accept", *SAMPLING):
            if vars(self).get(name) not in (None, False):
                raise RegardError(f"decoding is a whole search; leave out {name}, or decoding")
        return self.decoding


def option_name(name: str, cli: bool) -> str:
    """An option as messages write it: top_k in Python, --top-k on the command line."""
    return f"--{name.replace('_', '-')}" if cli else name


def _sampling(options: CallOptions) -> dict[str, float]:
    """The options of sampling that are given."""
    return {key: value for key in SAMPLING if (value := vars(options).get(key)) is not None}


def likeliest(base: DecodingConfig) -> DecodingConfig:
    """Greedy search; a parallel one stays what it is, and gives the same words."""
    if isinstance(base, Speculative):
        return replace(base, temperature=0.0, **NO_SHAPE)
    return base if base.parallel else with_beam(base, 1)


def with_beam(base: DecodingConfig, size: int | None) -> DecodingConfig:
    """The recipe's search, or one with a beam of another size; 1 is greedy."""
    if size is None:
        return base
    if size < 1:
        raise RegardError(f"a beam has a size of at least 1, not {size}")
    if size == 1:
        return Greedy(max_ratio=base.max_ratio, max_extra=base.max_extra)
    if isinstance(base, Beam):
        return replace(base, size=size)
    return Beam(size=size, max_ratio=base.max_ratio, max_extra=base.max_extra)


def with_sampling(base: DecodingConfig, sampling: Mapping[str, Any]) -> DecodingConfig:
    """Words drawn at random by these options; at a temperature of 0 the likeliest."""
    temperature = sampling.get("temperature", 1.0)
    if base.parallel and not isinstance(base, Speculative):
        raise RegardError(f"{base.kind} search takes the likeliest words; to draw them, write search speculative")
    if temperature == 0:
        return likeliest(base)
    if not 0 < temperature < 1e6:  # a recipe has no 0: it says greedy
        raise RegardError(f"temperature must be 0 or more, and less than a million, not {temperature}")
    try:
        if isinstance(base, Speculative):
            return replace(base, **{**sampling, "temperature": temperature})
        return Sample(**sampling, max_ratio=base.max_ratio, max_extra=base.max_extra)
    except ValueError as error:
        raise RegardError(str(error)) from None


class EvaluateOptions(TypedDict, total=False):
    """Options of `regard evaluate` that only some tasks have; what is not given is left out."""

    source: Path
    reference: Path
    trees: Path
    beam: int
    text: Path
    context: int
    stride: int
    memory: int


# --- the data of an evaluation -------------------------------------------------------------------------------------


def split_corpora(recipe: RecipeLike, split: str | None, instead: str) -> list[Corpus]:
    """The corpora of a split, by default test if there is one; `instead` says what to do where there is none."""
    corpora: list[Corpus] = vars(recipe.data)[split] if split else recipe.data.test or recipe.data.valid
    if not corpora:
        raise RegardError(f"the recipe names no {split or 'test or valid'} data; {instead}")
    return corpora


def text_corpora(recipe: RecipeLike, split: str | None, text: object) -> list[Corpus]:
    """A text file where one is given, else the corpora of a split."""
    return [Corpus(path=str(text))] if text else split_corpora(recipe, split, "give --text FILE")


# --- checks of Python calls ----------------------------------------------------------------------------------------


UNIONS = (Union, UnionType)
TYPE_NAMES: dict[object, str] = {int: "a whole number", float: "a number", bool: "True or False", str: "a string"}


def checked(method: F) -> F:
    """The method, which refuses arguments that it does not have, and values that its type hints do not allow.

    Its first argument, where that is a list, the method checks itself.
    """
    call, names = method.__name__, list(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)
    def check(self: object, *values: object, **options: object) -> object:
        hints = _hints(method)
        options = current_names(call, options, hints)
        arguments = chain(zip(names, values, strict=False), options.items())
        is_list = get_origin(hints[names[0]]) is Sequence
        check_arguments(call, ((n, v) for n, v in arguments if not (is_list and n == names[0])), hints)
        return method(self, *values, **options)

    return cast(F, check)


def check_arguments(call: str, arguments: Iterable[tuple[str, object]], hints: Mapping[str, object]) -> None:
    for name, value in arguments:
        if name not in hints:
            raise RegardError(f"{call} has no option {name}; {nearest(name, hints)}")
        if not _allowed(hints[name], value):
            raise RegardError(f"{call}: {name} is {value!r}; {_instead(hints[name], value)}")


def current_names(call: str, options: Mapping[str, object], hints: Mapping[str, object]) -> dict[str, object]:
    """The options by their names of today; a warning names those that were renamed."""
    names = {old: new for old, new in RENAMED.items() if old in options and old not in hints and new in hints}
    for old, new in names.items():
        warn_caller(f"{call}: {old} is now called {new}")
    return {names.get(name, name): value for name, value in options.items()}


@functools.cache
def _hints(owner: Callable[..., object]) -> dict[str, object]:
    """By name the types of a class's fields, or of a method's arguments."""
    hints = typing.get_type_hints(owner)
    hints.pop("return", None)
    return hints


def _allowed(hint: object, value: object) -> bool:
    """Whether a value is of a type; what cannot be seen from outside (functions, items of lists) is allowed."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return any(_allowed(each, value) for each in args)
    if origin is Literal:
        return isinstance(value, str) and value in args
    if origin is Sequence:
        if isinstance(value, str) or not isinstance(value, Iterable):
            return False
        return get_origin(args[0]) is not Literal or all(_allowed(args[0], each) for each in value)
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


def _instead(hint: object, value: object) -> str:
    """What to write: a list, the nearest of the words that are known, or what the type is called."""
    members = [kind for kind in (get_args(hint) if get_origin(hint) in UNIONS else (hint,)) if kind is not NoneType]
    kinds = [kind for each in members for kind in (choices(each).values() if is_slot(each) else [each])]
    for kind in kinds:
        words, wrong = kind, cast(Iterable[object], [value])
        if get_origin(kind) is Sequence:
            if isinstance(value, str) or not isinstance(value, Iterable):
                return f"write a list: [{value!r}]"
            words, wrong = get_args(kind)[0], value
        if get_origin(words) is Literal:
            return nearest(str(next(each for each in wrong if each not in get_args(words))), get_args(words))
    return f"write {' or '.join(TYPE_NAMES.get(kind, getattr(kind, '__name__', str(kind))) for kind in kinds)}"


def warn_caller(sentence: str) -> None:
    """A Python warning that names the line outside of this package that made the call."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").split(".")[0] == "regard" and sys._getframe(level).f_back:
        level += 1
    warnings.warn(sentence, stacklevel=level + 1)
