"""The bilingual lexicon: nouns, adjectives, names and numbers with their classes. Knows no sentences.

Every English word has exactly one German word, which makes the corpus a function of its English side.
"""

from dataclasses import dataclass
from functools import cache


def words(text: str) -> tuple[str, ...]:
    """The words of a list, which commas part where one of them has a space in it."""
    return tuple(text.split(", " if "," in text else None))


def table(text: str) -> dict[str, str]:
    """Rows of `key: value`, parted by semicolons and line ends."""
    rows = (row.partition(": ") for row in text.strip().replace("\n", "; ").split("; "))
    return {key: value for key, _, value in rows}


# A class: its nouns, as English, German, gender (* = weak declension), German plural (- = none), further classes.
# Plurals that look like the singular are written out as well, so that the table can be read without a rule book.
_NOUNS = """
person: man Mann m Männer adult, woman Frau f Frauen adult, child Kind n Kinder kid, boy Junge m* Jungen kid
person: girl Mädchen n Mädchen kid, teacher Lehrer m Lehrer job, doctor Arzt m Ärzte job
person: student Student m* Studenten job, baker Bäcker m Bäcker job, farmer Bauer m* Bauern job, cook Koch m Köche job
person: gardener Gärtner m Gärtner job, painter Maler m Maler job, nurse Krankenschwester f Krankenschwestern job
person: waiter Kellner m Kellner job, waitress Kellnerin f Kellnerinnen job, guest Gast m Gäste
kin: neighbour Nachbar m* Nachbarn, friend Freund m Freunde, brother Bruder m Brüder, sister Schwester f Schwestern
kin: mother Mutter f Mütter, father Vater m Väter, grandmother Großmutter f Großmütter
kin: grandfather Großvater m Großväter, daughter Tochter f Töchter, son Sohn m Söhne, uncle Onkel m Onkel
kin: aunt Tante f Tanten
beast: animal Tier n Tiere big_animal, dog Hund m Hunde big_animal pet, cat Katze f Katzen pet
beast: horse Pferd n Pferde big_animal farm, bird Vogel m Vögel pet, cow Kuh f Kühe big_animal farm
beast: pig Schwein n Schweine farm, mouse Maus f Mäuse pet, duck Ente f Enten farm
beast: goat Ziege f Ziegen big_animal farm, fox Fuchs m Füchse, donkey Esel m Esel big_animal farm
beast: rabbit Kaninchen n Kaninchen pet
text: book Buch n Bücher good lie small, letter Brief m Briefe lie small, newspaper Zeitung f Zeitungen good lie small
work: story Geschichte f Geschichten, poem Gedicht n Gedichte, song Lied n Lieder, film Film m Filme
work: game Spiel n Spiele
good: picture Bild n Bilder, map Karte f Karten lie small
food: bread Brot n - mass, apple Apfel m Äpfel fruit, pear Birne f Birnen fruit, cake Kuchen m Kuchen
food: soup Suppe f - mass, egg Ei n Eier, cheese Käse m - mass, fish Fisch m -, tomato Tomate f Tomaten fruit
food: salad Salat m Salate, meat Fleisch n - mass
drink: water Wasser n - mass, milk Milch f - mass, coffee Kaffee m - mass, tea Tee m - mass, juice Saft m - mass
drink: beer Bier n - mass
clothes: coat Mantel m Mäntel good lie, shirt Hemd n Hemden good lie, dress Kleid n Kleider good lie
clothes: hat Hut m Hüte good lie small, jacket Jacke f Jacken good lie, skirt Rock m Röcke good lie
furniture: table Tisch m Tische good, chair Stuhl m Stühle good, bed Bett n Betten good
good: lamp Lampe f Lampen device stand
furniture: cupboard Schrank m Schränke good, sofa Sofa n Sofas good, bench Bank f Bänke
good: mirror Spiegel m Spiegel, carpet Teppich m Teppiche
vehicle: car Auto n Autos good, bus Bus m Busse, train Zug m Züge
good: bicycle Fahrrad n Fahrräder
vehicle: ship Schiff n Schiffe, truck Lastwagen m Lastwagen
good: clock Uhr f Uhren device, computer Computer m Computer device, radio Radio n Radios device stand
good: camera Kamera f Kameras device lie small
device: machine Maschine f Maschinen
container: bag Tasche f Taschen good stand, suitcase Koffer m Koffer good stand, box Kiste f Kisten stand
container: basket Korb m Körbe good stand, package Paket n Pakete lie
stand: bottle Flasche f Flaschen small, cup Tasse f Tassen small good, glass Glas n Gläser small
lie: key Schlüssel m Schlüssel small, knife Messer n Messer small, ball Ball m Bälle small good
lie: umbrella Regenschirm m Regenschirme good
stand: candle Kerze f Kerzen small
lie: present Geschenk n Geschenke small
: ladder Leiter f Leitern
part: door Tür f Türen, window Fenster n Fenster, roof Dach n Dächer
barrier: wall Mauer f Mauern, fence Zaun m Zäune, gate Tor n Tore
inside: room Zimmer n Zimmer, kitchen Küche f Küchen
area: garden Garten m Gärten
building: house Haus n Häuser, school Schule f Schulen, church Kirche f Kirchen, shop Laden m Läden
building: hospital Krankenhaus n Krankenhäuser, hotel Hotel n Hotels, restaurant Restaurant n Restaurants
building: station Bahnhof m Bahnhöfe, museum Museum n Museen, theatre Theater n Theater
building: library Bibliothek f Bibliotheken
inside: office Büro n Büros
town: city Stadt f Städte, village Dorf n Dörfer
area: park Park m Parks, forest Wald m Wälder
way: street Straße f Straßen, bridge Brücke f Brücken, square Platz m Plätze, river Fluss m Flüsse
nature: lake See m Seen, field Feld n Felder, island Insel f Inseln
: tree Baum m Bäume, flower Blume f Blumen
idea: question Frage f Fragen, answer Antwort f Antworten, word Wort n Wörter, sentence Satz m Sätze
idea: problem Problem n Probleme, task Aufgabe f Aufgaben
: language Sprache f Sprachen
idea: plan Plan m Pläne
: exam Prüfung f Prüfungen, party Fest n Feste, holiday Urlaub m -
"""

_ENGLISH_PLURALS = {"man": "men", "woman": "women", "child": "children", "mouse": "mice", "knife": "knives"}

# English, comparative (~ none), German, comparative, the nouns it describes (names or classes); ~ in front:
# never before a noun.
_ADJECTIVES = """
old|older|alt|älter|roof person beast building furniture vehicle clothes device good town bridge wall
young|younger|jung|jünger|man woman doctor teacher farmer painter gardener cook waiter waitress beast
new|newer|neu|neuer|gate roof building furniture vehicle clothes device container good bridge fence work \
kitchen office
big|bigger|groß|größer|square beast building furniture vehicle container area town tree room kitchen \
window mirror carpet lake field problem apple fish
small|smaller|klein|kleiner|beast building furniture container area town tree room kitchen window mirror \
carpet lake problem apple key knife candle present
beautiful|more beautiful|schön|schöner|tree square church house city village garden park flower dress \
picture song island lake poem horse bird story
expensive|more expensive|teuer|teurer|good restaurant hotel
cheap|cheaper|billig|billiger|good restaurant hotel
heavy|heavier|schwer|schwerer|container furniture machine truck ladder
long|longer|lang|länger|street river bridge story letter film dress coat skirt ladder wall sentence \
holiday train poem
short|shorter|kurz|kürzer|story letter film dress skirt answer sentence holiday poem song
wide|wider|breit|breiter|street river bridge bench bed gate
narrow|narrower|schmal|schmaler|street bridge river door bench bed gate
deep|deeper|tief|tiefer|river lake
~high|higher|hoch|höher|wall fence gate roof
dangerous|more dangerous|gefährlich|gefährlicher|street bridge river dog forest knife machine game
fast|faster|schnell|schneller|vehicle bicycle horse dog fox computer
slow|slower|langsam|langsamer|vehicle bicycle donkey pig computer
strong|stronger|stark|stärker|man woman boy brother son horse dog cow donkey beer coffee
weak|weaker|schwach|schwächer|man grandfather grandmother beast
tired|~|müde|~|person kin beast
hungry|hungrier|hungrig|hungriger|person kin beast
thirsty|~|durstig|~|person kin beast
sick|~|krank|~|person kin beast
happy|happier|glücklich|glücklicher|person kin
sad|sadder|traurig|trauriger|person kin song film story
angry|~|wütend|~|person kin dog
nervous|~|nervös|~|person kin beast
lazy|lazier|faul|fauler|man student boy brother son friend beast
friendly|friendlier|freundlich|freundlicher|person kin dog
clever|cleverer|klug|klüger|person kin dog fox horse
famous|more famous|berühmt|berühmter|painter cook doctor city museum church picture book film song poem
rich|richer|reich|reicher|person kin city -kid
hot|hotter|heiß|heißer|drink soup
cold|colder|kalt|kälter|water milk juice tea beer coffee soup room lake
warm|warmer|warm|wärmer|milk water soup room kitchen coat jacket bed
fresh|fresher|frisch|frischer|bread egg fish milk salad cheese fruit meat juice
sweet|sweeter|süß|süßer|cake apple pear tea juice
salty|saltier|salzig|salziger|soup cheese fish salad meat
red|~|rot|~|roof clothes car bus bicycle door flower container sofa apple ball cup
blue|~|blau|~|clothes car bus bicycle door flower bag suitcase sofa ball cup
green|~|grün|~|clothes car bicycle door window fence bag suitcase sofa apple pear
black|~|schwarz|~|clothes car cat horse dog bag suitcase bird
white|~|weiß|~|clothes house horse cat bird ship flower wall rabbit duck
clean|cleaner|sauber|sauberer|clothes car room kitchen window street cup glass knife hotel
dirty|dirtier|schmutzig|schmutziger|roof clothes car room kitchen window street cup glass dog pig carpet
wet|~|nass|~|square clothes dog street field carpet newspaper bench
empty|emptier|leer|leerer|square container bus glass bottle restaurant hotel church cupboard
full|fuller|voll|voller|container bus train glass restaurant hotel theatre cupboard
~broken|~|kaputt|~|device car bus bicycle chair mirror window door gate
loud|louder|laut|lauter|square radio machine street city bus kid
quiet|quieter|ruhig|ruhiger|garden church office restaurant kid street village room hotel park library island
bright|brighter|hell|heller|lamp room kitchen candle office
dark|darker|dunkel|dunkler|room forest street kitchen church office house garden
round|~|rund|~|table mirror window carpet basket clock
soft|softer|weich|weicher|bed sofa carpet bread cheese
hard|harder|hart|härter|bread bed chair cheese bench
comfortable|more comfortable|bequem|bequemer|chair bed sofa bench car
interesting|more interesting|interessant|interessanter|book letter newspaper story film museum city \
question game plan
boring|more boring|langweilig|langweiliger|book newspaper story film game museum village
exciting|more exciting|spannend|spannender|book story film game
important|more important|wichtig|wichtiger|letter question answer exam problem plan word key
difficult|more difficult|schwierig|schwieriger|question task exam language problem game sentence
easy|easier|einfach|einfacher|question task exam language game sentence answer
funny|funnier|lustig|lustiger|film story song book letter picture answer
modern|more modern|modern|moderner|building kitchen office machine computer hospital
thick|thicker|dick|dicker|book coat carpet wall
"""

MASCULINE_NAMES = ("Paul", "Peter", "Thomas", "Lukas", "Max")
FEMININE_NAMES = ("Anna", "Maria", "Emma", "Julia", "Laura")

NUMBERS = table("""
two: zwei; three: drei; four: vier; five: fünf; six: sechs; seven: sieben; eight: acht; nine: neun; ten: zehn
eleven: elf; twelve: zwölf; twenty: zwanzig; thirty: dreißig; forty: vierzig; fifty: fünfzig; sixty: sechzig
seventy: siebzig; eighty: achtzig; ninety: neunzig
""")

WEEKDAYS = table("""
Monday: Montag; Tuesday: Dienstag; Wednesday: Mittwoch; Thursday: Donnerstag; Friday: Freitag; Saturday: Samstag
Sunday: Sonntag
""")
PAST_TIMES = {"yesterday": "gestern", "last week": "letzte Woche", "last year": "letztes Jahr",
              "last night": "gestern Abend", "this morning": "heute Morgen"}  # fmt: skip
FUTURE_TIMES = {"tomorrow": "morgen", "next week": "nächste Woche", "next year": "nächstes Jahr",
                "tonight": "heute Abend", "soon": "bald"}  # fmt: skip
FREQUENCY = {"often": "oft", "always": "immer", "sometimes": "manchmal", "rarely": "selten", "usually": "meistens"}
UNITS = {"minute": ("Minute", "Minuten", "minutes"), "hour": ("Stunde", "Stunden", "hours"),
         "day": ("Tag", "Tagen", "days"), "week": ("Woche", "Wochen", "weeks"),
         "month": ("Monat", "Monaten", "months"), "year": ("Jahr", "Jahren", "years")}  # fmt: skip


def rows(text: str) -> tuple[tuple[str, ...], ...]:
    """Rows of `field|field|…`, parted as those of `table`; a row that stands twice is drawn twice as often."""
    return tuple(tuple(row.split("|")) for row in text.strip().replace("\n", "; ").split("; "))


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    english: str
    english_plural: str
    german: str
    gender: str  # m, f or n
    german_plural: str  # "-" where the noun has none here
    weak: bool
    classes: frozenset[str]

    @property
    def lemma(self) -> str:
        return self.english

    @property
    def mass(self) -> bool:
        return "mass" in self.classes

    @property
    def sex(self) -> str | None:
        """m or f where English would say he or she, None where it would say it or neither."""
        return self.gender if self.gender != "n" and self.classes & {"person", "kin"} else None


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    english: str
    english_comparative: str  # "~" where the grammar does not compare
    german: str
    german_comparative: str
    attributive: bool

    @property
    def lemma(self) -> str:
        return self.english


def _plural(word: str) -> str:
    if word in _ENGLISH_PLURALS:
        return _ENGLISH_PLURALS[word]
    if word.endswith(("s", "x", "ch", "sh")) or word == "tomato":
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _read_nouns() -> dict[str, Noun]:
    nouns = {}
    for line in _NOUNS.strip().split("\n"):
        first, members = line.split(":")
        for member in members.split(","):
            english, german, gender, plural, *more = member.split()
            weak, kinds = gender.endswith("*"), frozenset((*first.split(), *more))
            nouns[english] = Noun(english, _plural(english), german, gender[0], plural, weak, kinds)
    return nouns


NOUNS = _read_nouns()


@cache
def nouns(selector: str) -> tuple[Noun, ...]:
    """Nouns by classes, names and -exclusions, in lexicon order: `nouns("clothes book -hat")`."""
    words = selector.split()
    known = {c for n in NOUNS.values() for c in n.classes} | set(NOUNS)
    unknown = [w for w in words if w.removeprefix("-") not in known]
    assert not unknown, f"no such noun or class: {unknown}"
    wanted = {w for w in words if not w.startswith("-")}
    barred = {w[1:] for w in words if w.startswith("-")}
    return tuple(
        n
        for n in NOUNS.values()
        if (n.english in wanted or n.classes & wanted) and n.english not in barred and not n.classes & barred
    )


def _read_adjectives() -> tuple[dict[str, Adjective], dict[str, tuple[Adjective, ...]]]:
    adjectives, fitting = {}, {n: [] for n in NOUNS}  # type: ignore[var-annotated]
    for line in _ADJECTIVES.split("\n"):
        if line:
            english, comparative, german, german_comparative, selector = line.split("|")
            word = english.removeprefix("~")
            adjective = Adjective(word, comparative, german, german_comparative, not english.startswith("~"))
            adjectives[word] = adjective
            for noun in nouns(selector):
                fitting[noun.english].append(adjective)
    return adjectives, {n: tuple(a) for n, a in fitting.items()}


ADJECTIVES, FITTING = _read_adjectives()
