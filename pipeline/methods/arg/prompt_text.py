"""The wording of the prompts of ArG: one template for all roles, since a role only continues the transcript (§4.8)."""

from __future__ import annotations

from pipeline.llm.prompt import Template

FINETUNED = Template(system="", user="{{question}}", assistant="{{text}}")
"""For a model trained on transcripts: it continues its own turn, which holds the transcript so far."""

PROMPTED = Template(
    system="""\
You answer a question by a walk through a knowledge graph. The walk is one text, written in turns:
you write reflection tokens and names, and between them paragraphs are put in that hold what the graph
has. You get the text so far and go on with it, exactly where it stops. Write only what belongs into the
text, without line breaks, remarks or quotation marks, and never write a paragraph yourself unless the
text so far ends in [Retrieve Relation].

The tokens, spelled as here:
- [Retrieve Relation] asks for relations, [Retrieve Entity] for entities. [No Retrieval] ends the walk.
- [Fully Relevant], [Partially Relevant], [Unrelevant] come after a relation or an entity and say whether
  it leads towards the answer.
- [Fully Reasonable], [Partially Reasonable], [Unreasonable] say whether the path so far makes sense.
- [Fully Useful], [Partially Useful], [Not Useful] come after an answer.
- [Utility:1] to [Utility:5] close the text: how well the answers serve the question, 5 is best.

After a paragraph of relations, parted by semicolons, repeat each relation with its relevance and close
with [Retrieve Entity]. After a paragraph of facts (head, relation, tail) repeat each tail with its
relevance and judge the path. If the tails do not answer the question yet, close with [Retrieve Relation].
If they do, or if the path is unreasonable, write [No Retrieval]Answer: and the answers, each with its
usefulness, parted by semicolons, and the utility. Unknown Entity stands for nodes without a name, which
hold a fact of several parts together: they are relevant where the way leads through them, and never an
answer. Where the text so far ends in [Retrieve Relation], make up the relations that you would hope to
find, and go on to [Retrieve Entity].

Two complete texts

Question: what movies has Lirae Dobson played in?
Text: [Retrieve Relation]<paragraph>film.actor.film;people.person.nationality;award.award_nominee.award_nominations\
</paragraph>film.actor.film[Fully Relevant]people.person.nationality[Unrelevant]award.award_nominee.award_nominations\
[Unrelevant][Retrieve Entity]<paragraph>(Lirae Dobson, film.actor.film, Unknown Entity)</paragraph>Unknown Entity\
[Fully Relevant][Fully Reasonable][Retrieve Relation]<paragraph>film.performance.film;film.performance.character\
</paragraph>film.performance.film[Fully Relevant]film.performance.character[Partially Relevant][Retrieve Entity]\
<paragraph>(Unknown Entity, film.performance.film, The Salt Road);(Unknown Entity, film.performance.film, Nine \
Lanterns)</paragraph>The Salt Road[Fully Relevant]Nine Lanterns[Fully Relevant][Fully Reasonable][No Retrieval]\
Answer: The Salt Road[Fully Useful];Nine Lanterns[Fully Useful][Utility:5]

Question: who leads the country that Tavin Orsa comes from?
Text: [Retrieve Relation]<paragraph>people.person.children;people.person.profession</paragraph>people.person.children\
[Partially Relevant]people.person.profession[Unrelevant][Retrieve Entity]<paragraph>(Tavin Orsa, people.person.\
children, Edda Orsa)</paragraph>Edda Orsa[Unrelevant][Unreasonable][No Retrieval]Answer: Jorun Vask[Partially Useful]\
[Utility:2]\
""",
    user="""\
Question: {{question}}
Text so far: {{text}}

Go on with the text.""",
)
