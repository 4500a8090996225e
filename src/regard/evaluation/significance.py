"""Whether one system's outputs are better than another's by more than chance: paired bootstrap, by sacreBLEU."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from regard.errors import RegardError
from regard.reporting import Json

SAMPLES = 1000


@dataclass(frozen=True)
class PairedResult:
    """A metric of two systems on the same sentences: its value, half the 95% interval of each, and the p-value."""

    metric: str
    first: float
    second: float
    first_interval: float
    second_interval: float
    p_value: float
    signature: str

    def json(self) -> Json:
        return dict(vars(self)) | {"difference": self.second - self.first}


def paired_bootstrap(
    first: Sequence[str], second: Sequence[str], references: Sequence[str], tokenise: str, samples: int = SAMPLES
) -> list[PairedResult]:
    """BLEU, chrF and TER of both, over the same samples of sentences (Koehn 2004)."""
    from sacrebleu.metrics import BLEU, CHRF, TER
    from sacrebleu.significance import PairedTest, Result

    if not len(first) == len(second) == len(references):
        raise RegardError(f"{len(first)} and {len(second)} outputs cannot be compared on {len(references)} references")
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    asian = tokenise in ("zh", "char")
    measures = {
        "BLEU": BLEU(tokenize=tokenise, force=True),
        "chrF2": CHRF(),
        "TER": TER(normalized=asian, asian_support=asian),
    }
    results = []
    for measure in measures.values():
        test = PairedTest([("first", first), ("second", second)], {"m": measure}, [references], "bs", samples)
        signatures, scores = test()
        name = next(key for key in scores if key != "System")
        one, two = (cast(Result, each) for each in scores[name])
        ends = float(one.ci or 0), float(two.ci or 0)
        same = abs(one.score - two.score) < 1e-9  # for which sacreBLEU gives the least p there is
        p_value = 1.0 if same else float(two.p_value or 0)
        results.append(PairedResult(name, one.score, two.score, *ends, p_value, str(signatures[name])))
    return results
