"""Moses' punctuation normalisation, tokenisation and detokenisation: English, German, French, a generic rest.

The rules are those of the Moses scripts without escaping and without splitting hyphens; the parity test
compares them with sacremoses. Nothing here knows vocabularies.
"""

import re


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Abbreviations whose period stays with them. A second set keeps it only before a number: "No. 5".
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SMALL = frozenset("abcdefghijklmnopqrstuvwxyz")
_ROMAN = _set("I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX")
_TITLES = _set(
    "Adm Brig Bros Capt Cmdr Col Corp Cpl Dr Gen Gov Hon Lt Maj Messrs Mlle Mme Mr Mrs Ms Prof Pvt Rep Rev "
    "Sen Sgt Sr St Supt"
)
_KEEP = {
    "en": _LETTERS | _TITLES | _set("v vs i.e e.g Nos Nr Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"),
    "de": _LETTERS
    | _SMALL
    | _TITLES
    | _ROMAN
    | frozenset(number.lower() for number in _ROMAN)
    | frozenset(map(str, range(1, 100)))  # ordinals: am 3. Mai
    | _set("Art Ca Chr Mio Mrd MwSt No Nos Nr Std bzgl bzw ca dgl etc evtl ff ggf jun pp sen sog usf usw vgl vs zzt"),
    "fr": _LETTERS
    | _SMALL - {"a"}  # il y en a.
    | _set(
        "art ann apr av auj boul c.-à-d ca cf ch chap contr dept doc ed env etc ex fig hab ibid id inf MM "
        "MLLE Mlle Mlles Mme Mmes n° op pp par pl réf rem sc sec sp suiv sup suppl tel tél vb vol vs"
    ),
}
_BEFORE_NUMBER = {"en": _set("No Art pp"), "de": _set(""), "fr": _set("")}

_ALPHA, _NOT_ALPHA, _NUMBER = r"[^\W\d_]", r"[\W\d_]", "[\\d\u00b2\u00b3\u00b9\u00bc-\u00be]"
_SPACES = re.compile(" {2,}")

# --- punctuation normalisation

_BRACKETS = [
    (re.compile(r" ?\( ?"), " ("),
    (re.compile(r" ?\) ?"), ") "),
    (re.compile(r"\) ([.!:?;,])"), r")\1"),
    (re.compile(r"\) (?=\))"), ")"),
    (re.compile(r"\( (?=\()"), "("),
]
_PERCENT = re.compile(r"(\d) %")
_TYPOGRAPHIC = str.maketrans(
    {"„": '"', "“": '"', "”": '"', "–": "-", "—": " - ", "´": "'", "‘": "'", "‚": "'", "’": "'", "…": "..."}
)
_GUILLEMETS = re.compile("\u00a0«\u00a0|«\u00a0?|\u00a0»\u00a0?|»")
_HARD_SPACES = [(re.compile("\u00a0(?=[%:?!;])"), ""), (re.compile("(?<=nº)\u00a0|\u00a0(?=ºC|cm)|(?<=,)\u00a0"), " ")]
_HARD_NUMBER = re.compile("(\\d)\u00a0(\\d)")
_QUOTE_POINT = re.compile(r'"([,.]+)')
_POINT_QUOTE = re.compile(r'(\.{1,99})"(\s*[^<])')


def normalise_punctuation(text: str, language: str = "en") -> str:
    """Typographic quotes, dashes and spaces as plain ones; points at quotes by the language's habit."""
    if "\r" in text:
        text = text.replace("\r", "")
    if "  " in text:
        text = _SPACES.sub(" ", text)
    if "(" in text or ")" in text:
        for pattern, target in _BRACKETS:
            text = pattern.sub(target, text)
    if " %" in text:
        text = _PERCENT.sub(r"\1%", text)
    text = text.replace(" :", ":").replace(" ;", ";")
    if "`" in text or "''" in text:
        text = text.replace("`", "'").replace("''", ' " ')
    if not text.isascii():
        text = _SPACES.sub(" ", text.translate(_TYPOGRAPHIC))
        text = text.replace("''", '"')
        text = _GUILLEMETS.sub('"', text)
        if "\u00a0" in text:
            for pattern, target in _HARD_SPACES:
                text = pattern.sub(target, text)
            text = _HARD_NUMBER.sub(r"\1,\2" if language in ("de", "fr", "es", "cs") else r"\1.\2", text)
    if "  " in text:
        text = _SPACES.sub(" ", text)
    if '"' in text:
        if language == "en":
            text = _QUOTE_POINT.sub(r'\1"', text)
        elif language in ("de", "es", "fr"):
            text = _POINT_QUOTE.sub(r'"\1\2', text.replace(',"', '",'))
    return text.strip()


# --- tokenisation

_CONTROL = re.compile(r"[\x00-\x1f]")
# An accent written apart stays with its letter; ², ₂ and ½ are no letters, as in Perl.
_OTHER = re.compile(r"([^\w\s.'`,\-\u0300-\u036f]|[_\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2079\u2080-\u2089])")
_DOTS = re.compile(r"\.{2,}")
_COMMA = re.compile(f"(?<=[^{_NUMBER[1:-1]}]),|,(?=[^{_NUMBER[1:-1]}])|,$")
_COMMON = [
    (re.compile(f"({_NOT_ALPHA})'({_NOT_ALPHA})"), r"\1 ' \2"),
    (re.compile(f"({_ALPHA})'({_NOT_ALPHA})"), r"\1 ' \2"),
]
_APOSTROPHE = {
    "en": [
        _COMMON[0],
        (re.compile(rf"([^\w]|_)'({_ALPHA})"), r"\1 ' \2"),  # not after a number: '90s
        _COMMON[1],
        (re.compile(f"({_ALPHA})'({_ALPHA})"), r"\1 '\2"),
        (re.compile(f"({_NUMBER})'s"), r"\1 's"),
    ],
    "fr": [
        _COMMON[0],
        (re.compile(f"({_NOT_ALPHA})'({_ALPHA})"), r"\1 ' \2"),
        _COMMON[1],
        (re.compile(f"({_ALPHA})'({_ALPHA})"), r"\1' \2"),
    ],
}
_APOSTROPHE["it"] = _APOSTROPHE["fr"]
_LAST_QUOTE = re.compile(r"\.'$")
_HAS_ALPHA = re.compile(_ALPHA)


def tokenise(text: str, language: str = "en") -> str:
    """Words and punctuation with single spaces between them."""
    text = _CONTROL.sub("", " ".join(text.split()))
    text = _OTHER.sub(r" \1 ", text.strip())
    if ".." in text:
        text = _DOTS.sub(r" \g<0> ", text)
    if "," in text:
        text = _COMMA.sub(" , ", text)
    if "'" in text:
        if rules := _APOSTROPHE.get(language):
            for pattern, target in rules:
                text = pattern.sub(target, text)
        else:
            text = text.replace("'", " ' ")
    words = text.split()
    if "." in text:
        for i, word in enumerate(words):
            if word[-1] == "." and len(word) > 1 and word.strip("."):
                words[i] = _period(word[:-1], words[i + 1] if i + 1 < len(words) else "", language)
    text = " ".join(words)
    return _LAST_QUOTE.sub(" . '", text).strip() if text.endswith(".'") else text


def _period(stem: str, following: str, language: str) -> str:
    """`stem.` as one token or two: abbreviations, and words before a small letter, keep their period."""
    keep = _KEEP.get(language, _KEEP["en"])
    if ("." in stem and _HAS_ALPHA.search(stem)) or stem in keep or following[:1].islower():
        return stem + "."
    if stem in _BEFORE_NUMBER.get(language, _BEFORE_NUMBER["en"]) and following[:1].isdecimal():
        return stem + "."
    return stem + " ."


# --- detokenisation

_OPENING = re.compile(r"^[(\[{¿¡$€£¥]+$")
_CLOSING = re.compile(r"^[,.?!:;\\%}\])]+$")
_ENGLISH_SUFFIX = re.compile(f"^'{_ALPHA}")
_FRENCH_PREFIX = re.compile(f"{_ALPHA}'$")


def detokenise(text: str, language: str = "en") -> str:
    """Plain text from Moses tokens: punctuation joins its word, quotes open and close in turn."""
    words = text.split()
    parts: list[str] = []
    space = ""
    is_open = {"'": False, '"': False}
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        before, after = space, " "
        if _OPENING.match(word):
            after = ""
        elif _CLOSING.match(word):
            before = " " if language == "fr" and word in ("?", "!", ":", ";", "%") else ""
        elif language == "en" and i and _ENGLISH_SUFFIX.match(word):
            before = ""
        elif language in ("fr", "it") and _FRENCH_PREFIX.search(word) and _HAS_ALPHA.match(following):
            after = ""
        elif word in is_open:
            if is_open[word]:
                before, is_open[word] = "", False
            elif language == "en" and word == "'" and i and words[i - 1].endswith("s"):
                before = ""
            else:
                after, is_open[word] = "", True
        parts += (before, word)
        space = after
    return "".join(parts).strip()
