"""Kills, flipped bits and bad files: nothing lost, every damage named, no traceback, no hang, bounded memory.

And what checksums cost a model that is loaded.

python benchmarks/damage.py --kills 200 --flips 200 --files 10000
python benchmarks/damage.py --load 15
"""

import argparse
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as Inner
from tokenizers import models, normalizers, pre_tokenizers, processors

sys.path[:0] = [str(Path(__file__).parent.parent)]  # for `tests`

import regard  # noqa: E402
from regard import recipe as recipes  # noqa: E402
from regard.console import Console  # noqa: E402
from regard.errors import RegardError  # noqa: E402
from regard.interop.families import import_checkpoint  # noqa: E402
from regard.io.manifest import write_manifest  # noqa: E402
from regard.run import train_recipe  # noqa: E402
from tests.interop import toy as interop_toy  # noqa: E402
from tests.training import toy  # noqa: E402

SECONDS, MEMORY = 5.0, 2 << 30  # that reading one bad file may take: processor time, and memory that was not taken yet
HANG = 60.0  # by the clock: a busy machine is slow, not wrong
STEPS = 16
Weights = dict[str, torch.Tensor]


def recipe(folder: Path, steps: int = STEPS) -> recipes.Recipe:
    keys: dict[str, Any] = toy.recipe(
        folder, steps=steps, validation={"every": 8, "lines": 5}, checkpoints={"every": 2, "keep": 3}
    )
    keys["model"] = {"layers": 2, "size": 64, "inner": 128, "heads": 4, "dropout": 0.1}
    return recipes.load_recipe(keys)


def train(folder: Path, name: str, steps: int = STEPS) -> str:
    """Trains to the end; what was said on the way."""
    said = io.StringIO()
    if not train_recipe(recipe(folder, steps), folder / name, "cpu", console=Console(file=said, width=999)).finished:
        raise AssertionError("the run did not finish")
    return said.getvalue()


def weights(run: Path) -> Weights:
    return {name: value.clone() for name, value in load_file(run / "model.safetensors").items()}


def same(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- kills ---------------------------------------------------------------------------------------------------------


def kills(folder: Path, count: int, draw: random.Random) -> Counter[str]:
    """Kill -9 at random moments: each resumed run goes on from where it was, and ends with the same bits."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.run", "tests.training.toy", "torch.utils.tensorboard"])
    steps, found = 400, Counter[str]()
    begun = time.monotonic()
    train(folder, "whole", steps)
    pace = (time.monotonic() - begun) / steps
    round_number = 0
    while found["kills"] < count:
        round_number += 1
        run = folder / f"killed-{round_number}"
        while True:
            before = _newest(run)
            process = context.Process(target=train, args=(folder, run.name, steps))
            process.start()
            # Some kills fall into the start; the others some steps, or a piece of one, after the next checkpoint.
            until = time.monotonic() + (draw.uniform(0, 1.5) if draw.random() < 0.2 else 60)
            while process.is_alive() and _newest(run) == before and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 6 * pace))
            if found["kills"] == count:
                process.join()
            process.kill()
            process.join()
            if process.exitcode != -9:
                break
            found["kills"] += 1
            found["while a checkpoint was written"] += any(run.glob("checkpoints/.st*"))
            found["lost"] += _newest(run) < before
        found["runs"] += 1
        if process.exitcode != 0 or not same(weights(folder / "whole"), weights(run)):
            found["runs that ended with other bits"] += 1
    return found


def _newest(run: Path) -> int:
    return max((int(path.name[5:]) for path in run.glob("checkpoints/step-*")), default=0)


# --- flipped bits --------------------------------------------------------------------------------------------------


def flips(folder: Path, count: int, draw: random.Random) -> Counter[str]:
    """One bit flipped in any file that load or resume reads: it is named, and a run that resumes ends the same."""
    train(folder, "whole", STEPS + 2)
    train(folder, "run")
    clean, found = weights(folder / "whole"), Counter[str]()
    for _ in range(count):
        run = folder / "flipped"
        shutil.copytree(folder / "run", run, symlinks=True)
        cache = folder / "cache"
        resume = draw.random() < 0.6
        setup = [run / "config.yaml", run / "manifest.json", *(run / "tokenizer").iterdir()]
        last = (run / "last").resolve()
        paths = [*setup, *(last.iterdir() if resume else [run / "model.safetensors"])]
        prepared = (path for path in cache.rglob("*") if path.is_file() and "tokenizers" not in path.parts)
        paths += [path for path in prepared if path.stat().st_size] if resume else []
        path = draw.choice(sorted(path for path in paths if ".lock" not in path.name))
        kept = path.read_bytes()
        flipped = bytearray(kept)
        flipped[draw.randrange(len(kept))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        outcome = _after_flip(folder, run, path, clean, resume)
        found[outcome] += 1
        if outcome.startswith("silent"):
            print(outcome, path, file=sys.stderr)
        if path.exists() and cache in path.parents:
            path.write_bytes(kept)
        shutil.rmtree(run)
    return found


def _after_flip(folder: Path, run: Path, path: Path, clean: Weights, resume: bool) -> str:
    said = io.StringIO()
    try:
        if not resume:
            regard.load(run, "cpu")
            return "silent"
        with contextlib.redirect_stderr(said):
            told = train(folder, run.name, STEPS + 2)
    except RegardError as error:
        return "named, refused" if path.name in str(error) else "silent: another sentence"
    told += said.getvalue()
    if path.name not in told and str(path.parent) not in told and "damaged" not in told:
        return "silent"
    return "named, resumed to the same bits" if same(clean, weights(run)) else "silent: other bits"


# --- bad files -----------------------------------------------------------------------------------------------------

NASTY: list[Any] = [
    None, True, -1, 0, 1e9, 10**30, 10**9, 2**63, 1e400, float("nan"), "", "x" * 100_000, "\ud800", "../../etc/passwd",
    [], {}, [[]], {"": {}}, [1, "a", None], {"type": "Sequence", "normalizers": []}, "1e9", ".nan", "\x1b[31m",
]  # fmt: skip


def mutate(content: bytes, draw: random.Random, tree: bool) -> bytes:
    """A file with something wrong in it: in its bytes, or in its tree where it is JSON."""
    if tree and draw.random() < 0.7:
        value = json.loads(content)
        for _ in range(draw.choice((1, 1, 1, 3))):
            value = _mutate_tree(value, draw)
        if draw.random() < 0.05:
            return b"[" * draw.choice((100, 100_000)) + b"]"
        return json.dumps(value).encode("utf-8", "surrogatepass")
    data = bytearray(content)
    at = draw.randrange(len(data) + 1)
    kind = draw.randrange(6)
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        return draw.randbytes(draw.randrange(200))
    if kind == 2:
        data[at:at] = draw.randbytes(draw.randrange(1, 9)) * draw.choice((1, 1, 1000))
    elif kind == 3:
        data[at : at + draw.randrange(1, 50)] = b""
    elif kind == 4:
        data[at:at] = draw.choice(
            (b"*a", b"&a", b"{", b"[" * 3000, b": ", b"\t", b"\n- ", b"!!timestamp x", b"1e9", b".nan")
        )
    else:
        for _ in range(draw.choice((1, 1, 8, 64))):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _mutate_tree(value: Any, draw: random.Random) -> Any:
    """The value with one place of its tree changed."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        if draw.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: _mutate_tree(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], _mutate_tree(value[at], draw), *value[at + 1 :]]
    return draw.choice(NASTY)


def resummed(path: Path) -> None:
    """Gives a tokenizer's checksum its value again: who changes a file on purpose changes that too."""
    from regard.text.tokenizer import _sum

    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        content = json.loads(path.read_bytes())
        content["regard"]["sum"] = _sum(content["tokenizer"])
        path.write_text(json.dumps(content), encoding="utf-8", errors="surrogatepass")


@contextlib.contextmanager
def bounded(seconds: float = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """Raises TimeoutError or MemoryError where the block takes more."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} seconds")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, HANG)}
    before = {number: signal.signal(number, late) for number in timers}
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + memory, limits[1]))
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for number, handler in before.items():
            signal.signal(number, handler)


def open_and_use(folder: Path) -> None:
    translator = regard.load(folder, "cpu")
    translator.translate(["w1 w2 w3"])


def import_it(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as out:
        import_checkpoint(folder, Path(out) / "model")


def hf_export(run: Path, out: Path) -> None:
    from regard.interop.families import export_run

    export_run("hf", run, out, "float32")


def import_and_use(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as out:
        import_checkpoint(folder, Path(out) / "model")
        regard.load(Path(out) / "model", "cpu").fill(["The cat sat on [MASK] mats ."])


def bert_of_others(folder: Path) -> None:
    """A BERT as Hugging Face's library writes it, with its vocabulary in tokenizer.json alone."""
    from tests.interop.test_bert import PIECES, saved

    saved(folder, "BertForPreTraining")
    inner = Inner(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    inner.add_special_tokens(PIECES[:5])
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}')
    (folder / "vocab.txt").unlink()


def bad_files(
    folder: Path, count: int, draw: random.Random, seconds: float = SECONDS, show: Callable[[str], None] = print
) -> Counter[str]:
    """Models and checkpoints of others, each with a file in which something is wrong, loaded and imported."""
    train(folder, "run")
    model, theirs = folder / "run", folder / "hf"
    for extra in ("manifest.json", "log.jsonl", "results.json"):
        (model / extra).unlink()
    found = Counter[str]()
    uses: list[tuple[Path, Callable[[Path], None]]] = [(model, open_and_use)]
    with contextlib.suppress(RegardError):
        hf_export(model, theirs)
        import_it(theirs)
        uses.append((theirs, import_it))
    if find_spec("transformers"):
        bert_of_others(folder / "bert")
        uses.append((folder / "bert", import_and_use))
    for number in range(count):
        home, use = draw.choice(uses)
        paths = [
            p for p in home.rglob("*") if p.is_file() and not {"checkpoints", "last", "tensorboard"} & set(p.parts)
        ]
        path = draw.choice(
            sorted(p for p in paths if p.suffix in (".json", ".yaml", ".safetensors") and p.name[0] != ".")
        )
        kept = path.read_bytes()
        path.write_bytes(mutate(kept, draw, path.suffix == ".json"))
        if "tokenizer" in path.parts and draw.random() < 0.7:
            resummed(path)
        begun = time.process_time()
        try:
            with bounded(seconds):
                use(home)
            found["read as it is"] += 1
        except RegardError as error:
            found["one sentence" if len(str(error)) < 1000 else "long sentences"] += 1
            if len(str(error)) >= 1000:
                show(f"long: {str(error)[:300]}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):  # what was seen so far is printed
                found["read until it was interrupted"] = number
                return found
            found[f"traceback: {type(error).__name__}"] += 1
            copy = folder / f"bad-{number}-{path.name}"
            shutil.copy(path, copy)
            show(f"{copy}: {error!r:.300}")
        found["slower than 5 s"] += time.process_time() - begun > SECONDS
        path.write_bytes(kept)
    return found


# --- what loading costs ---------------------------------------------------------------------------------------------

SIZES = {"10 MB": (192, 2), "400 MB": (768, 6)}  # the size of a Transformer, and its layers on each side


def load(folder: Path, rounds: int) -> None:
    """Loads models with a manifest and without, in turns; a row for each, of minima and medians."""
    for name, (size, layers) in SIZES.items():
        home = folder / name.replace(" ", "-")
        shape = {"size": size, "inner": 4 * size, "layers": layers, "decoder_layers": layers}
        interop_toy.make(home, {"kind": "bpe", "size": 300}, **shape)
        write_manifest(home)
        manifest, hidden = home / "manifest.json", home / ".hidden"
        seconds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for _ in range(rounds + 1):  # the first warms up
            for checked, times in seconds.items():
                if not checked:
                    manifest.rename(hidden)
                times.append(_in_a_fork(home))
                if not checked:
                    hidden.rename(manifest)
        clock, processor = (
            {checked: sorted(time[i] for time in times[1:]) for checked, times in seconds.items()} for i in (0, 1)
        )
        row = {"model": name, "bytes": (home / "model.safetensors").stat().st_size, "rounds": rounds}
        for what, of in (("seconds", clock), ("processor seconds", processor)):
            for checked, word in ((True, "with"), (False, "without")):
                row[f"{what} {word}: least, median"] = [round(of[checked][0], 4), round(median(of[checked]), 4)]
        row["more, by the clock"] = round(median(clock[True]) / median(clock[False]) - 1, 3)
        row["more, of the least"] = round(clock[True][0] / clock[False][0] - 1, 3)
        print(json.dumps(row | _machine()), flush=True)
        shutil.rmtree(home)


def _in_a_fork(home: Path) -> tuple[float, float]:
    """Seconds and processor seconds of loading a model in a process that has all imported and no memory to reuse."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        begun, used = time.perf_counter(), time.process_time()
        regard.load(home, "cpu")
        os.write(writing, json.dumps([time.perf_counter() - begun, time.process_time() - used]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        clock, processor = json.load(file)
    return clock, processor


def _machine() -> dict[str, object]:
    """How quickly one core hashes, whether it has instructions for it, and how busy the machine is."""
    content, best = bytes(64 << 20), 9e9
    for _ in range(5):
        used = time.process_time()
        hashlib.sha256(content)
        best = min(best, time.process_time() - used)
    flags = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    return {
        "sha256 GB/s": round(len(content) / best / 1e9, 2),
        "SHA extensions": " sha_ni " in flags or " sha2 " in flags,
        "cores": os.cpu_count(),
        "load average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for part in ("kills", "flips", "files"):
        parser.add_argument(f"--{part}", type=int, default=0)
    parser.add_argument("--load", type=int, default=0, help="how often a model is loaded, with checksums and without")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.load:
        with tempfile.TemporaryDirectory() as temporary:
            load(Path(temporary), options.load)
    for name, part in (("kills", kills), ("flips", flips), ("files", bad_files)):
        if count := getattr(options, name):
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                toy.write_corpus(folder)
                begun = time.monotonic()
                found = part(folder, count, random.Random(options.seed))
                found["seconds"] = round(time.monotonic() - begun)
                print(json.dumps({name: count, **found}), flush=True)


if __name__ == "__main__":
    main()
