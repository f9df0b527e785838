"""The tables of a page, between markers that say how to make them:

    <!-- table score_divisor --seeds 5 -->  …  <!-- end -->

What stands between is written by `rewrite` from the committed results, never by hand. After `table` (the answer),
`inside` (the diagnostics), `also` (further metrics) come the words that `ablate run` takes; after `claims`, the table
of claims, names of questions, or none for all; after `bench`, the name of a table of `ablate bench`.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from experiments.bench.tables import kept
from experiments.launch.question import BadInput, Question, known

from .overview import table_of_claims
from .render import as_markdown, columns, sheet
from .results import Group, as_asked, groups
from .table import insides, other_metrics, rows_of
from .tuning import tuned

KINDS = ("table", "inside", "also", "claims", "bench")
MARK = re.compile(rf"^(<!-- ({'|'.join(KINDS)})(?: ([^>]*))? -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)
Ask = Callable[[list[str]], Question]  # from the words after `ablate run`


def check(text: str, page: Path) -> None:
    """Refuses a page whose markers do not say what to make.

    Raises:
        BadInput: no marker, an unknown word, or one without an end; naming the line.
    """
    for number, line in enumerate(text.splitlines(), 1):
        begins = re.match(r"<!-- (\w+)( [^>]*)? -->$", line)
        if begins and begins[1] not in (*KINDS, "end"):
            raise BadInput(f"{page}:{number}: {begins[1]} is none of {', '.join(KINDS)}")
    begun = len(re.findall(rf"^<!-- (?:{'|'.join(KINDS)})(?: [^>]*)? -->$", text, flags=re.MULTILINE))
    if not begun or begun != len(MARK.findall(text)):
        raise BadInput(f"{page} has {begun} markers (<!-- table QUESTION -->), and not each an end (<!-- end -->)")


def asked(text: str) -> list[list[str]]:
    """The words of each marker, in order, each asking once; a marker of claims asks every question as it stands."""
    words = []
    for _, kind, more, _ in MARK.findall(text):
        if kind != "bench":
            words += [[name] for name in of_claims(more)] if kind == "claims" else [shlex.split(more)]
    return [one for i, one in enumerate(words) if one not in words[:i]]


def rewrite(text: str, ask: Ask) -> str:
    """The page with every table made anew."""
    return MARK.sub(lambda m: f"{m[1]}{made(m[2], shlex.split(m[3] or ''), ask)}\n{m[4]}", text)


def made(kind: str, words: list[str], ask: Ask) -> str:
    if kind == "bench":
        return as_markdown(*kept(" ".join(words)))
    if kind == "claims":
        return table_of_claims([ask([name]) for name in of_claims(" ".join(words))], None)
    group = committed(ask(words))
    rows = rows_of(group)
    if kind == "table":
        return as_markdown(*columns(group, rows))
    return as_markdown(*sheet({"inside": insides, "also": other_metrics}[kind](group), list(rows[0].choices)))


def of_claims(words: str) -> list[str]:
    """The questions that are named, else every one."""
    return shlex.split(words) or known()


def committed(question: Question) -> Group:
    """The results that the project ships for this asking; data is known by its content, so a folder's place is free.

    Raises:
        BadInput: where there are none.
    """
    found = as_asked(groups(question, None), question)
    if not found:
        raise BadInput(f"no committed results of {question.name} with the recipe {question.recipe} as asked")
    return tuned(found[-1])
