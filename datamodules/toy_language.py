"""The embedded data: a synchronous grammar that speaks English and German at once.

Each rule below builds both sides of a pair, so the German is right by construction and every English sentence has
exactly one translation. What a translator has to learn from it:

- agreement: articles, adjectives and relative pronouns by gender, number and case; verbs by number;
- order: the finite verb second in a main clause, also after a fronted time or clause, and last in a subordinate one;
- the bracket: separable prefixes, participles and infinitives at the clause's end;
- adverbs: manner, place, time in English; time, manner, place in German.

    the old man , who sees a dog , invites these women quietly today .
    der alte Mann , der einen Hund sieht , lädt diese Frauen heute leise ein .
"""

import random
from typing import NamedTuple

from .toy_lexicon import (
    ACCUSATIVE_VERBS,
    ADJECTIVES,
    CONJUNCTIONS,
    DATIVE_VERBS,
    DETERMINERS,
    ENDINGS,
    GIVING_VERBS,
    INTRANSITIVE_VERBS,
    MANNERS,
    MODALS,
    NOUNS,
    PLACES,
    RELATIVE,
    SAYING_VERBS,
    THINGS,
    TIMES,
)

LONG = (25, 40)  # words of a source sentence in the split `long`
SHORTEST = 4
NOMINATIVE, ACCUSATIVE, DATIVE = range(3)


class NounPhrase(NamedTuple):
    """English words; German words in the three cases; gender, or p for plural."""

    english: str
    german: tuple[str, str, str]
    gender: str

    @property
    def plural(self) -> bool:
        return self.gender == "p"


class Predicate(NamedTuple):
    """Everything of a clause but its subject, in the pieces that German moves.

    finite: the verb that agrees; middle: objects and adverbs except a time; time: the time, or ""; prefix: of a
    separable finite verb; last: participle or infinitive.
    """

    english: str
    english_time: str
    finite: str
    time: str
    objects: str
    middle: str
    prefix: str
    last: str

    def main(self, subject: str) -> str:
        """Verb second: Subject V objects time middle last."""
        return join(subject, self.finite, self.objects, self.time, self.middle, self.prefix, self.last)

    def inverted(self, subject: str, fronted: str, time: str) -> str:
        """Verb second after something else in front."""
        return join(fronted, self.finite, subject, self.objects, time, self.middle, self.prefix, self.last)

    def subordinate(self, subject: str) -> str:
        """Verb last, a separable prefix joined to it."""
        return join(subject, self.objects, self.time, self.middle, self.last, self.prefix + self.finite)


def join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def all_noun_phrases(nouns: list[tuple[str, ...]], adjectives: list[tuple[str, str]]) -> list[NounPhrase]:
    """Every determiner × adjective × noun, without relative clauses."""
    phrases = []
    for singular, plural, noun_gender, german, german_plural, dative_plural in nouns:
        for determiner, forms in DETERMINERS.items():
            for number in "sp":
                gender = noun_gender if number == "s" else "p"
                if gender not in forms:
                    continue
                english = singular if number == "s" else plural
                cases = [german] * 3 if number == "s" else [german_plural, german_plural, dative_plural]
                articles = forms[gender].split()
                endings = ENDINGS["ein" if determiner in ("a", "no") else "der"][gender].split()
                for word, stem in adjectives:
                    inflected = [stem and stem + ending for ending in endings]
                    texts = tuple(join(*words) for words in zip(articles, inflected, cases, strict=True))
                    before_vowel = determiner == "a" and (word or english)[0] in "aeiou"
                    phrases.append(NounPhrase(join("an" if before_vowel else determiner, word, english), texts, gender))
    return phrases


class Grammar:
    """Draws sentence pairs; the same seed gives the same pairs on every machine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.people, self.things = (
            (all_noun_phrases(nouns, [("", "")]), all_noun_phrases(nouns, ADJECTIVES)) for nouns in (NOUNS, THINGS)
        )

    def one(self, options):
        return options[int(self.random.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def sentence(self) -> tuple[str, str]:
        """One clause, two joined by a conjunction in either order, or a reported one."""
        kind = self.random.random()
        if kind < 0.55:
            english, german = self.main_clause()
        elif kind < 0.70:
            english, german = self.clause_then_subordinate()
        elif kind < 0.85:
            english, german = self.subordinate_then_clause()
        else:
            english, german = self.reported()
        return english + " .", german + " ."

    def main_clause(self) -> tuple[str, str]:
        subject, predicate = self.clause()
        fronted = self.one(TIMES) if not predicate.time and self.chance(0.2) else None
        if fronted:
            english = join(fronted[0], subject.english, predicate.english)
            return english, predicate.inverted(subject.german[NOMINATIVE], fronted[1], "")
        return (
            join(subject.english, predicate.english, predicate.english_time),
            predicate.main(subject.german[NOMINATIVE]),
        )

    def clause_then_subordinate(self) -> tuple[str, str]:
        english, german = self.main_clause()
        conjunction, (subject, predicate) = self.one(CONJUNCTIONS), self.clause()
        return (
            join(english, ",", conjunction[0], subject.english, predicate.english, predicate.english_time),
            join(german, ",", conjunction[1], predicate.subordinate(subject.german[NOMINATIVE])),
        )

    def subordinate_then_clause(self) -> tuple[str, str]:
        conjunction, (subject, predicate) = self.one(CONJUNCTIONS), self.clause()
        second, main = self.clause()
        first = join(conjunction[1], predicate.subordinate(subject.german[NOMINATIVE]), ",")
        return (
            join(conjunction[0], subject.english, predicate.english, predicate.english_time, ",",
                 second.english, main.english, main.english_time),
            main.inverted(second.german[NOMINATIVE], first, main.time),
        )  # fmt: skip

    def reported(self) -> tuple[str, str]:
        speaker, (subject, predicate) = self.person(), self.clause()
        says = self.one(SAYING_VERBS)
        return (
            join(speaker.english, says[speaker.plural], ", that", subject.english, predicate.english,
                 predicate.english_time),
            join(speaker.german[NOMINATIVE], says[4 + speaker.plural], ", dass",
                 predicate.subordinate(subject.german[NOMINATIVE])),
        )  # fmt: skip

    def clause(self) -> tuple[NounPhrase, Predicate]:
        subject = self.person()
        return subject, self.predicate(subject.plural)

    def noun_phrase(self, kinds: tuple[list[NounPhrase], list[NounPhrase]]) -> NounPhrase:
        """Without or with an adjective."""
        return self.one(kinds[self.chance(0.4)])

    def person(self) -> NounPhrase:
        phrase = self.noun_phrase(self.people)
        return self.with_relative_clause(phrase) if self.chance(0.12) else phrase

    def object(self) -> NounPhrase:
        return self.noun_phrase(self.things if self.chance(0.5) else self.people)

    def with_relative_clause(self, noun: NounPhrase) -> NounPhrase:
        """One level deep: the noun as its subject, or as its accusative object."""
        pronoun = RELATIVE[noun.gender].split()
        if self.chance(0.6):
            predicate = self.predicate(noun.plural, simple=True)
            english = join("who", predicate.english, predicate.english_time)
            german = predicate.subordinate(pronoun[NOMINATIVE])
        else:
            other, verb = self.noun_phrase(self.people), self.one(ACCUSATIVE_VERBS)
            prefix = verb[8].replace("-", "")
            english = join("whom", other.english, verb[other.plural])
            german = join(pronoun[ACCUSATIVE], other.german[NOMINATIVE], prefix + verb[4 + other.plural])
        return NounPhrase(
            f"{noun.english} , {english} ,", tuple(f"{case} , {german} ," for case in noun.german), noun.gender
        )

    def predicate(self, plural: bool, simple: bool = False) -> Predicate:
        """A verb in the present, the perfect or after a modal, with its objects and up to three adverbs."""
        verb, objects_english, objects_german = self.verb_and_objects()
        he, they, participle, base, german_he, german_they, german_participle, infinitive, prefix = verb
        tense = self.random.random()
        if tense < 0.6 or simple:
            english, finite, last = (they if plural else he), (german_they if plural else german_he), ""
            prefix = prefix.replace("-", "")
        elif tense < 0.8:
            english, finite = join("have" if plural else "has", participle), "haben" if plural else "hat"
            last, prefix = german_participle, ""
        else:
            modal = self.one(MODALS)
            english, finite, last, prefix = join(modal[0], base), modal[1 + plural], infinitive, ""
        nothing = ("", "")
        manner = self.one(MANNERS) if self.chance(0.25) else nothing
        place = self.one(PLACES) if self.chance(0.3) else nothing
        time = self.one(TIMES) if self.chance(0.3) else nothing
        return Predicate(
            english=join(english, objects_english, manner[0], place[0]),
            english_time=time[0],
            finite=finite,
            time=time[1],
            objects=objects_german,
            middle=join(manner[1], place[1]),
            prefix=prefix,
            last=last,
        )

    def verb_and_objects(self) -> tuple[tuple[str, ...], str, str]:
        kind = self.random.random()
        if kind < 0.5:
            thing = self.object()
            return self.one(ACCUSATIVE_VERBS), thing.english, thing.german[ACCUSATIVE]
        if kind < 0.65:
            receiver = self.noun_phrase(self.people)
            return self.one(DATIVE_VERBS), receiver.english, receiver.german[DATIVE]
        if kind < 0.8:
            receiver, thing = self.noun_phrase(self.people), self.noun_phrase(self.things)
            objects = join(receiver.german[DATIVE], thing.german[ACCUSATIVE])
            return self.one(GIVING_VERBS), join(receiver.english, thing.english), objects
        return self.one(INTRANSITIVE_VERBS), "", ""


def splits(*, train_pairs: int, eval_pairs: int, max_words: int) -> dict[str, tuple[list[str], list[str]]]:
    """split → (English lines, German lines) for train, valid, test and long; no English line stands in two splits.

    Args:
        max_words: the longest English line of train, valid and test; `long` has lines of LONG words, whatever this is.

    The held-out lines do not depend on `train_pairs`.
    """
    grammar, seen = Grammar(seed=20170612), set()
    wanted = {"long": eval_pairs, "test": eval_pairs, "valid": eval_pairs, "train": train_pairs}
    made: dict[str, tuple[list[str], list[str]]] = {split: ([], []) for split in wanted}
    for split, count in wanted.items():
        shortest, longest = LONG if split == "long" else (SHORTEST, max_words)
        english_lines, german_lines = made[split]
        while len(english_lines) < count:
            english, german = grammar.sentence()
            if shortest <= english.count(" ") + 1 <= longest and english not in seen:
                seen.add(english)
                english_lines.append(english)
                german_lines.append(german)
    return {split: made[split] for split in ("train", "valid", "test", "long")}
