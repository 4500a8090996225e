"""Weights under other names, both ways: a table of rules says which of our tensors are which of Hugging Face's.

    GPT2 = KeyMap(
        (
            rule("embedding.weight", "wte.weight"),
            *weight_and_bias("layers.{n}.feed_forward.expand", "h.{n}.mlp.c_fc", transform=TRANSPOSE),
            *weight_and_bias(("layers.{n}.attention.query", "layers.{n}.attention.key_value"), "h.{n}.attn.c_attn",
                             sizes=(1, 2), transform=TRANSPOSE),
        ),
        tied={"lm_head.weight": "wte.weight"},
        ignored=("h.{n}.attn.bias",),
    )
    weights = GPT2.from_hf(hf_weights, unique_state_dict(model), "the folder or file they come from")
    hf_weights = GPT2.to_hf(weights, "where ours come from")

A name may hold `{n}`, the number of a layer. A rule with several names concatenates the tensors of one side along the
first axis and splits them for the other, so keys and values become our `key_value`, and are separate again. Tensors
without a rule, left over, missing or of another shape are one error that lists all of them. Maps are added by +;
`with_prefix` puts a prefix before all names, `ignoring` accepts files that also hold what another map reads. Knows no
model, no config and no file.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.io.files import shown


@dataclass(frozen=True)
class Transform:
    """A change of layout of one tensor, and its inverse."""

    from_hf: Callable[[Tensor], Tensor]
    to_hf: Callable[[Tensor], Tensor]


IDENTITY = Transform(lambda tensor: tensor, lambda tensor: tensor)
TRANSPOSE = Transform(torch.t, torch.t)  # [in, out] there, [out, in] here; a bias stays what it is
SQUEEZE = Transform(lambda tensor: tensor[0], lambda tensor: tensor[None])  # [1, N] there, [N] here


@dataclass(frozen=True)
class Rule:
    """Tensors of ours that are tensors of Hugging Face's, once both are concatenated along their first axis."""

    ours: tuple[str, ...]
    hf: tuple[str, ...]
    sizes: tuple[int, ...] = ()  # relative sizes of ours, where they differ; Hugging Face's are equal
    transform: Transform = IDENTITY
    optional: bool = False  # may be absent on either side

    def from_hf(self, tensors: list[Tensor]) -> list[Tensor]:
        return _resplit([self.transform.from_hf(t) for t in tensors], self.sizes or (1,) * len(self.ours))

    def to_hf(self, tensors: list[Tensor]) -> list[Tensor]:
        return [self.transform.to_hf(t) for t in _resplit(tensors, (1,) * len(self.hf))]

    def for_layer(self, layer: int) -> "Rule":
        ours, hf = (tuple(name.replace("{n}", str(layer)) for name in side) for side in (self.ours, self.hf))
        return replace(self, ours=ours, hf=hf)


Names = str | tuple[str, ...]


def rule(ours: Names, hf: Names, transform: Transform = IDENTITY, optional: bool = False) -> Rule:
    return Rule(_as_tuple(ours), _as_tuple(hf), transform=transform, optional=optional)


def weight_and_bias(
    ours: Names, hf: Names, sizes: tuple[int, ...] = (), transform: Transform = IDENTITY
) -> tuple[Rule, Rule]:
    """The rules of a module's weight and of its bias."""
    weight, bias = (Rule(_as_tuple(ours, e), _as_tuple(hf, e), sizes, transform) for e in (".weight", ".bias"))
    return weight, bias


@dataclass(frozen=True)
class KeyMap:
    """The rules of a model, and what files hold besides."""

    rules: tuple[Rule, ...]
    tied: Mapping[str, str] = field(default_factory=dict)  # of Hugging Face's: {copy: original}; checked, never written
    ignored: tuple[str, ...] = ()  # buffers beside weights: masks, counters; never written
    renamed_suffixes: Mapping[str, str] = field(default_factory=dict)  # of older files: {".gamma": ".weight"}

    def __add__(self, other: "KeyMap") -> "KeyMap":
        return KeyMap(
            self.rules + other.rules,
            {**self.tied, **other.tied},
            self.ignored + other.ignored,
            {**self.renamed_suffixes, **other.renamed_suffixes},
        )

    def with_prefix(self, ours: str = "", hf: str = "") -> "KeyMap":
        rules = tuple(
            replace(r, ours=tuple(ours + name for name in r.ours), hf=tuple(hf + name for name in r.hf))
            for r in self.rules
        )
        tied = {hf + copy: hf + original for copy, original in self.tied.items()}
        return KeyMap(rules, tied, tuple(hf + name for name in self.ignored), self.renamed_suffixes)

    def ignoring(self, other: "KeyMap") -> "KeyMap":
        """The same map for files that also hold what the other one reads."""
        names = tuple(name for r in other.rules for name in r.hf) + tuple(other.tied) + other.ignored
        return replace(self, ignored=self.ignored + names)

    def from_hf(self, hf_weights: Mapping[str, Tensor], own: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
        """Hugging Face's tensors under our names; `own` are the model's tensors, whose names and shapes count."""
        source = {self._current(name): tensor for name, tensor in hf_weights.items()}
        problems: Problems = {kind: [] for kind in PROBLEMS}
        copies = self._check_tied(source, problems)
        rules = [r.for_layer(n) for r in self.rules for n in sorted(_layers(r.ours, own) | _layers(r.hf, source))]
        weights, used = _apply([(r, r.hf, r.ours, r.from_hf) for r in rules], source, problems)
        problems["unknown"] += [
            name for name in source if name not in used | copies and not _matches_any(name, self.ignored)
        ]
        ruled = {name for r in rules for name in r.ours}
        problems["in the model, but in no rule"] += [name for name in own if name not in ruled]
        problems["not in the model"] += [name for name in weights if name not in own]
        problems["of another shape"] += [
            f"{name} {list(tensor.shape)}, not {list(own[name].shape)}"
            for name, tensor in weights.items()
            if name in own and tensor.shape != own[name].shape
        ]
        _raise_problems(problems, origin)
        return weights

    def to_hf(self, weights: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
        """Our tensors under Hugging Face's names; tied copies are left out."""
        problems: Problems = {kind: [] for kind in PROBLEMS}
        rules = [r.for_layer(n) for r in self.rules for n in sorted(_layers(r.ours, weights))]
        hf_weights, used = _apply([(r, r.ours, r.hf, r.to_hf) for r in rules], weights, problems)
        problems["unknown"] += [name for name in weights if name not in used]
        _raise_problems(problems, origin)
        return hf_weights

    def _current(self, name: str) -> str:
        for old, new in self.renamed_suffixes.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def _check_tied(self, source: Mapping[str, Tensor], problems: "Problems") -> set[str]:
        copies = {copy: original for copy, original in self.tied.items() if copy in source}
        for copy, original in copies.items():
            if original in source and not torch.equal(source[copy], source[original]):
                problems["not shared"].append(f"{copy} is not the same as {original}")
        return set(copies)


_Conversion = tuple[
    Rule, tuple[str, ...], tuple[str, ...], Callable[[list[Tensor]], list[Tensor]]
]  # (…, from, to, how)


def _apply(
    conversions: list[_Conversion], source: Mapping[str, Tensor], problems: "Problems"
) -> tuple[dict[str, Tensor], set[str]]:
    """The converted tensors, and the names they come from; what cannot be converted is added to the problems."""
    converted: dict[str, Tensor] = {}
    used: set[str] = set()
    for r, sources, targets, convert in conversions:
        used |= set(sources)
        absent = [name for name in sources if name not in source]
        if absent and not (r.optional and len(absent) == len(sources)):
            problems["missing"] += absent
        if absent:
            continue
        try:
            tensors = convert([source[name] for name in sources])
        except (RuntimeError, IndexError, ValueError):  # they cannot be concatenated, transposed or split
            problems["of another shape"] += [f"{name} {list(source[name].shape)}" for name in sources]
            continue
        converted |= {name: tensor.contiguous() for name, tensor in zip(targets, tensors, strict=True)}
    return converted, used


# --- errors ---------------------------------------------------------------------------------------------------------


def fold_layer_numbers(names: Iterable[str]) -> list[str]:
    """Names that differ in the number of a layer alone, as one: layers.{0,1,2}.attention.query.weight."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(names):
        number_match = re.search(r"(?<=\.)\d+(?=\.|$)", name)
        before, number, after = name, "", ""
        if number_match:
            before, number, after = name[: number_match.start()], number_match[0], name[number_match.end() :]
        groups.setdefault((before, after), []).append(number)
    return sorted(
        f"{before}{numbers[0] if len(numbers) == 1 else '{' + ','.join(sorted(numbers, key=int)) + '}'}{after}"
        for (before, after), numbers in groups.items()
    )


Problems = dict[str, list[str]]  # names by what is wrong with them
PROBLEMS: dict[str, Callable[[list[str]], list[str]]] = {  # and how they are listed
    "missing": fold_layer_numbers,
    "unknown": fold_layer_numbers,
    "in the model, but in no rule": fold_layer_numbers,
    "not in the model": fold_layer_numbers,
    "of another shape": sorted,
    "not shared": sorted,
}


def _raise_problems(problems: Problems, origin: object) -> None:
    """One sentence with all of them, if there are any."""
    parts = [f"{kind}: {', '.join(listed(problems[kind]))}" for kind, listed in PROBLEMS.items() if problems[kind]]
    if parts:
        raise RegardError(f"{origin}: the weights do not fit the model ({shown('; '.join(parts), 700)})")


# --- names and shapes -----------------------------------------------------------------------------------------------


def _as_tuple(names: Names, ending: str = "") -> tuple[str, ...]:
    return tuple(name + ending for name in ((names,) if isinstance(names, str) else names))


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(re.fullmatch(re.escape(pattern).replace(r"\{n\}", r"\d+"), name) for pattern in patterns)


def _layers(patterns: Iterable[str], names: Iterable[str]) -> set[int]:
    """The layer numbers at the `{n}` of a rule, also of layers that lack this tensor; {0} for a rule without `{n}`."""
    layers: set[int] = set()
    for pattern in patterns:
        before, mark, _ = pattern.partition("{n}")
        if not mark:
            return {0}
        matcher = re.compile(re.escape(before) + r"(\d+)\.")
        layers |= {int(match[1]) for name in names if (match := matcher.match(name))}
    return layers


def _resplit(tensors: list[Tensor], sizes: tuple[int, ...]) -> list[Tensor]:
    """Concatenated along the first axis, then split into parts of these relative sizes."""
    whole = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    if len(sizes) == 1:
        return [whole]
    unit, rest = divmod(len(whole), sum(sizes))
    if rest:
        raise ValueError(f"{len(whole)} rows cannot be split as {sizes}")
    return list(whole.split([unit * size for size in sizes]))
