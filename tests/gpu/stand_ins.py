"""A stand-in for seqeval, which measures tags, where it is not installed: tags are learned and said all the same.

Its figures are right for BIO tags, but the table says that they are not seqeval's.
"""

from importlib.util import find_spec
from pathlib import Path

METRICS = '''
def entities(rows):
    """(row, kind, first, last) of every entity; I- after another kind begins one, as in conlleval."""
    found = set()
    for n, row in enumerate(rows):
        begun = kind = None
        for at, tag in enumerate([*row, "O"]):
            mark, _, now = tag.partition("-")
            if begun is not None and (mark != "I" or now != kind):
                found.add((n, kind, begun, at - 1))
                begun = kind = None
            if mark in ("B", "I") and begun is None:
                begun, kind = at, now
    return found

def accuracy_score(right, said):
    pairs = [pair for a, b in zip(right, said) for pair in zip(a, b)]
    return sum(a == b for a, b in pairs) / max(1, len(pairs))

def precision_score(right, said, zero_division=0):
    found = entities(said)
    return len(found & entities(right)) / len(found) if found else zero_division

def recall_score(right, said, zero_division=0):
    return precision_score(said, right, zero_division)

def f1_score(right, said, zero_division=0):
    p, r = precision_score(right, said), recall_score(right, said)
    return 2 * p * r / (p + r) if p + r else zero_division
'''


def provide(folder: Path) -> str:
    """Write it into `folder`, to be put on the path, and say so; nothing where seqeval is installed."""
    try:
        missing = find_spec("seqeval") is None
    except ModuleNotFoundError:
        missing = True
    if not missing:
        return ""
    (folder / "seqeval").mkdir(parents=True, exist_ok=True)
    (folder / "seqeval" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "seqeval" / "metrics.py").write_text(METRICS, encoding="utf-8")
    about = folder / "seqeval-0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: seqeval\nVersion: 0\n", encoding="utf-8")
    return "a stand-in for seqeval"
