"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1 …")]
Json = Annotated[bool, Option("--json", help="Print JSON for programs.")]
Run = Annotated[
    Path, Argument(help="A trained model: the folder that `regard train --out` wrote, or a name of `regard models`.")
]
Trees = Annotated[
    Path | None, Option(help="A CoNLL-U file of the source, sentence i for line i: for structural positions.")
]
Engine = Annotated[str, Option(help="own, or ct2: CTranslate2, which is fastest on a CPU; see docs/interop.md.")]
Precision = Annotated[
    str | None,
    Option(help="Of decoding: float32, bf16, or int8, on a CPU; with --engine ct2 int8, its default, or float32."),
]
Weights = Annotated[str | None, Option("--precision", help="float32, or int8, which is faster on a CPU.")]
UsesShortlist = Annotated[
    bool, Option("--shortlist", help="Compute those words alone that the model's shortlist allows (regard shortlist).")
]
Others = Annotated[
    list[Path] | None,
    Option("--with", metavar="RUN", help="Another model that decides together with RUN; may be repeated."),
]
Long = Annotated[
    str | None,
    Option(
        metavar="KIND", help="Texts longer than the model reads: truncate, extract, segments, refuse, none, or YAML as "
        "'{kind: truncate, keep: tail}' (docs/long-text.md). Default: as task.long says.",
    ),
]  # fmt: skip
Input = Annotated[Path | None, Option("--input", "-i", help="Text, one sentence a line. Default: stdin.")]
Output = Annotated[Path | None, Option("--output", "-o", help="Default: stdout.")]
BatchTokens = Annotated[int, Option(min=1, help="Padded tokens computed at once.")]
Beam = Annotated[int | None, Option(min=1, help="Beam size; 1 is greedy. Default: as the recipe says.")]
SlowBeam = Annotated[int | None, Option(min=1, help="Search with a beam; shown when it is done.")]
Greedy = Annotated[bool, Option("--greedy", help="The likeliest word every time.")]
Search = Annotated[
    str | None, Option(help="greedy, beam, sample, speculative or blockwise (docs/faster.md). Default: the recipe's.")
]
Draft = Annotated[
    str | None, Option(help="What guesses in a speculative search: ngrams, layers(2) of the model, or another RUN.")
]
DraftTokens = Annotated[int | None, Option(help="So many guesses at a step. Default: 4.")]
Accept = Annotated[
    str | None, Option(help="Guesses that a blockwise search keeps: exact, top_k(2) or distance(2). Default: exact.")
]
Stats = Annotated[Path | None, Option(metavar="FILE", help="Write here as JSON how many guesses were kept.")]
Temperature = Annotated[float | None, Option(help="Below 1 sharpens, above 1 flattens; 0: the likeliest word.")]
TopK = Annotated[int | None, Option(help="Draw from the k likeliest words only.")]
TopP = Annotated[float | None, Option(help="Draw from the likeliest with this much probability.")]
MinP = Annotated[float | None, Option(help="Draw from those with this share of the likeliest's.")]


def long_option(value: str | None) -> Any:
    """The choice that --long names."""
    from regard.examples.long_text import Truncate, to_long

    return None if value is None else to_long(value, Truncate(), "--long")
