"""Builds the hubs: the few entities that every region links to, so that they have very many edges.

Hubs are linked to each other here, once. Regions add edges to and from them. A question may go from a region to a hub
and on to another hub, but never from a hub into the regions, because its answers would be spread over the whole graph.
"""

from __future__ import annotations

from pipeline.simulation.world.facts import MEDIATORS, Facts

_WORDS: dict[str, str] = {
    "award": "Golden Heron|Silver Lantern Prize|Meridian Award|Order of the Quill|Amber Reel|Critics' Laurel",
    "degree": "Bachelor of Arts|Bachelor of Science|Master's Degree|PhD",
    "film_genre": "Drama|Comedy|Thriller|Western|Science Fiction|Documentary|Romance Film|Horror|Film noir|Musical",
    "gender": "Male|Female",
    "government": "Constitutional monarchy|Federal republic|Parliamentary republic",
    "literary_genre": "Novel|Poetry|Mystery|Memoir|Fantasy|Children's literature",
    "music_genre": "Jazz|Folk music|Hip hop music|Ambient music|Rock & roll|Opera|Blues",
    "office": "Mayor|Governor|Deputy mayor|Councillor",
    "profession": "Actor|Film director|Author|Musician|Politician|Teacher|Physician|Lawyer|Journalist|Architect",
    "religion": "Solarism|Riverfaith|Old Covenant|Stillness movement",
    "continent": "Norrland|Zephyria|Austrava",
}
_COUNTRIES = "Valdoria|Brenmark|Ostavia|Quillon|Tamarra|Selvane|Korrin|Ülmera|Drasnia|Pelagia|Fenwick|Marisova"
_FOREIGN = {"Male": "Erkek", "Female": "Kadın", "Drama": "Dram", "Jazz": "Caz", "Actor": "Oyuncu", "Novel": "Roman"}


def build_hubs(seed: int) -> Facts:
    """Build the hubs and the facts between them."""
    facts = Facts(seed, 0)
    _add_mediator_types(facts)
    for kind, words in _WORDS.items():
        for word in words.split("|"):
            id = facts.entity(kind, word)
            if word in _FOREIGN:
                facts.say(id, "type.object.name", _FOREIGN[word], "tr")
    countries = _COUNTRIES.split("|")
    for name in countries:
        facts.entity("language", name[:-1].rstrip("i") + "ish")
    for name in countries[::2]:
        facts.entity("currency", f"{name} {facts.rng.choice(('crown', 'mark', 'dinar', 'penny'))}")
    for name in countries:
        _add_country(facts, name)
    return facts


def _add_mediator_types(facts: Facts) -> None:
    for type in MEDIATORS:
        facts.state(type, "freebase.type_hints.mediator", "true", "boolean")
        facts.say(type, "type.object.name", type.rpartition(".")[2].replace("_", " ").capitalize())


def _add_country(facts: Facts, name: str) -> None:
    rng, members = facts.rng, facts.members
    country = facts.entity("country", name, "location.location")
    capital = facts.entity("capital", facts.labels.place())
    official = members["language"][len(members["country"]) - 1]
    facts.link(country, "location.country.capital", capital)
    facts.link(capital, "location.location.containedby", country)
    facts.link(country, "base.locations.countries.continent", rng.choice(members["continent"]))
    facts.link(country, "location.country.currency_used", rng.choice(members["currency"]))
    facts.link(country, "location.country.form_of_government", rng.choice(members["government"]))
    for language in dict.fromkeys((official, rng.choice(members["language"]))):
        facts.link(country, "location.country.official_language", language)
        facts.link(country, "location.country.languages_spoken", language)
