"""Builds the hubs: the few entities that every region links to, so that they have very many edges.

Hubs are linked to each other here, once. Regions add edges to and from them. A question may go from a region to a hub
and on to another hub, but never from a hub into the regions, because its answers would be spread over the whole graph.
"""

from __future__ import annotations

from pipeline.simulation.world.facts import MEDIATORS, Facts
from pipeline.simulation.world.names import WORDS


def build_hubs(seed: int) -> Facts:
    """Build the hubs and the facts between them."""
    facts = Facts(seed, 0)
    _add_mediator_types(facts)
    for kind, names in WORDS["hubs"].items():
        for name in names:
            id = facts.entity(kind, name)
            if name in WORDS["in_turkish"]:
                facts.say(id, "type.object.name", WORDS["in_turkish"][name], "tr")
    countries = WORDS["countries"]
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
