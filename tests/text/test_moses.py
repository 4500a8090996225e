"""Moses normalisation and tokenisation against sacremoses, line for line."""

import random
import time

import pytest

from regard.text import moses
from tests.text import corpus

sacremoses = pytest.importorskip("sacremoses")

TRICKY = [
    "",
    " ",
    "Hello.",
    "Hello, world!",
    "Mr. Smith and Dr. Jones met at 5 p.m. on Jan. 5th.",
    "He lives in the U.S.A. and works for the U.N.",
    "See No. 5 and No. five, pp. 3-4, Art. 7.",
    "It costs $5,300.50, i.e. 3,5 or 1,000,000.",
    "A,B,C,D and 5,B or B,5 and 5,",
    ",5 starts and 5, ends,",
    "Wait... what?.. no.... yes",
    "etc... and so on ...",
    "don't can't I'll we've she'd rock'n'roll o'clock",
    "the dogs' house and the '90s, 1990's and 5'10",
    "'quoted' and ''double'' and `back` and ``both''",
    "'Start and end'",
    'He said "hello." She said "bye", then left.',
    'He said, "hello", and "bye".',
    "„Hallo“, sagte er. „Tschüss.“ Dann ging er.",
    "“Curly” and ‘single’ and don’t and ‚low‘",
    "« Bonjour », dit-il. «Salut»",
    "«\u00a0Bonjour\u00a0», dit-il\u00a0: 5\u00a0%\u00a0!",
    "Qu'est-ce que c'est ? L'homme d'affaires, aujourd'hui !",
    "l'école «d'été» n'est pas... M. Dupont, etc.",
    "Am 3. Mai 2005 um 14.30 Uhr, z.B. bzw. d.h. usw.",
    "Er kam am 25. Dezember. Dann ging er.",
    "Die Straße Nr. 5, ca. 3 km, vgl. S. 7 ff.",
    "well-known e-mail - dash – en—em -- double",
    "(brackets) [square] {curly} <angle> ( spaced ) (a).(b)",
    "nested ((a) (b)): yes ;no ?maybe",
    "user@example.com http://a.b/c?d=e&f=g #tag 50% 50 % of",
    "a_b snake_case __init__ C++ C# .NET",
    "tabs\tand\nnewlines\r\nand  spaces",
    "control\x00chars\x1fhere",
    "1.5 3.14. 2.0.1. v1.2.",
    "end with abbreviation etc.",
    "single letters A. B. c. and x.",
    "ends with quote.'",
    ".'",
    "a.'b'.c",
    "…ellipsis… and …",
    "´accent´ `grave`",
    "5 000 and 5\u00a0000 and nº\u00a05 and 20\u00a0ºC and 5\u00a0cm",
    "!!! ??? ?! ;;; :::",
    "naïve café Ünïcödé ßtraße",
    "½ of ² and ³ at ¼, 5², 3½",
    "emoji 🙂 and ☃, arrows → ⇒",
    "€5, £5, ¥5 and 5€.",
    "“Quote.” (And more.)",
    "Say: 'It's,' he said.",
    "hyphen-ated. Word- and -word.",
    "lower. case follows and Upper. Case follows",
    "a . b , c ' d",
    "Ph.D. B.Sc. e.g. this, i.e. that",
    "Sen. Gen. Lt. Col. Rev. Hon.",
    "no. No. NO. nos. Nos. 5",
    "one,two;three:four.five",
    "they're the boys' and James's",
    "\u2018tis the season, \u2019twas",
    "a\u00a0b",
]


def theirs(texts, language):
    normaliser = sacremoses.MosesPunctNormalizer(language)
    tokeniser = sacremoses.MosesTokenizer(language)
    tokenised = (tokeniser.tokenize(normaliser.normalize(t), escape=False, return_str=True) for t in texts)
    return [text.strip() for text in tokenised]  # sacremoses leaves a space after a last quote


def ours(texts, language):
    return [moses.tokenise(moses.normalise_punctuation(text, language), language) for text in texts]


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_tricky_sentences(language):
    for text, a, b in zip(TRICKY, ours(TRICKY, language), theirs(TRICKY, language), strict=True):
        assert a == b, text


@pytest.mark.parametrize("language", ["en", "de"])
def test_nonsense(language):
    draw = random.Random(3)
    parts = [
        "a",
        "B",
        "s",
        "Dr",
        "No",
        "z",
        "5",
        "12",
        "é",
        "ß",
        ".",
        "..",
        "...",
        ",",
        "'",
        "''",
        "`",
        '"',
        "(",
        ")",
        "[",
        "]",
        "-",
        "–",
        "—",
        "„",
        "“",
        "”",
        "’",
        "‘",
        "‚",
        "«",
        "»",
        "%",
        "?",
        "!",
        ":",
        ";",
        "_",
        "&",
        "<",
        "/",
        "…",
        "´",
        "$",
        "nº",
        "cm",
    ]
    parts += [" ", "  ", "\u00a0", "\t", "\r"]
    texts = ["".join(draw.choice(parts) for _ in range(draw.randrange(1, 14))) for _ in range(1500)]
    for text, a, b in zip(texts, ours(texts, language), theirs(texts, language), strict=True):
        assert a == b, text


def test_by_hand():
    text = "Mr. O'Neil's dog didn't cost 5,300 dollars..."
    assert moses.tokenise(text) == "Mr. O 'Neil 's dog didn 't cost 5,300 dollars ..."
    assert moses.tokenise("L'homme d'hier.", "fr") == "L' homme d' hier ."
    assert moses.tokenise("Am 3. Mai, z.B. heute.", "de") == "Am 3. Mai , z.B. heute ."
    assert moses.normalise_punctuation("„Ja“ – 5 % …", "de") == '"Ja" - 5% ...'


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_detokenise(language):
    detokeniser = sacremoses.MosesDetokenizer(language)
    for text in theirs(TRICKY, language):
        assert moses.detokenise(text, language) == detokeniser.detokenize(text.split(), unescape=False), text
    assert moses.detokenise("The dogs ' house is n't \" big \" , ( no ) .") == "The dogs' house is n't \"big\", (no)."


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_every_line_of_multi30k(language):
    lines = corpus.real_lines(f"multi30k/train.{language}.gz")
    wrong = sum(a != b for a, b in zip(ours(lines, language), theirs(lines, language), strict=True))
    assert wrong <= len(lines) // 10_000  # our lists of abbreviations are shorter


@pytest.mark.parametrize("unit", ["a", "'", ",", ".", ". ", "a'", "(", '."', " ", "我，", "a.b,c'd("])
def test_long_lines_take_no_time(unit):
    start = time.perf_counter()
    for text in (unit * 50_000, f'({unit * 50_000}"'):
        for language in ("en", "de"):
            moses.detokenise(moses.tokenise(moses.normalise_punctuation(text, language), language), language)
    assert time.perf_counter() - start < 60  # quadratic time would be minutes
