"""Dependency trees of the grammar's own English: one head for each word. Knows no German and no construction.

Words are what spaces part: `didn't`, `woman's` and `street,` are one word each. Heads count words from 1; 0 is the
head of the root. The attachments are those of Universal Dependencies v2, where words are not split:

- the lexical verb heads its clause; subjects, objects, adverbs, auxiliaries, negation, particles and `to` depend on it
- with `be`, the predicate (adjective, noun, the noun of a place) is the head, and `be` depends on it; not with `there`
- articles, numbers, adjectives, owners and prepositions depend on their noun, each word of `next to` and `in front of`
- a subordinate clause depends on the verb it completes or explains, its conjunction on the head of the clause
- a relative clause depends on its noun; `who`, `that` and `which` depend on the verb of the relative clause
- of what `and`, `but` or `so` joins, the second part depends on the first and the conjunction on the second
- `wants to read`, `has to`, `is going to`, `let's`: the infinitive depends on the verb before it
- a preposition without a noun after it (who did she listen to) depends on the verb, unlike in UD
- of two sentences, the head of the second depends on the head of the first

The English of the grammar is small enough to be parsed without a choice: a word that no rule expects is an error.
"""

from tools.grammar.lexicon import (
    ADJECTIVES, FEMININE_NAMES, FREQUENCY, MASCULINE_NAMES, NOUNS, NUMBERS, UNITS, WEEKDAYS, words,
)  # fmt: skip
from tools.grammar.verbs import ALL_VERBS

_TIMES = frozenset(words("day week month year evening morning night"))
_NOUNS = frozenset(
    {form for n in NOUNS.values() for form in (n.english, n.english_plural)}
    | {form for unit, forms in UNITS.items() for form in (unit, forms[2])}
    | {day.lower() for day in WEEKDAYS}
    | _TIMES
    | set(words("euros time money home"))
)
_NAMES = frozenset(name.lower() for name in MASCULINE_NAMES + FEMININE_NAMES)
_PRONOUNS = frozenset(words("i you he she it we they me him us them who what")) | _NAMES
_ADJECTIVES = frozenset(a.english for a in ADJECTIVES.values())
_COMPARATIVES = frozenset(a.english_comparative.split()[-1] for a in ADJECTIVES.values())
_BEFORE_NOUNS = (
    frozenset(words("the a an this these my your his her its our their no any every last next more one"))
    | frozenset(NUMBERS)
    | _ADJECTIVES
)
_BE = frozenset(words("am is are was were isn't aren't wasn't weren't been being"))
_HAVE = frozenset(words("has have had hasn't haven't hadn't"))
_AUXILIARIES = frozenset(words("do does did don't doesn't didn't will won't would can could couldn't must may should"))
_ADVERBS = frozenset(words("yesterday tomorrow tonight soon today now again already yet not")) | frozenset(FREQUENCY)
_DEGREES = frozenset(words("not very too so still as more"))
_PREPOSITIONS = frozenset(words("in on under behind into onto over at by with for to of about"))
_CASES = ("for", "to", "of", "about")  # what a verb like `wait for` has before its noun; `up` is a particle
_COMPLETING, _LEADING = words("because that whether why when"), words("although while before if when")
_ASKING = words("who what when where why which how")

_FORMS = [form.split() for v in ALL_VERBS.values() for form in (v.base, v.third, v.past, v.participle, v.progressive)]
_NONFINITE = frozenset(f.split()[0] for v in ALL_VERBS.values() for f in (v.participle, v.progressive)) | {"allowed"}
_BASES = frozenset(v.base.split()[0] for v in ALL_VERBS.values())
_TAILS: dict[str, list[list[str]]] = {}
for _head, *_tail in _FORMS:
    if _tail and _tail not in _TAILS.setdefault(_head, []):
        _TAILS[_head].append(_tail)


def heads(sentence: str) -> list[int]:
    """The head of each word of a sentence of the grammar."""
    parser = _Parser(sentence)
    root = parser.text()
    parser.heads[root] = -1
    if None in parser.heads:
        raise ValueError(f"no head for {parser.words[parser.heads.index(None)]}: {sentence}")
    return [head + 1 for head in parser.heads if head is not None]


class _Parser:
    """A cursor over the words. Its methods consume a phrase, set the heads in it, and return its own head."""

    def __init__(self, sentence: str) -> None:
        written = sentence.split()
        self.words = [w.strip(".,?!").lower() for w in written]
        self.ends = [w[-1] if w[-1] in ".,?!" else "" for w in written]
        self.heads: list[int | None] = [None] * len(written)
        self.at = self.start = 0

    def word(self, ahead: int = 0) -> str:
        """The word here, or further on; "" past the end of the clause, which a mark shows."""
        end = self.at + ahead
        if end >= len(self.words) or any(self.ends[self.start : end]):
            return ""
        return self.words[end]

    def take(self) -> int:
        if not self.word():
            raise ValueError(f"ends too early: {' '.join(self.words)}")
        self.at += 1
        return self.at - 1

    def hang(self, head: int, *dependents: int) -> int:
        for dependent in dependents:
            self.heads[dependent] = head
        return head

    # --- sentences and clauses ---

    def text(self) -> int:
        root = self.sentence()
        while self.at < len(self.words):
            mark = self.ends[self.at - 1]
            self.start = self.at
            if mark and mark != ",":
                self.hang(root, self.sentence())
            elif mark and self.word() in ("so", "but"):
                conjunction = self.take()
                self.hang(root, self.hang(self.clause(), conjunction))
            else:
                raise ValueError(f"{self.words[self.at]} is not expected: {' '.join(self.words)}")
        return root

    def sentence(self) -> int:
        self.start = self.at
        word = self.word()
        led = "," in self.ends[self.at :]
        if word in _LEADING and led:
            mark = self.take()
            condition = self.hang(self.clause(), mark)
            return self.hang(self.clause(), condition)
        if word in _ASKING:
            return self.asking()
        if word == "don't" or word == "please":
            return self.predicate([self.take()])
        if word == "let's":
            verb = self.take()
            return self.hang(verb, self.predicate([], finite=False))
        if word in _AUXILIARIES | _BE:
            return self.predicate([self.take(), self.nominal(subject=True)])
        return self.clause()

    def asking(self) -> int:
        """A question with a question word."""
        first = front = self.take()
        if self.words[first] == "how" and self.word() != "many":
            front = self.hang(self.take(), first)
        elif self.words[first] == "how":
            many = self.hang(self.take(), first)
            front = self.hang(self.take(), many)
        elif self.words[first] == "which":
            front = self.hang(self.take(), first)
        if self.word() in _BE:  # how deep is the river, where is the key
            verb = self.take()
            return self.hang(front, verb, self.nominal(subject=True))
        if self.word() in _AUXILIARIES:
            return self.predicate([front, self.take(), self.nominal(subject=True)])
        return self.predicate([front])

    def clause(self) -> int:
        """A statement: perhaps a time, then the subject and the rest."""
        self.start = self.at
        dependents = [] if (time := self.time()) is None else [time]
        if self.word() == "there":
            dependents.append(self.take())
            verb = self.hang(self.take(), *dependents)
            return self.completed(verb)
        return self.predicate([*dependents, self.nominal(subject=True)])

    def predicate(self, dependents: list[int], finite: bool = True) -> int:
        """The verb and what follows it; `dependents`, already read, depend on its head."""
        while True:
            word, after = self.word(), self.word(1) if self.word(1) not in _ADVERBS else self.word(2)
            helps = after in _NONFINITE or after in ("been", "being")
            if word in _BE and not helps:
                return self.described([*dependents, self.take()])
            if word in _AUXILIARIES | _ADVERBS or (word in _BE | _HAVE and helps):
                dependents.append(self.take())
            else:
                break
        verb = self.hang(self.take(), *dependents)
        self.particles(verb)
        return self.completed(verb, finite)

    def described(self, dependents: list[int]) -> int:
        """What follows be: an adjective with what it is compared to, a noun, a place, an age."""
        while self.word() in _DEGREES:
            dependents.append(self.take())
        if cases := self.preposition():
            head = self.hang(self.noun_phrase(), *cases)
        elif self.word() in _ADJECTIVES | _COMPARATIVES and self.word(1) not in _NOUNS:
            head = self.take()
        else:
            head = self.noun_phrase()
            if self.word() == "old":
                head = self.hang(self.take(), head)
        self.hang(head, *dependents)
        if self.word() in ("than", "as"):
            case = self.take()
            self.hang(head, self.hang(self.noun_phrase(), case))
        elif self.word() == "but":
            conjunction = self.take()
            self.hang(head, self.hang(self.take(), conjunction))
        return self.completed(head)

    # --- what follows a verb ---

    def particles(self, verb: int) -> None:
        """`up` of `get up`; `for` of `wait for` too where no noun follows that it could belong to."""
        for tail in _TAILS.get(self.words[verb], []):
            if all(self.word(k) == t for k, t in enumerate(tail)):
                stays = tail[-1] in _CASES and self.nominal_ahead(len(tail)) and not self.time_ahead(len(tail))
                for _ in tail[:-1] if stays else tail:
                    self.hang(verb, self.take())
                return

    def completed(self, head: int, finite: bool = True) -> int:
        """Objects, places, times, infinitives and, after a finite verb, clauses; the head again."""
        last = head
        while word := self.word():
            if word in _COMPLETING:
                if not finite:  # did not want to cross because it was tired: a reason for not wanting
                    break
                mark = self.take()
                self.hang(head, self.hang(self.clause(), mark))
            elif word == "without" or (word == "to" and self.infinitive_ahead(1)):
                self.hang(head, self.predicate([self.take()], finite=False))
            elif word in _ADVERBS:
                self.hang(head, self.take())
            elif word == "and":
                self.joined(head, last)
            elif cases := self.preposition():
                self.hang(head, self.hang(self.clock() or self.noun_phrase(), *cases))
            elif self.nominal_ahead():
                last = self.nominal()
                self.hang(head, last)
            else:
                break
        return head

    def joined(self, head: int, last: int) -> None:
        """`and` with a verb, a noun or a clause of its own."""
        conjunction, here = self.take(), self.at
        if not self.nominal_ahead():
            self.hang(head, self.predicate([conjunction]))
            return
        noun = self.noun_phrase()
        if not self.word():
            self.hang(last, self.hang(noun, conjunction))
            return
        self.at = here
        self.hang(head, self.hang(self.clause(), conjunction))

    # --- noun phrases ---

    def nominal(self, subject: bool = False) -> int:
        """A noun phrase with what belongs to it: of, relative clauses; and for a subject a place and a second noun."""
        noun = self.noun_phrase()
        if self.word() == "who" or (subject and self.word() == "that"):
            relative = self.take()
            others = [] if self.words[relative] == "who" else [self.nominal(subject=True)]
            self.hang(noun, self.predicate([relative, *others]))
        elif subject and (cases := self.preposition()):
            if self.word() == "which":
                which = self.hang(self.take(), *cases)
                self.hang(noun, self.predicate([which, self.nominal(subject=True)]))
            else:
                self.hang(noun, self.hang(self.noun_phrase(), *cases))
        elif subject and self.word() == "and":
            conjunction = self.take()
            self.hang(noun, self.hang(self.noun_phrase(), conjunction))
        return noun

    def noun_phrase(self) -> int:
        if self.word() in _PRONOUNS or self.lone():
            return self.take()
        before: list[int] = []
        while self.word() not in _NOUNS:
            word = self.word()
            if word.endswith("'s"):
                before = [self.hang(self.take(), *before)]
            elif word in _BEFORE_NOUNS or "-" in word:
                before.append(self.take())
            else:
                raise ValueError(f"{word or 'the end'} is no part of a noun phrase: {' '.join(self.words)}")
        return self.hang(self.take(), *before)

    def lone(self) -> bool:
        """Is this, that or her a pronoun here?"""
        if self.word() == "her":
            return self.word(1) in ("", "the", "a", "an") or self.word(1) in _PREPOSITIONS
        return self.word() in ("this", "that", "these") and self.word(1) in _BE

    def nominal_ahead(self, ahead: int = 0) -> bool:
        word, following = self.word(ahead), self.word(ahead + 1)
        if (word, following) == ("next", "to"):
            return False
        return word in _PRONOUNS | _BEFORE_NOUNS | _NOUNS or "-" in word or word.endswith("'s")

    def infinitive_ahead(self, ahead: int) -> bool:
        """`cook`, `answer` and `clean` after to are verbs: a noun there has an article or is a name."""
        return self.word(ahead) in _BASES or not self.nominal_ahead(ahead)

    def preposition(self) -> list[int]:
        """The words of a preposition; none where there is none."""
        word, following = self.word(), self.word(1)
        length = 2 if (word, following) == ("next", "to") else 3 if (word, following) == ("in", "front") else 1
        return [self.take() for _ in range(length)] if length > 1 or word in _PREPOSITIONS else []

    # --- times ---

    def time_ahead(self, ahead: int = 0) -> bool:
        return self.word(ahead) in ("last", "this", "next", "every") and self.word(ahead + 1) in _TIMES

    def time(self) -> int | None:
        """A time before the subject: yesterday, last week, on Monday, two days ago."""
        if self.word() in _ADVERBS:
            return self.take()
        if self.time_ahead():
            return self.noun_phrase()
        if self.word() == "on":
            case = self.take()
            return self.hang(self.noun_phrase(), case)
        if self.word(2) == "ago":
            unit = self.noun_phrase()
            return self.hang(self.take(), unit)
        return None

    def clock(self) -> int | None:
        """The time after at: five o'clock, half past three, a quarter to one."""
        if self.word(1) == "o'clock":
            hour = self.take()
            return self.hang(hour, self.take())
        if self.word() != "half" and self.word(1) != "quarter":
            return None
        before = [self.take()] if self.word() != "half" else []
        part = self.hang(self.take(), *before)
        case = self.take()
        return self.hang(part, self.hang(self.take(), case))
