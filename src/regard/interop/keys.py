"""Weights under other names, both ways: a table of rules says which tensors of ours are which of theirs.

    GPT2 = KeyMap(
        (
            rule("embedding.weight", "wte.weight"),
            *both("layers.{n}.feed_forward.expand", "h.{n}.mlp.c_fc", turn=TRANSPOSED),  # .weight and .bias
            *both(("layers.{n}.attention.query", "layers.{n}.attention.key_value"), "h.{n}.attn.c_attn",
                  shares=(1, 2), turn=TRANSPOSED),
        ),
        copies={"lm_head.weight": "wte.weight"},
        ignored=("h.{n}.attn.bias",),
    )
    ours = GPT2.to_ours(theirs, weights_of(model), "the folder or file they come from")
    theirs = GPT2.to_theirs(ours, "where ours come from")

A name may hold `{n}`, the number of a layer. A rule with several names joins the tensors of one side end to end and
cuts them anew for the other, so keys and values become our `key_value`, and come apart again. Whatever has no rule, is
left over, missing or misshapen is an error that lists all of it. Maps are joined by +; `under` puts something before
all names, `beside` reads files that hold what another map reads, too. The engine knows no model, no config, no file.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.errors import RegardError


@dataclass(frozen=True)
class Turn:
    """How one of their tensors is turned into our form, and back."""

    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]


SAME = Turn(lambda tensor: tensor, lambda tensor: tensor)
TRANSPOSED = Turn(torch.t, torch.t)  # [in, out] there, [out, in] here; a bias stays what it is
ROW = Turn(lambda tensor: tensor[0], lambda tensor: tensor[None])  # [1, N] there, [N] here


@dataclass(frozen=True)
class Rule:
    """Tensors of ours that are tensors of theirs, once both are joined along their first axis."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    shares: tuple[int, ...] = ()  # relative sizes of ours, where they differ; theirs are alike
    turn: Turn = SAME
    optional: bool = False  # may be absent on either side

    def join(self, tensors: list[Tensor]) -> list[Tensor]:
        """Theirs become ours."""
        return _cut([self.turn.to_ours(t) for t in tensors], self.shares or (1,) * len(self.ours))

    def split(self, tensors: list[Tensor]) -> list[Tensor]:
        """Ours become theirs."""
        return [self.turn.to_theirs(t) for t in _cut(tensors, (1,) * len(self.theirs))]

    def of(self, layer: int) -> "Rule":
        """The rule for one layer."""
        ours, theirs = (tuple(p.replace("{n}", str(layer)) for p in side) for side in (self.ours, self.theirs))
        return replace(self, ours=ours, theirs=theirs)


Names = str | tuple[str, ...]


def rule(ours: Names, theirs: Names, turn: Turn = SAME, optional: bool = False) -> Rule:
    return Rule(_several(ours), _several(theirs), turn=turn, optional=optional)


def both(ours: Names, theirs: Names, shares: tuple[int, ...] = (), turn: Turn = SAME) -> tuple[Rule, Rule]:
    """The rules of a weight and of its bias."""
    weight, bias = (Rule(_several(ours, e), _several(theirs, e), shares, turn) for e in (".weight", ".bias"))
    return weight, bias


@dataclass(frozen=True)
class KeyMap:
    rules: tuple[Rule, ...]
    copies: Mapping[str, str] = field(default_factory=dict)  # of theirs: {copy: original}; checked, never written
    ignored: tuple[str, ...] = ()  # what they keep beside weights: masks, counters; never written
    older: Mapping[str, str] = field(default_factory=dict)  # renamed endings: {".gamma": ".weight"}

    def __add__(self, other: "KeyMap") -> "KeyMap":
        return KeyMap(
            self.rules + other.rules,
            {**self.copies, **other.copies},
            self.ignored + other.ignored,
            {**self.older, **other.older},
        )

    def under(self, ours: str = "", theirs: str = "") -> "KeyMap":
        """The same map where all names have something before them."""
        rules = tuple(
            replace(r, ours=tuple(ours + p for p in r.ours), theirs=tuple(theirs + p for p in r.theirs))
            for r in self.rules
        )
        copies = {theirs + a: theirs + b for a, b in self.copies.items()}
        return KeyMap(rules, copies, tuple(theirs + p for p in self.ignored), self.older)

    def beside(self, other: "KeyMap") -> "KeyMap":
        """The same map for files that hold what the other one reads, too."""
        also = tuple(name for r in other.rules for name in r.theirs) + tuple(other.copies) + other.ignored
        return replace(self, ignored=self.ignored + also)

    def to_ours(self, theirs: Mapping[str, Tensor], own: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
        """Their tensors under our names; `own` are those of the model they are for, whose names and shapes count."""
        given = {self._current(name): tensor for name, tensor in theirs.items()}
        wrong: Wrong = {what: [] for what in MISTAKES}
        copied = self._check_copies(given, wrong)
        rules = [r.of(n) for r in self.rules for n in sorted(_layers(r.ours, own) | _layers(r.theirs, given))]
        made, used = _follow([(r, r.theirs, r.ours, r.join) for r in rules], given, wrong)
        wrong["unknown"] += [name for name in given if name not in used | copied and not _known(name, self.ignored)]
        filled = {name for r in rules for name in r.ours}
        wrong["in the model, but in no rule"] += [name for name in own if name not in filled]
        wrong["not in the model"] += [name for name in made if name not in own]
        wrong["of another shape"] += [
            f"{name} {list(tensor.shape)}, not {list(own[name].shape)}"
            for name, tensor in made.items()
            if name in own and tensor.shape != own[name].shape
        ]
        _tell(wrong, origin)
        return made

    def to_theirs(self, ours: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
        """Our tensors under their names; tensors that are copies of others are left out."""
        wrong: Wrong = {what: [] for what in MISTAKES}
        rules = [r.of(n) for r in self.rules for n in sorted(_layers(r.ours, ours))]
        made, used = _follow([(r, r.ours, r.theirs, r.split) for r in rules], ours, wrong)
        wrong["unknown"] += [name for name in ours if name not in used]
        _tell(wrong, origin)
        return made

    def _current(self, name: str) -> str:
        for old, new in self.older.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def _check_copies(self, given: Mapping[str, Tensor], wrong: "Wrong") -> set[str]:
        copies = {name: source for name, source in self.copies.items() if name in given}
        for name, source in copies.items():
            if source in given and not torch.equal(given[name], given[source]):
                wrong["not shared"].append(f"{name} is not the same as {source}")
        return set(copies)


_Step = tuple[Rule, tuple[str, ...], tuple[str, ...], Callable[[list[Tensor]], list[Tensor]]]  # what is taken and made


def _follow(steps: list[_Step], given: Mapping[str, Tensor], wrong: "Wrong") -> tuple[dict[str, Tensor], set[str]]:
    """The tensors that the steps make, and the names that they take; what cannot be made is noted."""
    made: dict[str, Tensor] = {}
    used: set[str] = set()
    for r, sources, names, change in steps:
        used |= set(sources)
        absent = [name for name in sources if name not in given]
        if absent and not (r.optional and len(absent) == len(sources)):
            wrong["missing"] += absent
        if absent:
            continue
        try:
            parts = change([given[name] for name in sources])
        except (RuntimeError, IndexError, ValueError):  # parts that cannot be joined, turned or cut
            wrong["of another shape"] += [f"{name} {list(given[name].shape)}" for name in sources]
            continue
        made |= {name: part.contiguous() for name, part in zip(names, parts, strict=True)}
    return made, used


# --- what is wrong, all of it ---------------------------------------------------------------------------------------


def folded(names: Iterable[str]) -> list[str]:
    """Names that differ in the number of a layer alone, as one: layers.{0,1,2}.attention.query.weight."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(names):
        found = re.search(r"(?<=\.)\d+(?=\.|$)", name)
        before, number, after = (
            (name, "", "") if found is None else (name[: found.start()], found[0], name[found.end() :])
        )
        groups.setdefault((before, after), []).append(number)
    return sorted(
        f"{before}{numbers[0] if len(numbers) == 1 else '{' + ','.join(sorted(numbers, key=int)) + '}'}{after}"
        for (before, after), numbers in groups.items()
    )


Wrong = dict[str, list[str]]  # names by what is wrong with them
MISTAKES: dict[str, Callable[[list[str]], list[str]]] = {  # and how they are listed
    "missing": folded,
    "unknown": folded,
    "in the model, but in no rule": folded,
    "not in the model": folded,
    "of another shape": sorted,
    "not shared": sorted,
}


def _tell(wrong: Wrong, origin: object) -> None:
    """One sentence with everything, if there is anything."""
    parts = [f"{what}: {', '.join(listed(wrong[what]))}" for what, listed in MISTAKES.items() if wrong[what]]
    if parts:
        raise RegardError(f"{origin}: the weights do not fit the model ({'; '.join(parts)})")


# --- names and pieces ----------------------------------------------------------------------------------------------


def _several(names: Names, ending: str = "") -> tuple[str, ...]:
    return tuple(name + ending for name in ((names,) if isinstance(names, str) else names))


def _known(name: str, patterns: Iterable[str]) -> bool:
    return any(re.fullmatch(re.escape(pattern).replace(r"\{n\}", r"\d+"), name) for pattern in patterns)


def _layers(patterns: Iterable[str], names: Iterable[str]) -> set[int]:
    """The layers that there are where the rule has its `{n}`, also those that lack it; a rule without has one, {0}."""
    found: set[int] = set()
    for pattern in patterns:
        before, mark, _ = pattern.partition("{n}")
        if not mark:
            return {0}
        matcher = re.compile(re.escape(before) + r"(\d+)\.")
        found |= {int(match[1]) for name in names if (match := matcher.match(name))}
    return found


def _cut(tensors: list[Tensor], shares: tuple[int, ...]) -> list[Tensor]:
    """Joined along the first axis, then cut into parts of these relative sizes."""
    whole = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    if len(shares) == 1:
        return [whole]
    unit, rest = divmod(len(whole), sum(shares))
    if rest:
        raise ValueError(f"{len(whole)} rows cannot be cut as {shares}")
    return list(whole.split([unit * share for share in shares]))
