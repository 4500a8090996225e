"""`regard generate`: a language model continues a prompt, which is shown as it is generated."""

import json
import sys
from collections.abc import Iterable
from typing import IO

from regard.api import load_as
from regard.cli.commands.options import GenerateOptions
from regard.cli.streams import check_stats, decode_lines, open_output, report_acceptance, warn
from regard.decoding import Beam
from regard.interop.engines import precision_loader
from regard.predict.generation import Continuation, TextDelta, TextGenerator
from regard.predict.options import SearchOptions


def generate(options: GenerateOptions) -> None:
    loader = precision_loader(options.precision)
    generator = load_as(TextGenerator, options.run, options.device, "generate", loader)
    decoding = SearchOptions.of(options).decoding_config(generator.recipe.decoding, cli=True)
    check_stats(decoding, options.stats)
    given, count = options.prompt, options.samples
    text = "\n".join(decode_lines(sys.stdin.buffer, "standard input")) if given is None else given
    echoed = text if options.echo else ""
    own = {"max_tokens": options.max_tokens, "stop": options.stop or [], "strict": options.strict, "warn": warn}
    with open_output(None) as out:
        if options.as_json or isinstance(decoding, Beam):
            for n, continuation in enumerate(generator.generate(text, count, decoding, **own), 1):
                line = f"{_heading(n, count)}{echoed}{continuation.text}\n"
                out.write(_json_line(n, continuation) if options.as_json else line)
        else:
            show(generator.stream(text, count, decoding, **own), count, echoed, out)
    report_acceptance(generator, decoding, options.stats)


def show(deltas: Iterable[TextDelta], count: int, echoed: str, out: IO[str]) -> None:
    """One text after the other, the first as it is generated; the others wait for their turn."""
    waiting: dict[int, list[str]] = {n: [] for n in range(count)}
    done: set[int] = set()
    current = 0
    out.write(_heading(1, count) + echoed)
    for delta in deltas:
        waiting[delta.sample].append(delta.text)
        if delta.whole is not None:
            done.add(delta.sample)
        while current < count:
            out.write("".join(waiting[current]))
            waiting[current] = []
            if current not in done:
                break
            current += 1
            out.write("\n" + (_heading(current + 1, count) + echoed if current < count else ""))
        out.flush()


def _heading(number: int, count: int) -> str:
    """The line above each of several texts."""
    return f"--- {number}\n" if count > 1 else ""


def _json_line(number: int, continuation: Continuation) -> str:
    facts = {
        "sample": number,
        "text": continuation.text,
        "tokens": len(continuation.tokens),
        "log_probability": continuation.log_probability,
        "ended": continuation.ended,
    }
    return json.dumps(facts, ensure_ascii=False) + "\n"
