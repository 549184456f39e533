"""Builds a region: a few thousand facts about people, works and places, linked only to the hubs outside of it.

Every entity except the hubs belongs to exactly one region, so the facts of a region and of the hubs determine every
question about the region's entities. So memory is constant and the gold answers are complete for a world of any size.
"""

from __future__ import annotations

from itertools import cycle, pairwise

from pipeline.simulation.world.facts import Facts
from pipeline.types import EntityId

REGION_TRIPLES = 6_000
"""Facts per region. A world below this size is one smaller region."""

_ROLES = ("actor", "director", "actor", "author", "actor", "artist", "actor", "politician")
_ROLE_TYPES = {
    "actor": "film.actor",
    "artist": "music.artist",
    "author": "book.author",
    "director": "film.director",
    "politician": "government.politician",
}
_WORKS = ("film", "book", "film", "album", "film")


def build_region(hubs: Facts, seed: int, index: int, budget: int) -> Facts:
    """Build region `index` of the world with about `budget` facts."""
    builder = _Region(hubs, Facts(seed, index + 1), budget / REGION_TRIPLES)
    builder.add_places()
    builder.add_people()
    builder.add_families()
    builder.add_works(until=budget)
    return builder.facts


class _Region:
    """One region under construction. `scale` reduces the number of people and places in small worlds."""

    def __init__(self, hubs: Facts, facts: Facts, scale: float) -> None:
        self.facts = facts
        self._hubs = hubs.members
        self._members = facts.members
        self._rng = facts.rng
        self._scale = scale
        self._by_role: dict[str, list[EntityId]] = {role: [] for role in _ROLES}
        self._birth_year: dict[EntityId, int] = {}

    def add_places(self) -> None:
        """Add cities with a dated population, universities and film companies."""
        facts, rng = self.facts, self._rng
        for _ in range(self._count(6)):
            city = facts.entity("city", facts.labels.place(), "location.location")
            facts.link(city, "location.location.containedby", self._hub("country"))
            facts.state(city, "location.location.area", _decimal(rng.randint(80, 9999) / 10), "decimal")
            population = facts.mediator("measurement_unit.dated_integer")
            facts.link(city, "location.statistical_region.population", population)
            size = int(10 ** rng.uniform(3.5, 6.5))
            facts.state(population, "measurement_unit.dated_integer.number", str(size), "integer")
            facts.state(population, "measurement_unit.dated_integer.year", str(rng.randint(1990, 2015)), "gYear")
        for _ in range(self._count(4)):
            city = rng.choice(self._members["city"])
            front = rng.choice(("University of {}", "{} College", "{} Institute of Technology"))
            university = facts.entity("university", front.replace("{}", facts.names[city]))
            facts.link(university, "location.location.containedby", city)
            facts.date(university, "organization.organization.date_founded", rng.randint(1500, 1950))
        for _ in range(self._count(3)):
            company = facts.entity("company", f"{facts.labels.place()} {rng.choice(('Pictures', 'Studios', 'Films'))}")
            facts.link(company, "organization.organization.place_founded", self._local("city"))
            facts.date(company, "organization.organization.date_founded", rng.randint(1905, 1980))

    def add_people(self) -> None:
        """Add people with their roles. The first third are elders, who get marriages and children."""
        count = max(12, round(110 * self._scale))
        for number, role in zip(range(count), cycle(_ROLES), strict=False):
            self._add_person(role, elder=number < count // 3)
        for company in self._members["company"]:
            self.facts.link(company, "organization.organization.founders", self._local("person"))

    def add_families(self) -> None:
        """Add marriages between elders (some marry twice), their children, and a few younger couples."""
        facts, rng, people = self.facts, self._rng, self._members["person"]
        elders, younger = people[: len(people) // 3], people[len(people) // 3 :]
        couples = [(one, other) for one, other in pairwise(elders) if rng.random() < 0.6]
        for one, other in couples + list(zip(younger[1::6], younger[3::6], strict=False)):
            self._add_marriage(one, other)
        for child in younger[: 2 * len(couples) + 2] if couples else ():
            for parent in couples[int(rng.random() ** 2 * len(couples))]:
                facts.link(child, "people.person.parents", parent)

    def add_works(self, until: int) -> None:
        """Add films, books and albums until the region has its size."""
        for work in cycle(_WORKS):
            if len(self.facts.triples) >= until:
                break
            if work == "film":
                self._add_film()
            elif work == "book":
                self._add_book()
            else:
                self._add_album()

    def _add_person(self, role: str, *, elder: bool) -> None:
        facts, rng = self.facts, self._rng
        person = facts.entity("person", facts.labels.person(), _ROLE_TYPES[role])
        self._by_role[role].append(person)
        year = rng.randint(1900, 1939) if elder else rng.randint(1940, 1995)
        self._birth_year[person] = year
        facts.date(person, "people.person.date_of_birth", year, exact=0.96)
        facts.link(person, "people.person.gender", self._hub("gender"))
        facts.link(person, "people.person.nationality", self._hub("country"))
        facts.link(person, "people.person.place_of_birth", self._local("city"))
        for profession in dict.fromkeys((self._hub("profession"), self._hub("profession"))):
            facts.link(person, "people.person.profession", profession)
        if rng.random() < 0.6:
            facts.state(person, "people.person.height_meters", _decimal(rng.randint(150, 205) / 100), "decimal")
        if rng.random() < 0.3:
            facts.link(person, "people.person.religion", self._hub("religion"))
        if elder and rng.random() < 0.7:
            facts.link(person, "people.deceased_person.place_of_death", self._local("city"))
        if rng.random() < 0.55:
            self._add_education(person, year + 18)
        if role == "politician":
            for _ in range(rng.randint(1, 3)):
                self._add_tenure(person, year + rng.randint(28, 50))

    def _add_education(self, person: EntityId, year: int) -> None:
        facts = self.facts
        education = facts.mediator("education.education")
        facts.link(person, "people.person.education", education)
        facts.link(education, "education.education.institution", self._local("university"))
        facts.link(education, "education.education.degree", self._hub("degree"))
        facts.date(education, "education.education.start_date", year, exact=0.1)

    def _add_tenure(self, person: EntityId, year: int) -> None:
        facts = self.facts
        tenure = facts.mediator("government.government_position_held")
        facts.link(person, "government.politician.government_positions_held", tenure)
        facts.link(tenure, "government.government_position_held.office_position_or_title", self._hub("office"))
        facts.link(tenure, "government.government_position_held.jurisdiction_of_office", self._local("city"))
        facts.date(tenure, "government.government_position_held.from", year)
        facts.date(tenure, "government.government_position_held.to", year + self._rng.randint(2, 12))

    def _add_marriage(self, one: EntityId, other: EntityId) -> None:
        facts = self.facts
        marriage = facts.mediator("people.marriage")
        facts.link(one, "people.person.spouse_s", marriage)
        facts.link(other, "people.person.spouse_s", marriage)
        year = max(self._birth_year[one], self._birth_year[other]) + self._rng.randint(19, 40)
        facts.date(marriage, "people.marriage.from", year)

    def _add_award(self, winner: EntityId, year: int, work: EntityId | None = None) -> None:
        facts = self.facts
        honor = facts.mediator("award.award_honor")
        facts.link(winner, "award.award_winner.awards_won", honor)
        facts.link(honor, "award.award_honor.award", self._hub("award"))
        facts.state(honor, "award.award_honor.year", str(year), "gYear")
        if work is not None:
            facts.link(honor, "award.award_honor.honored_for", work)

    def _add_film(self) -> None:
        facts, rng, films = self.facts, self._rng, self._members["film"]
        book = self._local("book") if self._members["book"] and rng.random() < 0.25 else None
        first = rng.choice(films) if book is None and films and rng.random() < 0.2 else None
        film = facts.entity("film", self._film_title(book, first))
        if book is not None:
            facts.link(film, "media_common.adaptation.adapted_from", book)
        if first is not None:
            facts.link(first, "film.film.sequel", film)
        year = rng.randint(1950, 2014)
        director = self._role("director")
        facts.link(film, "film.film.directed_by", director)
        facts.link(film, "film.film.production_companies", self._local("company"))
        facts.link(film, "film.film.featured_film_locations", self._local("city"))
        facts.link(film, "film.film.language", self._hub("language"))
        facts.link(film, "film.film.country", self._hub("country"))
        for genre in dict.fromkeys((self._hub("film_genre"), self._hub("film_genre"))):
            facts.link(film, "film.film.genre", genre)
        facts.date(film, "film.film.initial_release_date", year, exact=0.98)
        cut = facts.mediator("film.film_cut")
        facts.link(film, "film.film.runtime", cut)
        facts.state(cut, "film.film_cut.runtime", _decimal(rng.randint(130, 420) / 2), "decimal")
        if rng.random() < 0.3:
            facts.say(film, "film.film.tagline", facts.labels.sentence())
        cast = list(dict.fromkeys(self._role("actor") for _ in range(rng.randint(3, 7))))
        for actor in cast:
            self._add_performance(film, actor)
        if rng.random() < 0.4:
            self._add_award(rng.choice((director, cast[0])), year + 1, film)

    def _add_performance(self, film: EntityId, actor: EntityId) -> None:
        facts, rng, characters = self.facts, self._rng, self._members["character"]
        performance = facts.mediator("film.performance")
        facts.link(film, "film.film.starring", performance)
        facts.link(actor, "film.actor.film", performance)
        if rng.random() < 0.5:
            known = characters and rng.random() < 0.4
            character = rng.choice(characters) if known else facts.entity("character", facts.labels.character())
            facts.link(performance, "film.performance.character", character)

    def _film_title(self, book: EntityId | None, first: EntityId | None) -> str:
        """Return the title of a film: that of the book it is made from, a sequel with a number, or a new title."""
        if book is not None:
            return self.facts.names[book]
        return f"{self.facts.names[first]} II" if first is not None else self.facts.labels.title()

    def _add_book(self) -> None:
        facts, rng = self.facts, self._rng
        book = facts.entity("book", facts.labels.title())
        author = self._role("author")
        year = rng.randint(1930, 2014)
        facts.link(book, "book.written_work.author", author)
        facts.link(book, "book.book.genre", self._hub("literary_genre"))
        facts.date(book, "book.written_work.date_of_first_publication", year, exact=0.95)
        facts.state(book, "book.book_edition.number_of_pages", str(rng.randint(80, 900)), "integer")
        if rng.random() < 0.3:
            self._add_award(author, year + 1)

    def _add_album(self) -> None:
        facts, rng = self.facts, self._rng
        album = facts.entity("album", facts.labels.title())
        facts.link(album, "music.album.artist", self._role("artist"))
        facts.link(album, "music.album.genre", self._hub("music_genre"))
        facts.date(album, "music.album.release_date", rng.randint(1955, 2014), exact=0.95)

    def _count(self, full: int) -> int:
        return max(2, round(full * self._scale))

    def _hub(self, kind: str) -> EntityId:
        return self._rng.choice(self._hubs[kind])

    def _local(self, kind: str) -> EntityId:
        """Draw a member of the region, the first ones more often, so that some have many edges."""
        members = self._members[kind]
        return members[int(self._rng.random() ** 1.6 * len(members))]

    def _role(self, role: str) -> EntityId:
        """Draw a person with a role, the first ones more often."""
        people = self._by_role[role]
        return people[int(self._rng.random() ** 2 * len(people))]


def _decimal(value: float) -> str:
    """Return the canonical form of a decimal, without trailing zeros (specification §8.5)."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
