"""Files of a CTranslate2 export besides the model, with which it is used without regard: tokenizers, and an example.

`example.py` is a program that needs `ctranslate2` and `tokenizers`. Where `tokenizers` cannot express how a vocabulary
splits text, the example uses the package that can (sacremoses, jieba, sentencepiece), and says so.
"""

import json
import re
import shutil
from pathlib import Path

from regard.decoding import Beam, DecodingConfig
from regard.examples.vocabulary import Vocabulary
from regard.interop.tokenizers_file import CONVERTERS, build_tokenizer, tokenizer_unsupported_reason
from regard.predict.translation import Translator
from regard.text import Tokenizer
from regard.text.config import Marian, SentencePiece
from regard.text.marian import SPM

EXAMPLE = "example.py"
SIDES = ("source", "target")
PROGRAM = '''"""Translates lines: python example.py < FILE
{about}
"""

{imports}

here = pathlib.Path(__file__).parent
{load}
translator = ctranslate2.Translator(str(here))
lines = [line.rstrip("\\n") for line in sys.stdin]
{encode}
search = {search}
for row, result in zip(rows, translator.translate_batch(rows, max_batch_size=32, **search)):
    text = {decode}
    print(text if len(row) > 1 else "")
'''


def write_example(translator: Translator, names: list[list[str]], origin: Path, out: Path) -> str:
    """Tokenizers and `example.py` in an export; returns a summary. `origin` has the run's own tokenizer."""
    vocabulary = translator.vocabulary
    files, missing = _write_tokenizer_files(translator, names, origin, out)
    why = dict.fromkeys(filter(None, map(tokenizer_unsupported_reason, vocabulary)))
    packages = _packages(vocabulary)
    (out / EXAMPLE).write_text(_example(translator, names, files, packages, list(why)), encoding="utf-8")
    if missing:
        return f"{EXAMPLE} needs {' and '.join(missing)} beside it, which the run does not have"
    if why:
        needed = " and ".join(name for name in packages if name not in ("ctranslate2", "tokenizers"))
        return f"`tokenizers` alone cannot express its text ({' and '.join(why)}), so {EXAMPLE} also needs {needed}"
    return f"{EXAMPLE} translates with it and {' and '.join(dict.fromkeys(files))}, without regard"


def _write_tokenizer_files(
    translator: Translator, names: list[list[str]], origin: Path, out: Path
) -> tuple[list[str], list[str]]:
    """Names of the tokenizer files of source and target, which are written, and of those that the run does not have."""
    vocabulary = translator.vocabulary
    if vocabulary.source.kind in CONVERTERS:
        files = ["tokenizer.json"] * 2 if vocabulary.shared else [f"{side}_tokenizer.json" for side in SIDES]
        for name, tokenizer, pieces in zip(files, vocabulary, names, strict=True):
            build_tokenizer(tokenizer, pieces, special=False).save(str(out / name))
        return files, []
    text = translator.recipe.text
    if isinstance(text, Marian):
        candidates = {name: [origin / name, Path(text.path) / name] for name in SPM.values()}
        files = list(candidates)
    else:
        assert isinstance(text, SentencePiece)
        files = ["tokenizer.model"] * 2 if vocabulary.shared else [f"{side}.model" for side in SIDES]
        candidates = dict(
            zip(files, ([Path(path)] for path in (text.path, text.target_path or text.path)), strict=True)
        )
    missing = []
    for name, paths in candidates.items():
        if present := [path for path in paths if path.is_file()]:
            shutil.copy(present[0], out / name)
        else:
            missing.append(name)
    return files, missing


def _packages(vocabulary: Vocabulary) -> list[str]:
    """Packages that the example imports."""
    used = {
        "sacremoses": any(side.normaliser.moses for side in vocabulary),
        "jieba": any(side.options.get("jieba") for side in vocabulary),
        "sentencepiece": vocabulary.source.kind not in CONVERTERS,
        "tokenizers": vocabulary.source.kind in CONVERTERS,
    }
    return ["ctranslate2", *(name for name, needed in used.items() if needed)]


def _example(
    translator: Translator, names: list[list[str]], files: list[str], packages: list[str], why: list[str]
) -> str:
    source, recipe = translator.vocabulary.source, translator.recipe
    opened = 'tokenizers.Tokenizer.from_file(str(here / "{0}"))'
    if "sentencepiece" in packages:
        opened = 'sentencepiece.SentencePieceProcessor(model_file=str(here / "{0}"))'
    load = [f"{side} = {opened.format(name)}" for side, name in zip(SIDES, files, strict=True)]
    if files[0] == files[1]:
        load = [f"source = target = {opened.format(files[0])}"]
    encode = [*_preprocessing(source), *_encoding(source, names[0][source.eos], recipe.data.filters.max_length)]
    modules = [
        name for name in ("pathlib", "re", "sys", "unicodedata") if re.search(rf"\b{name}\.", PROGRAM + str(encode))
    ]
    return PROGRAM.format(
        about="\n".join([f"Needs: pip install {' '.join(packages)}", *_notes(recipe.decoding, why)]),
        imports="\n".join([*(f"import {name}" for name in modules), "", *(f"import {name}" for name in packages)]),
        load="\n".join([*load, *_moses_setup(translator, packages)]),
        encode="\n".join(encode),
        search=json.dumps(_search_options(translator, names[1])),
        decode=_decoding(translator, packages),
    )


def _notes(decoding: DecodingConfig, why: list[str]) -> list[str]:
    """Notes: how the example differs from the recipe, or why it needs more than `tokenizers`."""
    notes = [f"`tokenizers` alone cannot express this vocabulary: {' and '.join(why)}."] if why else []
    if decoding.samples:
        notes.append("The recipe draws words at random; this takes the best ones.")
    if isinstance(decoding, Beam) and decoding.penalty != "power":
        notes.append(
            f"The recipe's length penalty is {decoding.penalty}; CTranslate2 has another, so translations may differ."
        )
    return notes


def _preprocessing(source: Tokenizer) -> list[str]:
    """Statements that change lines before the tokenizer reads them; the file of `tokenizers` does the rest."""
    stages, steps = source.normaliser, []
    jieba, alone = source.options.get("jieba"), source.kind not in CONVERTERS
    if stages.unicode != "none" and (stages.moses or jieba or alone):
        steps.append(f'lines = [unicodedata.normalize("{stages.unicode.upper()}", line) for line in lines]')
    if stages.moses:
        steps.append("lines = [cut.tokenize(clean.normalize(line), return_str=True, escape=False) for line in lines]")
    if stages.lower and (jieba or alone):
        steps.append("lines = [line.lower() for line in lines]")
    if stages.fold and (jieba or alone):
        steps.append('lines = [" ".join(line.split()) for line in lines]')
    if jieba:
        steps.append('lines = [line if line.isascii() else " ".join(jieba.cut(line)) for line in lines]')
    return steps


def _moses_setup(translator: Translator, packages: list[str]) -> list[str]:
    if "sacremoses" not in packages:
        return []
    source, target = translator.languages
    return [
        f'clean, cut = sacremoses.MosesPunctNormalizer("{source}"), sacremoses.MosesTokenizer("{source}")',
        f'joiner = sacremoses.MosesDetokenizer("{target}")',
    ]


def _encoding(source: Tokenizer, end: str, longest: int) -> list[str]:
    if source.kind in CONVERTERS:
        return [
            f"source.enable_truncation({longest + 1})  # what the model was trained on, and {end}",
            "rows = [source.encode(line).tokens for line in lines]",
        ]
    if source.options.get("codes"):  # a line may begin with the language to translate into
        return [
            'parts = [re.fullmatch("(>>.*?<<)?(.*)", line, re.DOTALL).groups() for line in lines]',
            "rows = [[code] * bool(code) + source.encode(text, out_type=str) for code, text in parts]",
            f'rows = [[*row[:{longest}], "{end}"] for row in rows]',
        ]
    return [f'rows = [[*source.encode(line, out_type=str)[:{longest}], "{end}"] for line in lines]']


def _decoding(translator: Translator, packages: list[str]) -> str:
    text = "target.decode([target.token_to_id(token) for token in result.hypotheses[0]])"
    if "sentencepiece" in packages:  # which would print unknown pieces as ⁇
        plain = "''.join(result.hypotheses[0]).replace('▁', ' ').strip(' ')"
        text = "target.decode(result.hypotheses[0])" if translator.vocabulary.target.byte_ids else plain
    if translator.vocabulary.target.normaliser.moses:
        text = f"joiner.detokenize({text}.split(), unescape=False)"
    return text


def _search_options(translator: Translator, names: list[str]) -> dict[str, object]:
    """The recipe's search as arguments of `translate_batch`."""
    decoding: DecodingConfig = translator.recipe.decoding
    options: dict[str, object] = {"beam_size": 1}
    if isinstance(decoding, Beam):
        options = {"beam_size": decoding.size, "length_penalty": decoding.length_penalty}
    return options | {
        "min_decoding_length": 0,
        "max_decoding_length": decoding.limit(translator.recipe.data.filters.max_length),
        "suppress_sequences": [[names[i]] for i in dict.fromkeys(translator.symbols.suppressed)],
    }
