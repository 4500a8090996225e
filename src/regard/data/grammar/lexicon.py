"""The bilingual lexicon: nouns, adjectives, names and numbers with their classes. Knows no sentences.

Every English word has exactly one German word, which makes the corpus a function of its English side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# English, German, gender (* = weak declension), German plural (- = none), classes. Plurals that look like the
# singular are written out as well, so that the table can be read without a rule book.
_NOUNS = """
man Mann m Männer person adult
woman Frau f Frauen person adult
child Kind n Kinder person kid
boy Junge m* Jungen person kid
girl Mädchen n Mädchen person kid
teacher Lehrer m Lehrer person job
doctor Arzt m Ärzte person job
student Student m* Studenten person job
baker Bäcker m Bäcker person job
farmer Bauer m* Bauern person job
cook Koch m Köche person job
gardener Gärtner m Gärtner person job
painter Maler m Maler person job
nurse Krankenschwester f Krankenschwestern person job
waiter Kellner m Kellner person job
waitress Kellnerin f Kellnerinnen person job
guest Gast m Gäste person
neighbour Nachbar m* Nachbarn kin
friend Freund m Freunde kin
brother Bruder m Brüder kin
sister Schwester f Schwestern kin
mother Mutter f Mütter kin
father Vater m Väter kin
grandmother Großmutter f Großmütter kin
grandfather Großvater m Großväter kin
daughter Tochter f Töchter kin
son Sohn m Söhne kin
uncle Onkel m Onkel kin
aunt Tante f Tanten kin
animal Tier n Tiere beast big_animal
dog Hund m Hunde beast big_animal pet
cat Katze f Katzen beast pet
horse Pferd n Pferde beast big_animal farm
bird Vogel m Vögel beast pet
cow Kuh f Kühe beast big_animal farm
pig Schwein n Schweine beast farm
mouse Maus f Mäuse beast pet
duck Ente f Enten beast farm
goat Ziege f Ziegen beast big_animal farm
fox Fuchs m Füchse beast
donkey Esel m Esel beast big_animal farm
rabbit Kaninchen n Kaninchen beast pet
book Buch n Bücher text good lie small
letter Brief m Briefe text lie small
newspaper Zeitung f Zeitungen text good lie small
story Geschichte f Geschichten work
poem Gedicht n Gedichte work
song Lied n Lieder work
film Film m Filme work
game Spiel n Spiele work
picture Bild n Bilder good
map Karte f Karten good lie small
bread Brot n - food mass
apple Apfel m Äpfel food fruit
pear Birne f Birnen food fruit
cake Kuchen m Kuchen food
soup Suppe f - food mass
egg Ei n Eier food
cheese Käse m - food mass
fish Fisch m - food
tomato Tomate f Tomaten food fruit
salad Salat m Salate food
meat Fleisch n - food mass
water Wasser n - drink mass
milk Milch f - drink mass
coffee Kaffee m - drink mass
tea Tee m - drink mass
juice Saft m - drink mass
beer Bier n - drink mass
coat Mantel m Mäntel clothes good lie
shirt Hemd n Hemden clothes good lie
dress Kleid n Kleider clothes good lie
hat Hut m Hüte clothes good lie small
jacket Jacke f Jacken clothes good lie
skirt Rock m Röcke clothes good lie
table Tisch m Tische furniture good
chair Stuhl m Stühle furniture good
bed Bett n Betten furniture good
lamp Lampe f Lampen good device stand
cupboard Schrank m Schränke furniture good
sofa Sofa n Sofas furniture good
bench Bank f Bänke furniture
mirror Spiegel m Spiegel good
carpet Teppich m Teppiche good
car Auto n Autos vehicle good
bus Bus m Busse vehicle
train Zug m Züge vehicle
bicycle Fahrrad n Fahrräder good
ship Schiff n Schiffe vehicle
truck Lastwagen m Lastwagen vehicle
clock Uhr f Uhren good device
computer Computer m Computer good device
radio Radio n Radios good device stand
camera Kamera f Kameras good device lie small
machine Maschine f Maschinen device
bag Tasche f Taschen container good stand
suitcase Koffer m Koffer container good stand
box Kiste f Kisten container stand
basket Korb m Körbe container good stand
package Paket n Pakete container lie
bottle Flasche f Flaschen stand small
cup Tasse f Tassen stand small good
glass Glas n Gläser stand small
key Schlüssel m Schlüssel lie small
knife Messer n Messer lie small
ball Ball m Bälle lie small good
umbrella Regenschirm m Regenschirme lie good
candle Kerze f Kerzen stand small
present Geschenk n Geschenke lie small
ladder Leiter f Leitern
door Tür f Türen part
window Fenster n Fenster part
roof Dach n Dächer part
wall Mauer f Mauern barrier
fence Zaun m Zäune barrier
gate Tor n Tore barrier
room Zimmer n Zimmer inside
kitchen Küche f Küchen inside
garden Garten m Gärten area
house Haus n Häuser building
school Schule f Schulen building
church Kirche f Kirchen building
shop Laden m Läden building
hospital Krankenhaus n Krankenhäuser building
hotel Hotel n Hotels building
restaurant Restaurant n Restaurants building
station Bahnhof m Bahnhöfe building
museum Museum n Museen building
theatre Theater n Theater building
library Bibliothek f Bibliotheken building
office Büro n Büros inside
city Stadt f Städte town
village Dorf n Dörfer town
park Park m Parks area
forest Wald m Wälder area
street Straße f Straßen way
bridge Brücke f Brücken way
square Platz m Plätze way
river Fluss m Flüsse way
lake See m Seen nature
field Feld n Felder nature
island Insel f Inseln nature
tree Baum m Bäume
flower Blume f Blumen
question Frage f Fragen idea
answer Antwort f Antworten idea
word Wort n Wörter idea
sentence Satz m Sätze idea
problem Problem n Probleme idea
task Aufgabe f Aufgaben idea
language Sprache f Sprachen
plan Plan m Pläne idea
exam Prüfung f Prüfungen
party Fest n Feste
holiday Urlaub m -
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

NUMBERS = {
    "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs", "seven": "sieben",
    "eight": "acht", "nine": "neun", "ten": "zehn", "eleven": "elf", "twelve": "zwölf",
    "twenty": "zwanzig", "thirty": "dreißig", "forty": "vierzig", "fifty": "fünfzig", "sixty": "sechzig",
    "seventy": "siebzig", "eighty": "achtzig", "ninety": "neunzig",
}  # fmt: skip

WEEKDAYS = {
    "Monday": "Montag", "Tuesday": "Dienstag", "Wednesday": "Mittwoch", "Thursday": "Donnerstag",
    "Friday": "Freitag", "Saturday": "Samstag", "Sunday": "Sonntag",
}  # fmt: skip
PAST_TIMES = {"yesterday": "gestern", "last week": "letzte Woche", "last year": "letztes Jahr",
              "last night": "gestern Abend", "this morning": "heute Morgen"}  # fmt: skip
FUTURE_TIMES = {"tomorrow": "morgen", "next week": "nächste Woche", "next year": "nächstes Jahr",
                "tonight": "heute Abend", "soon": "bald"}  # fmt: skip
FREQUENCY = {"often": "oft", "always": "immer", "sometimes": "manchmal", "rarely": "selten", "usually": "meistens"}
UNITS = {"minute": ("Minute", "Minuten", "minutes"), "hour": ("Stunde", "Stunden", "hours"),
         "day": ("Tag", "Tagen", "days"), "week": ("Woche", "Wochen", "weeks"),
         "month": ("Monat", "Monaten", "months"), "year": ("Jahr", "Jahren", "years")}  # fmt: skip
# Words of no table: determiners, pronouns, prepositions, conjunctions, auxiliaries, particles.
FUNCTION_LEMMAS = words("""
the a no this my your his her its our their I you he she it we they who what where when why how which
many be have do will would can must may should and but because that if although while before so whether
in on under behind into to at for with without of onto over by than as too very not still already yet
there please let next front one o'clock half past quarter euro more time money home every ago any being
""")


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
    if word.endswith(("s", "x", "ch", "sh")) or word in ("tomato",):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _read_nouns() -> dict[str, Noun]:
    nouns = {}
    for line in _NOUNS.split("\n"):
        if line:
            english, german, gender, plural, *classes = line.split()
            weak = gender.endswith("*")
            nouns[english] = Noun(english, _plural(english), german, gender[0], plural, weak, frozenset(classes))
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
