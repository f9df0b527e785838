"""What the lecture says will happen, and what the papers found, beside our figures."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from experiments.launch.question import ROOT, Question


@lru_cache
def claims() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text())


def claim_of(question: Question) -> dict[str, Any]:
    """Empty for a question without a claim; a sweep file elsewhere has none, whatever its name."""
    return claims().get(question.name, {}) if question.path.resolve().parent == ROOT / "sweeps" else {}


def claim_lines(question: Question, chinese: bool = True) -> list[str]:
    """The claim, in English and, if wanted, in Chinese, and the published rows, as lines of text; empty without one."""
    claim = claim_of(question)
    if not claim:
        return []
    lines = [f"Claim ({claim['section']}): {claim['english']}", *([claim["chinese"]] if chinese else [])]
    return lines + [published_line(table) for table in claim["published"]]


def published_line(table: dict[str, Any]) -> str:
    """Source, place, metric and figures of one published table, in one line."""
    figures = "; ".join(
        f"{row['arm']} {row['value']}" + (f" ± {row['sd']}" if "sd" in row else "") for row in table["rows"]
    )
    place = f"{table['source']}, {table['where']}, {table['metric']}"
    return f"Published: {place}: {figures}. {table.get('note', '')}".strip()
