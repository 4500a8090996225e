"""The verbs: forms in both languages, and the nouns that can be subject and object. Knows no sentences."""

from dataclasses import dataclass

from tools.grammar import german
from tools.grammar.lexicon import Noun, nouns, words

# English base (with particle), past, participle | German infinitive (prefix|verb), third person, participle,
# s = sein | subject classes | object classes. "=" at the start: a state, never progressive in English.
_TRANSITIVE = """
buy bought bought|kaufen kauft gekauft|human|good food
sell sold sold|verkaufen verkauft verkauft|human|good horse cow house
read read read|lesen liest gelesen|human|text story poem
write wrote written|schreiben schreibt geschrieben|human|letter book story poem sentence
eat ate eaten|essen isst gegessen|human|food
drink drank drunk|trinken trinkt getrunken|human|drink
find found found|finden findet gefunden|human|small container umbrella coat hat answer
lose lost lost|verlieren verliert verloren|human|key bag umbrella hat ball map letter suitcase camera knife
look_for looked looked|suchen sucht gesucht|human|key bag umbrella hat ball map letter camera knife cat \
dog hotel
open opened opened|öffnen öffnet geöffnet|human|door window suitcase box package bottle letter gate
close closed closed|schließen schließt geschlossen|human|door window suitcase box bag gate
repair repaired repaired|reparieren repariert repariert|adult boy job -cook -baker kin -grandmother|car \
bicycle clock roof camera radio computer lamp chair table door machine fence truck gate
paint painted painted|streichen streicht gestrichen|adult painter gardener farmer kin|wall door house \
fence window bench room gate
clean cleaned cleaned|putzen putzt geputzt|human|kitchen window room house office mirror
wash washed washed|waschen wäscht gewaschen|human|car shirt coat dress skirt apple tomato jacket
carry carried carried|tragen trägt getragen|human|container table chair ladder lamp
visit visited visited|besuchen besucht besucht|human|city museum church village island school friend uncle\
 aunt grandmother neighbour
=know knew known|kennen kennt gekannt|human|city village song story museum teacher baker doctor
=see saw seen|sehen sieht gesehen|human|beast train ship house tree
=hear heard heard|hören hört gehört|human|song dog bird train radio story machine
invite invited invited|ein|laden lädt eingeladen|human|teacher doctor neighbour friend aunt uncle guest
call called called|an|rufen ruft angerufen|human|doctor neighbour friend mother father hotel
pick_up picked picked|ab|holen holt abgeholt|human|child friend guest package suitcase daughter
=understand understood understood|verstehen versteht verstanden|human|idea poem film language
forget forgot forgotten|vergessen vergisst vergessen|human|key bag umbrella hat letter word answer present
learn learned learned|lernen lernt gelernt|human|language song poem word game
explain explained explained|erklären erklärt erklärt|teacher father mother student brother sister \
doctor|task problem plan word game sentence question
answer answered answered|beantworten beantwortet beantwortet|human|question letter
build built built|bauen baut gebaut|adult farmer kin|house bridge wall ship fence
=need needed needed|brauchen braucht gebraucht|human|key bag umbrella coat ladder map computer bicycle \
plan doctor bed
use used used|benutzen benutzt benutzt|human|computer camera machine knife ladder map bicycle
turn_on turned turned|ein|schalten schaltet eingeschaltet|human|lamp radio computer machine
turn_off turned turned|aus|schalten schaltet ausgeschaltet|human|lamp radio computer machine
put_on put put|an|ziehen zieht angezogen|human|coat jacket shirt
take_off took taken|aus|ziehen zieht ausgezogen|human|coat jacket shirt
try_on tried tried|an|probieren probiert anprobiert|human|coat jacket shirt hat
tidy_up tidied tidied|auf|räumen räumt aufgeräumt|human|room kitchen office cupboard house
bring_along brought brought|mit|bringen bringt mitgebracht|human|cake present salad friend map camera
feed fed fed|füttern füttert gefüttert|human|beast -fox -mouse
stroke stroked stroked|streicheln streichelt gestreichelt|human|dog cat horse rabbit goat donkey
cut cut cut|schneiden schneidet geschnitten|human|bread cake cheese tomato apple meat
bake baked baked|backen backt gebacken|baker cook grandmother mother woman aunt father|bread cake
draw drew drawn|zeichnen zeichnet gezeichnet|human|house tree flower horse cat bird map
plant planted planted|pflanzen pflanzt gepflanzt|gardener farmer man woman kin|tree flower
hide hid hidden|verstecken versteckt versteckt|human|key letter present ball knife cake
cross crossed crossed|überqueren überquert überquert|human beast|street bridge river
sing sang sung|singen singt gesungen|human|song
watch watched watched|beobachten beobachtet beobachtet|human|beast ship train
"""

_INTRANSITIVE = """
sleep slept slept|schlafen schläft geschlafen|human beast
laugh laughed laughed|lachen lacht gelacht|human
cry cried cried|weinen weint geweint|human
work worked worked|arbeiten arbeitet gearbeitet|adult job kin
dance danced danced|tanzen tanzt getanzt|human
sing sang sung|singen singt gesungen|human bird
play played played|spielen spielt gespielt|kid dog cat daughter son
cook cooked cooked|kochen kocht gekocht|adult cook kin
swim swam swum|schwimmen schwimmt geschwommen s|human dog duck
run ran run|laufen läuft gelaufen s|human beast
wait waited waited|warten wartet gewartet|human dog
stay stayed stayed|bleiben bleibt geblieben s|human
get_up got got|auf|stehen steht aufgestanden s|human
wake_up woke woken|auf|wachen wacht aufgewacht s|human
fall_asleep fell fallen|ein|schlafen schläft eingeschlafen s|human
arrive arrived arrived|an|kommen kommt angekommen s|human vehicle
leave left left|ab|fahren fährt abgefahren s|bus train ship
come_back came come|zurück|kommen kommt zurückgekommen s|human
go went gone|gehen geht gegangen s|human
=live lived lived|wohnen wohnt gewohnt|human
smile smiled smiled|lächeln lächelt gelächelt|human
start started started|beginnen beginnt begonnen|film game exam party
end ended ended|enden endet geendet|film game exam party
sit sat sat|sitzen sitzt gesessen|human pet
stand stood stood|stehen steht gestanden|human
jump jumped jumped|springen springt gesprungen s|kid pet horse fox
"""

# Objects in the dative.
_DATIVE = """
help helped helped|helfen hilft geholfen|human|person neighbour friend grandmother aunt
thank thanked thanked|danken dankt gedankt|human|person neighbour friend
follow followed followed|folgen folgt gefolgt s|human dog cat|man woman teacher waiter beast truck
congratulate congratulated congratulated|gratulieren gratuliert gratuliert|human|person friend brother \
sister daughter
=trust trusted trusted|vertrauen vertraut vertraut|human|person neighbour friend brother
listen_to listened listened|zu|hören hört zugehört|human|teacher doctor waiter guest grandfather child
=belong_to belonged belonged|gehören gehört gehört|good|human
=please pleased pleased|gefallen gefällt gefallen|good work|human
"""

# Two objects: the person in the dative, the thing in the accusative.
_DITRANSITIVE = """
give gave given|geben gibt gegeben|human|good small apple
show showed shown|zeigen zeigt gezeigt|human|picture letter map house garden room key camera dress plan
send sent sent|schicken schickt geschickt|human|letter package present book map
lend lent lent|leihen leiht geliehen|human|book bicycle car umbrella camera ladder coat knife
bring brought brought|bringen bringt gebracht|human|food -mass cup glass letter package newspaper chair
tell told told|erzählen erzählt erzählt|human|story
"""

# Verbs with a preposition: English preposition inside the verb, German preposition and case after the forms.
_PREPOSITIONAL = """
wait_for waited waited|warten wartet gewartet|human|bus train doctor friend guest letter answer|auf acc
think_of thought thought|denken denkt gedacht|human|mother holiday friend exam party child|an acc
talk_about talked talked|sprechen spricht gesprochen|human|film book exam holiday plan problem party|über \
acc
dream_of dreamed dreamed|träumen träumt geträumt|human|house garden holiday horse island car|von dat
laugh_about laughed laughed|lachen lacht gelacht|human|film story answer picture letter|über acc
look_forward_to looked looked|sich_freuen freut gefreut|human|party holiday film exam present|auf acc
remember remembered remembered|sich_erinnern erinnert erinnert|human|teacher film song story house|an acc
complain_about complained complained|sich_beschweren beschwert beschwert|human|hotel soup task neighbour \
film|über acc
take_care_of took taken|sich_kümmern kümmert gekümmert|human|garden dog child grandmother horse guest|um acc
"""

_DOUBLED = ("put", "sit", "run", "swim", "get", "forget", "cut")


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    lemma: str
    base: str  # look for
    third: str  # looks for
    past: str
    participle: str
    progressive: str
    infinitive: str  # einladen
    stem: str  # laden: the infinitive without its prefix
    prefix: str  # ein, or ""
    forms: dict[str, str]  # present by person, without the prefix
    german_participle: str
    perfect: dict[str, str]  # haben or sein by person
    reflexive: bool
    state: bool
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    preposition: str
    case: german.Case

    @property
    def zu(self) -> str:
        """The infinitive with zu: zu lesen, einzuladen."""
        return f"{self.prefix}zu{self.stem}" if self.prefix else f"zu {self.stem}"


def _third(word: str) -> str:
    if word.endswith(("s", "sh", "ch", "x", "o")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def _progressive(word: str) -> str:
    if word in _DOUBLED:
        return word + word[-1] + "ing"
    return word[:-1] + "ing" if word.endswith("e") and not word.endswith("ee") else word + "ing"


def _read(line: str, default: str) -> Verb:
    left, rest = line.split("|", 1)
    state = left.startswith("=")
    english, past, participle = left.removeprefix("=").split()
    fields = rest.split("|")
    prefix = fields.pop(0) if fields[0].isalpha() else ""  # a lone word before the bar is a separable prefix
    forms, subjects, *more = fields
    stem, third, german_participle, *auxiliary = forms.split()
    reflexive = stem.startswith("sich_")
    stem = stem.removeprefix("sich_")
    head, _, particle = english.partition("_")
    tail = " " + particle.replace("_", " ") if particle else ""
    preposition, case = more[1].split() if len(more) > 1 else ("", default)
    return Verb(
        english.replace("_", " "), head + tail, _third(head) + tail, past + tail, participle + tail,
        _progressive(head) + tail,
        prefix + stem, stem, prefix, german.present(stem, third), german_participle,
        german.SEIN if auxiliary else german.HABEN, reflexive, state, _select(subjects),
        _select(more[0]) if more else (), preposition, case,  # type: ignore[arg-type]
    )  # fmt: skip


def _select(selector: str) -> tuple[Noun, ...]:
    return nouns(selector.replace("human", "person kin"))


def _table(text: str, case: str = "acc") -> dict[str, Verb]:
    verbs = [_read(line, case) for line in text.split("\n") if line]
    return {v.lemma: v for v in verbs}


TRANSITIVE, INTRANSITIVE, DATIVE = _table(_TRANSITIVE), _table(_INTRANSITIVE), _table(_DATIVE, "dat")
DITRANSITIVE, PREPOSITIONAL = _table(_DITRANSITIVE), _table(_PREPOSITIONAL)
ALL_VERBS = {**PREPOSITIONAL, **DITRANSITIVE, **DATIVE, **INTRANSITIVE, **TRANSITIVE}


def chosen(names: str, among: dict[str, Verb] = TRANSITIVE) -> tuple[Verb, ...]:
    """Verbs by name: `chosen("buy, look for")`."""
    return tuple(among[name] for name in words(names))


def without(verbs: tuple[Verb, ...], names: str) -> tuple[Verb, ...]:
    return tuple(v for v in verbs if v.lemma not in words(names))
