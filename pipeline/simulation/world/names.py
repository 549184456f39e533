"""Invents ids and labels: Freebase-like machine ids, and names with the irregularities of real ones."""

from __future__ import annotations

from random import Random

from pipeline.types import EntityId

IDS_PER_PART = 1 << 12
"""Ids reserved for one part of the graph (the hubs or a region); parts never share an id."""

_ID_BITS = 30
_DIGITS = "0123456789bcdfghjklmnpqrstvwxyz_"
_PAIRS = tuple(high + low for high in _DIGITS for low in _DIGITS)


class Ids:
    """The ids of one part of the graph: unique in the whole world, in an uninformative order."""

    def __init__(self, seed: int, part: int) -> None:
        self._next = part * IDS_PER_PART
        self._end = self._next + IDS_PER_PART
        self._shift = seed * 362_437_009

    def new(self, prefix: str = "m.0") -> EntityId:
        number = self._next
        assert number < self._end, "a part of the synthetic world needs more ids than IDS_PER_PART"
        self._next = number + 1
        # An odd factor permutes the numbers below 2^30, so ids created one after the other are not adjacent.
        mixed = (number * 663_608_941 + self._shift) & ((1 << _ID_BITS) - 1)
        return prefix + _PAIRS[mixed >> 20] + _PAIRS[mixed >> 10 & 1023] + _PAIRS[mixed & 1023]


class Labels:
    """Draws labels. People, works and places may share a label, as in real graphs."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._used: list[str] = []

    def person(self) -> str:
        rng = self._rng
        odd = rng.random()
        if odd < 0.03 and self._used:
            return rng.choice(self._used)
        first, last = rng.choice(_FIRST), rng.choice(_LAST)
        name = f"{first} {last}"
        if odd > 0.98:
            name = f'{first} "{rng.choice(_NOUNS)}" {last}'
        elif odd > 0.965:
            name = f"{name}, Jr."
        elif odd > 0.94:
            name = f"{first} {rng.choice(_FIRST)[0]}. {last}"
        self._used.append(name)
        return name

    def title(self) -> str:
        rng = self._rng
        odd = rng.random()
        if odd < 0.03 and self._used:
            return rng.choice(self._used)
        adjective, noun, other = rng.choice(_ADJECTIVES), rng.choice(_NOUNS), rng.choice(_NOUNS)
        title = rng.choice(_TITLES).format(adjective=adjective, noun=noun, other=other, place=rng.choice(_LAST))
        if odd > 0.94:
            title = rng.choice(_ODD_TITLES).replace("TITLE", title).replace("WORD", rng.choice(_NOUNS))
        self._used.append(title)
        return title

    def place(self) -> str:
        rng = self._rng
        name = rng.choice(_LAST) + rng.choice(_PLACE_ENDS)
        return f"{rng.choice(_PLACE_FRONTS)} {name}" if rng.random() < 0.15 else name

    def character(self) -> str:
        rng = self._rng
        return f"{rng.choice(_RANKS)} {rng.choice(_LAST)}" if rng.random() < 0.6 else rng.choice(_FIRST)

    def sentence(self) -> str:
        """Return free text with punctuation and letters that break careless parsers."""
        rng = self._rng
        words = {"adjective": rng.choice(_ADJECTIVES).lower(), "noun": rng.choice(_NOUNS).lower()}
        return rng.choice(_SENTENCES).format(place=rng.choice(_LAST), **words)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _family_names() -> tuple[str, ...]:
    fronts = _words(
        "Bar Bel Cor Dal Dra Fen Gar Hal Har Jor Kal Lan Lor Mal Mar Nor Ost Pel Quin Ras Sel Tam Tor Ul Van Ver Wil"
    )
    ends = _words(
        "ado aro bek bray deth din elli eno gard hart iano ic keth low mont na ović rad ris sen son tari tello vik wyn"
    )
    return tuple(front + end for front in fronts for end in ends) + _RARE_NAMES


_RARE_NAMES = (
    *_words("O'Brann d'Arvé Núñez-Vail Çelmar Šarić Ðorvan M'Benga Łubień"),
    *("Le Goëllic", "van der Mëer", "St. Clair-Øst"),
)
_FIRST = _words(
    "Adela Aldo Amara Anselm Aster Beatriz Bram Callum Carys Chidi Cosima Dagny Darius Delphine Eamon Edda Elif "
    "Emeka Esben Fabian Farah Fintan Flora Gemma Gideon Greta Hana Hugo Ida Ilse Imran Ines Ivo Jana Joaquín Jonas "
    "Kaveh Keiko Lars Leila Lucian Maeve Magnus Marisol Mateo Mirela Nadia Niamh Nils Noor Octavia Olga Oskar Petra "
    "Rafael Renée Rohan Sabine Silas Sören Tamsin Teodor Thandi Ulla Viggo Wanda Xenia Yusuf Zadie Zoltan"
)
_LAST = _family_names()
_PLACE_FRONTS = ("New", "Port", "San", "Upper", "Saint", "East")
_PLACE_ENDS = ("", "", "ville", " Bay", "burg", " Falls", "stad", " Heights", "ford", "-sur-Mer")
_RANKS = ("Captain", "Detective", "Doctor", "Lady", "Sergeant", "Professor", "Sister", "Agent", "Old", "Judge")
_ADJECTIVES = _words(
    "Amber Bitter Borrowed Broken Burning Crimson Distant Electric Empty Fallen Frozen Gentle Gilded Golden Hidden "
    "Hollow Iron Last Lonely Lost Midnight Paper Quiet Restless Rusted Salted Savage Scarlet Second Secret Seventh "
    "Silent Silver Slow Stolen Sunken Tender Velvet Wandering Winter"
)
_NOUNS = _words(
    "Anchor Ashes Bridge Canary Carnival Cathedral Circus Clock Compass Crown Daughter Desert Echo Ember Engine "
    "Feather Ferry Garden Ghost Harbor Harvest Heron Horizon Island Journey Kingdom Lantern Letter Lighthouse Lion "
    "Machine Map Meadow Mirror Moon Mountain Needle Ocean Orchard Orphan Palace Parade Pilgrim Promise River Road "
    "Sailor Shadow Sparrow Station Stranger Summer Thief Thunder Tide Tower Valley Violin Widow Window Witness Wolf"
)
_TITLES = (
    "The {adjective} {noun}",
    "{adjective} {noun}",
    "The {noun} of {place}",
    "{noun} and {other}",
    "A {noun} for the {other}",
    "The {noun}'s {other}",
    "{adjective} {noun}, {adjective} {other}",
    "Return to {place}",
    "{noun} in the {adjective} {other}",
)
_ODD_TITLES = (
    'TITLE: "WORD"',
    '"TITLE"',
    "TITLE {WORD}",
    "TITLE <WORD>",
    "TITLE [WORD]",
    "TITLE (Part 2), or WORD & Co.",
    "¿TITLE?",
    "TITLE – «WORD»",
    "Täumë: TITLE",
    "TITLE / WORD #9",
)
_SENTENCES = (
    'They called it "{noun}", and the {adjective} one (of {place}) answered.',
    "One {noun}, two lies; {adjective} & unforgiven — since {place}…",
    "In {place}, every {noun} is {adjective} [or so they say].",
    "Où est le {noun}? <Ask in {place}>, 'said the {adjective} man'.",
    "100% {adjective}: a {noun} {{unlike}} any other, from {place}",
)
