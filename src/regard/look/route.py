"""A guided route through one translated text: a few steps that end at the head in which a pronoun's attention to its
referent is seen.

Which head that is, minimal pairs say: sentences of the embedded corpus that differ in one word, on which the referent
depends. The head whose weight on the right noun changes most with it is the one; where a model does not translate
English to German, the head of this text's cross-attention with the most weight on the referent. Knows no page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from regard.data import embedded
from regard.data.embedded import MinimalPair, Pair
from regard.errors import RegardError
from regard.examples.pairs import piece_trees
from regard.look.ablation import Head, heads_off, recorded_attentions
from regard.look.model_inputs import ModelInput
from regard.look.quantize import Json, weight_array
from regard.look.referent import Reference, find_noun, find_reference, find_word, units
from regard.models.batch import RaggedRows, collate_pairs
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.record import AttentionRecorder
from regard.predict.base import Predictor
from regard.predict.translation import Translator

PAIRS, FEWEST = 40, 10  # minimal pairs that are read, and without which nothing is said
CONSTRUCTIONS = "because_"  # those in which both nouns stand before the pronoun
ROLES = ("encoder", "cross")


@dataclass(frozen=True)
class Evidence:
    """What heads do with minimal pairs, by role [L, H]."""

    pairs: list[MinimalPair]
    moved: dict[str, np.ndarray]  # how much more weight a noun has where it is the referent than where the other is
    right: dict[str, np.ndarray]  # the share of sentences in which the referent has more weight than the other noun

    def json(self) -> Json:
        measured = {"moved": self.moved, "right": self.right}
        by_role = {
            name: {role: own.astype(float).round(4).tolist() for role, own in each.items()}
            for name, each in measured.items()
        }
        return {"count": len(self.pairs), "example": _example(self.pairs[0]), **by_role}


def guided_route(
    predictor: Predictor, result: Json, model_input: ModelInput, given: str | None = None, off: Sequence[Head] = ()
) -> Json | None:
    """The steps for a text that `look` has recorded, with the heads `off` switched off; None where no referent is known
    or no head can be named."""
    if not isinstance(predictor, Translator):
        if given is not None:
            raise RegardError(
                f"a model of the task {predictor.recipe.task.kind} translates nothing; leave out the referent"
            )
        return None
    v, ids = predictor.vocabulary, model_input.ids
    if "source" not in ids:  # source and target are one sequence
        if given is not None:
            raise RegardError("a decoder_only has no attention to a source by itself; leave out the referent")
        return None
    tokenizers, target = (v.source, v.target), ids["target"][1:]
    reference = find_reference(tokenizers, ids["source"][:-1], target, result["text"], predictor.languages, given)
    if reference is None:
        return None
    weights = {place["name"]: np.nan_to_num(weight_array(place["weights"])) for place in result["places"]}
    weights = {role: own for role, own in weights.items() if own.shape[3] == len(ids["source"])}  # none is compressed
    evidence = measure(predictor, model_input.tree is not None)
    steps = list(_Steps(predictor, model_input, reference, weights, evidence, off).all())
    if len(steps) < 2:
        return None
    words = {"pronoun": reference.pronoun, "referent": reference.referent, "translation": reference.translation}
    return {
        "how": reference.how,
        **{name: word and {"text": word[0], "at": word[1]} for name, word in words.items()},
        "pairs": evidence and evidence.json(),
        "steps": steps,
    }


def _example(pair: MinimalPair) -> str:
    """Both sentences as one: `The animal … because it was too tired/wide.`"""
    words, other = pair.first.source.split(), pair.second.source.split()[pair.differs]
    words[pair.differs] = words[pair.differs].rstrip(".,") + "/" + other
    return " ".join(words)


# --- minimal pairs -------------------------------------------------------------------------------------------------


@torch.inference_mode()
def measure(translator: Translator, trees: bool = False) -> Evidence | None:
    """The corpus's minimal pairs read by the model, with their translations; None where it cannot read them."""
    if translator.languages != ("en", "de"):
        return None
    tokenizer = translator.vocabulary.source
    pairs = [
        pair
        for pair in embedded.minimal_pairs("test")
        if pair.first.construction.startswith(CONSTRUCTIONS)
        and tokenizer.unk not in tokenizer.encode(pair.first.source)
    ]
    chosen = pairs[:: max(1, len(pairs) // PAIRS)][:PAIRS]
    if len(chosen) < FEWEST:
        return None
    sentences = [each for pair in chosen for each in (pair.first, pair.second)]
    sources = tokenizer.encode_batch([each.source for each in sentences])
    targets = translator.vocabulary.target.encode_batch([each.target for each in sentences])
    batch = collate_pairs(RaggedRows.of(sources), RaggedRows.of(targets), tokenizer, translator.vocabulary.target)
    if trees:
        batch = replace(batch, tree=piece_trees([each.heads for each in sentences], sources, tokenizer))
    record = AttentionRecorder(ROLES)
    translator.model(replace(batch, packed=None).to(translator.device), record)
    return _compared(translator, chosen, sources, targets, record)


@dataclass(frozen=True)
class _Sentence:
    """Where the tokens of a minimal pair's sentence stand."""

    asks: dict[str, int]  # by role, the query at the pronoun
    nouns: list[list[int]]  # of both nouns, in the order of their referents


def _sentence(
    translator: Translator, each: Pair, nouns: Sequence[str], source: list[int], target: list[int]
) -> _Sentence | None:
    words, outputs = units(translator.vocabulary.source, source), units(translator.vocabulary.target, target)
    pronoun = each.pronouns[0]
    asks, says = find_word(each.source.split()[pronoun.english], words), find_word(pronoun.form, outputs)
    found = [phrase[1] for noun in nouns if (phrase := find_noun(noun, words, "en"))]
    if not asks or not says or len(found) < len(nouns):
        return None
    return _Sentence({"encoder": asks[1][0], "cross": says[1][0]}, found)


def _compared(
    translator: Translator, pairs: Sequence[MinimalPair], sources: list[list[int]], targets: list[list[int]],
    record: AttentionRecorder,
) -> Evidence | None:  # fmt: skip
    weights = {role: torch.stack(layers).float().cpu().numpy() for role in ROLES if (layers := record.layers(role))}
    weights = {role: own for role, own in weights.items() if own.shape[4] == max(map(len, sources)) + 1}
    kept: list[MinimalPair] = []
    mass: dict[str, list[list[list[np.ndarray]]]] = {role: [] for role in weights}  # pairs, sentences, nouns, [L, H]
    for n, pair in enumerate(pairs):
        rows = (2 * n, pair.first), (2 * n + 1, pair.second)
        places = [_sentence(translator, each, pair.referents, sources[row], targets[row]) for row, each in rows]
        if any(place is None for place in places):
            continue
        kept.append(pair)
        for role, own in weights.items():
            mass[role].append(
                [
                    [own[:, row, :, place.asks[role]][..., noun].sum(-1) for noun in place.nouns]
                    for (row, _), place in zip(rows, places, strict=True)
                    if place
                ]
            )
    if len(kept) < FEWEST:
        return None
    moved, right = {}, {}
    for role, parts in mass.items():
        more = np.subtract(*np.moveaxis(np.array(parts), 2, 0))  # [pairs, sentences, L, H]: of the first noun
        moved[role] = (more[:, 0] - more[:, 1]).mean(0) / 2
        right[role] = ((more[:, 0] > 0).mean(0) + (more[:, 1] < 0).mean(0)) / 2
    return Evidence(kept, moved, right)


# --- steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Steps:
    translator: Translator
    model_input: ModelInput
    reference: Reference
    weights: dict[str, np.ndarray]  # by role [L, H, Q, K]
    evidence: Evidence | None
    off: Sequence[Head]

    def all(self) -> Iterator[Json]:
        usual, shown = self._strongest("encoder"), self._moving()
        first = "encoder" if usual else "cross"
        if self._query(first) is None:
            return
        yield self._step("question", (first, 0, 0))
        if usual:
            yield self._step("usual", usual)
            yield self._step("test" if self.evidence else "single", usual)
        if shown and shown != usual:
            yield self._step("follows", shown)
        last = shown or usual
        off = last and self._without(last)
        if last and off:
            yield self._step("off", last) | off

    def _query(self, role: str) -> int | None:
        """Where the pronoun asks: where it is read, in the encoder, or where its translation is predicted."""
        if role not in self.weights:
            return None
        word = self.reference.pronoun if role == "encoder" else self.reference.translation
        return word and word[1][0]

    def _mass(self, role: str) -> np.ndarray:
        """The weight of each head on the referent [L, H]."""
        return self.weights[role][:, :, self._query(role)][..., self.reference.referent[1]].sum(-1)

    def _strongest(self, role: str) -> Head | None:
        if self._query(role) is None:
            return None
        mass = self._mass(role)
        heads = [(role, *at) for at in np.ndindex(*mass.shape)]
        return max((head for head in heads if head not in self.off), key=lambda head: mass[head[1:]], default=None)

    def _moving(self) -> Head | None:
        """The head that follows the referent most in the minimal pairs, or else the strongest on it here."""
        if self.evidence is None:
            return self._strongest("cross")
        roles = [role for role in self.evidence.moved if self._query(role) is not None]
        heads = [(role, *at) for role in roles for at in np.ndindex(*self.evidence.moved[role].shape)]
        moved = self.evidence.moved
        return max(
            (head for head in heads if head not in self.off), key=lambda head: moved[head[0]][head[1:]], default=None
        )

    def _step(self, name: str, place: Head) -> Json:
        role, layer, head = place
        row = self.weights[role][layer, head, self._query(role)]
        step = {
            "step": name, "place": role, "layer": layer + 1, "head": head + 1, "query": self._query(role),
            "key": int(row.argmax()), "most": round(float(row.max()), 4),
            "weight": round(float(row[self.reference.referent[1]].sum()), 4),
        }  # fmt: skip
        if self.evidence and role in self.evidence.moved:
            step["moved"] = round(float(self.evidence.moved[role][layer, head]), 4)
            step["right"] = round(float(self.evidence.right[role][layer, head]), 4)
        return step

    def _without(self, place: Head) -> Json | None:
        """The probability of the translation with and without this head, which a hook switches off."""
        if self.reference.translation is None:
            return None
        record = AttentionRecorder(keep_inputs=True)
        at, target = self.reference.translation[1][0], self.model_input.ids["target"][1:]
        logits = self.model_input.run(record)
        attentions = recorded_attentions(record)
        if not isinstance(attentions[place[0], place[1]], MultiHeadAttention) or not isinstance(logits, torch.Tensor):
            return None
        with heads_off([place], attentions):
            without = self.model_input.run(AttentionRecorder())
        assert isinstance(without, torch.Tensor)
        before, after = (each[at].double().softmax(-1) for each in (logits, without))
        after[target[at]], own = 0, float(after[target[at]])
        other = int(after.argmax())
        return {
            "before": round(float(before[target[at]]), 4),
            "after": round(own, 4),
            "other": self.translator.vocabulary.target.shown([other])[0],
            "other_before": round(float(before[other]), 4),
            "other_after": round(float(after[other]), 4),
        }
