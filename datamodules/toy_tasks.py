"""Tasks on the embedded stories, in the columns that real ones have: what fine-tuning and its scores are tried on.

toy_agents       text, label: who acts: an adult, an animal or a child? Others are named in the sentence, too.
toy_statements   text, statement, label: is what is said of the story so? A false one has the two changed about, or
                 somebody else of the story in one's place.
toy_roles        tokens, tags: agent, verb, patient, receiver, manner, place and time as chunks (B-, I-, O).
toy_questions    id, context, question, answers: SQuAD's form; a pronoun's meaning is needed for some.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .toy_documents import PRONOUNS, Storyteller, line, tags

KINDS = {"animal": {"dog", "cat"}, "child": {"child", "girl"}}  # the others are adults
SIZES = {"test": 500, "validation": 300, "train": 2000}
Rows = dict[str, list[Any]]


@lru_cache
def splits(name: str) -> dict[str, Rows]:
    """split → column → values; other stories than those of pre-training."""
    storyteller = Storyteller(seed=20190524)
    return {split: TASKS[name](storyteller, count) for split, count in SIZES.items()}


def agents(storyteller: Storyteller, count: int) -> Rows:
    rows: Rows = {"text": [], "label": []}
    while len(rows["text"]) < count:
        parts = storyteller.one(storyteller.document().sentences)
        agent = parts[0].words.split()[-1]
        if agent not in {pronoun for pair in PRONOUNS.values() for pronoun in pair}:
            kind = next((kind for kind, nouns in KINDS.items() if agent in nouns), "adult")
            rows["text"].append(line(parts))
            rows["label"].append(kind)
    return rows


def statements(storyteller: Storyteller, count: int) -> Rows:
    rows: Rows = {"text": [], "statement": [], "label": []}
    while len(rows["text"]) < count:
        story = storyteller.document()
        told = [event for event in story.events if event.patient is not None and event.sentence > 0]
        if not told:
            continue
        event = storyteller.one(told)
        about = {(e.agent, e.verb, e.patient) for e in story.events}
        agent, patient, label = event.agent, event.patient, "so"
        if storyteller.chance(0.5):
            label = "not so"
            others = [name for name in story.names if name not in (agent, patient)]
            false = [(patient, agent), *((name, patient) for name in others), *((agent, name) for name in others)]
            agent, patient = storyteller.one(false)
            if (agent, event.verb, patient) in about:
                continue
        first = max(0, event.sentence - 2)
        rows["text"].append(" ".join(story.lines()[first : event.sentence + 1]))
        rows["statement"].append(f"the {agent} {event.verb} the {patient} .")
        rows["label"].append(label)
    return rows


def roles(storyteller: Storyteller, count: int) -> Rows:
    chosen = [storyteller.one(storyteller.document().sentences) for _ in range(count)]
    return {"tokens": [line(parts).split() for parts in chosen], "tags": [tags(parts) for parts in chosen]}


def questions(storyteller: Storyteller, count: int) -> Rows:
    rows: Rows = {"id": [], "context": [], "question": [], "answers": []}
    while len(rows["id"]) < count:
        story = storyteller.document()
        if story.questions:
            question, lines = storyteller.one(story.questions), story.lines()
            words = lines[question.sentence].split()
            answer = " ".join(words[question.start : question.end])
            before = " ".join([*lines[: question.sentence], " ".join(words[: question.start])]).strip()
            rows["id"].append(f"toy-{len(rows['id'])}")
            rows["context"].append(" ".join(lines))
            rows["question"].append(question.text)
            rows["answers"].append({"text": [answer], "answer_start": [len(before) + 1 if before else 0]})
    return rows


TASKS: dict[str, Callable[[Storyteller, int], Rows]] = {
    "toy_agents": agents,
    "toy_statements": statements,
    "toy_roles": roles,
    "toy_questions": questions,
}
