"""Embedded documents in the toy language's English, with gold roles and questions: something for BERT to read.

A document is about two or three characters, each with an adjective of its own, and things that they use. A character is
introduced once ("a young queen") and taken up again ("the young queen", "she"); a thing likewise. So

- what comes next can be told from what was said before, by who is bound to which adjective: another document has
  mostly the same nouns and the same adjectives, otherwise combined;
- what comes first can be told from the introductions;
- every sentence knows its roles, and every event is asked about at most once, so that the answer is unique.

    a young queen waits in the garden . she sees an old dog today . the old dog carries a red ball quickly .
"""

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from .toy_lexicon import (
    ACCUSATIVE_VERBS,
    ADJECTIVES,
    DATIVE_VERBS,
    GIVING_VERBS,
    INTRANSITIVE_VERBS,
    MANNERS,
    PLACES,
    THINGS,
    TIMES,
)

PRONOUNS = {"man": ("he", "him"), "king": ("he", "him"), "woman": ("she", "her"), "girl": ("she", "her"),
            "queen": ("she", "her")}  # fmt: skip
SENTENCES = (6, 12)  # of a document
CHARACTERS = ("man", "woman", "king", "queen", "girl", "child", "dog", "cat")  # few, so that documents share them
BELONGINGS = [noun[0] for noun in THINGS[:5]]
LOOKS = [english for english, _ in ADJECTIVES[:6]]


class Part(NamedTuple):
    """Words of one role: AGENT, VERB, PATIENT, RECEIVER, MANNER, PLACE, TIME."""

    words: str
    role: str


class Question(NamedTuple):
    """A question about one event; the answer is the words of a part, at these words of the sentence."""

    text: str
    sentence: int
    start: int
    end: int  # exclusive


class Event(NamedTuple):
    """Who does what to whom or what, as names without articles; in which sentence."""

    agent: str
    verb: str
    patient: str | None
    sentence: int


@dataclass
class Document:
    """Sentences as parts in order, who and what occurs, what happens, and what can be asked about it."""

    names: list[str]
    sentences: list[list[Part]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [line(parts) for parts in self.sentences]


def line(parts: list[Part]) -> str:
    return " ".join(part.words for part in parts) + " ."


def tags(parts: list[Part]) -> list[str]:
    """B-ROLE, I-ROLE and O (the full stop), a word each."""
    return [f"{'I' if i else 'B'}-{part.role}" for part in parts for i, _ in enumerate(part.words.split())] + ["O"]


@dataclass
class Entity:
    """A character or a thing with its adjective."""

    noun: str
    adjective: str
    known: bool = False

    @property
    def name(self) -> str:
        return f"{self.adjective} {self.noun}"


class Storyteller:
    """Draws documents; the same seed gives the same ones on every machine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, options):
        return options[int(self.random.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def document(self) -> Document:
        nouns = self.random.sample(CHARACTERS, 3) + self.random.sample(BELONGINGS, 2)
        looks = self.random.sample(LOOKS, 5)
        entities = [Entity(noun, adjective) for noun, adjective in zip(nouns, looks, strict=True)]
        self.characters, self.things = entities[:3], entities[3:]
        self.last: Entity | None = None  # the last agent, whom a pronoun can mean
        document, self.asked = Document([entity.name for entity in entities]), set()
        for _ in range(self.random.randint(*SENTENCES)):
            self.tell(document)
        return document

    def mention(self, entity: Entity, role: str) -> Part:
        """a young queen, then she or the young queen."""
        if not entity.known:
            entity.known = True
            return Part(f"{'an' if entity.name[0] in 'aeiou' else 'a'} {entity.name}", role)
        if role == "AGENT" and entity is self.last and entity.noun in PRONOUNS and self.chance(0.5):
            return Part(PRONOUNS[entity.noun][0], role)
        return Part(f"the {entity.name}", role)

    def tell(self, document: Document) -> None:
        """One event, and a question about it where its answer is unique so far."""
        agent, other = self.random.sample(self.characters, 2)
        if self.last is not None and self.chance(0.4):
            agent, other = self.last, self.one([c for c in self.characters if c is not self.last])
        kind, patient, asked = self.random.random(), None, "PATIENT"
        parts = [self.mention(agent, "AGENT")]
        if kind < 0.6:
            verb = self.one(ACCUSATIVE_VERBS if kind < 0.45 else DATIVE_VERBS)
            patient = self.one(self.things) if kind < 0.45 and self.chance(0.5) else other
            parts += [Part(verb[0], "VERB"), self.mention(patient, "PATIENT")]
        elif kind < 0.8:
            verb, patient = self.one(GIVING_VERBS), self.one(self.things)
            parts += [Part(verb[0], "VERB"), self.mention(other, "RECEIVER"), self.mention(patient, "PATIENT")]
        else:
            verb, asked = self.one(INTRANSITIVE_VERBS), "PLACE"
            parts.append(Part(verb[0], "VERB"))
        if self.chance(0.25):
            parts.append(Part(self.one(MANNERS)[0], "MANNER"))
        if asked == "PLACE" or self.chance(0.3):
            parts.append(Part(self.one(PLACES)[0], "PLACE"))
        if self.chance(0.2):
            parts.append(Part(self.one(TIMES)[0], "TIME"))
        self.last = agent
        document.sentences.append(parts)
        name = patient.name if patient else None
        document.events.append(Event(agent.name, verb[0], name, len(document.sentences) - 1))
        self.ask(document, agent, verb[3], asked)

    def ask(self, document: Document, agent: Entity, base: str, asked: str) -> None:
        """whom or what does the young queen see ?"""
        event, sentence = (agent.noun, base), len(document.sentences) - 1
        if event in self.asked:  # the same again would have two answers
            document.questions = [q for q in document.questions if f"{agent.name} {base} ?" not in q.text]
            return
        self.asked.add(event)
        word = "where" if asked == "PLACE" else "whom or what"
        start = 0
        for part in document.sentences[sentence]:
            end = start + len(part.words.split())
            if part.role == asked:
                document.questions.append(Question(f"{word} does the {agent.name} {base} ?", sentence, start, end))
            start = end


@lru_cache(maxsize=1)
def documents(*, train: int, held_out: int) -> dict[str, list[Document]]:
    """split → documents for train, valid and test; the held-out ones do not depend on `train`."""
    storyteller = Storyteller(seed=20181011)
    return {
        split: [storyteller.document() for _ in range(count)]
        for split, count in (("test", held_out), ("valid", held_out), ("train", train))
    }
