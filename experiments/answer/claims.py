"""What the lecture says will happen, and what the papers found, beside our figures."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from experiments.launch.question import Question


@lru_cache
def claims() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text())


def claim_lines(question: Question) -> list[str]:
    """The claim and the published rows, as lines of text; nothing for a question without a claim."""
    claim = claims().get(question.name)
    if claim is None:
        return []
    lines = [f"Claim ({claim['section']}): {claim['english']}", claim["chinese"]]
    for table in claim["published"]:
        figures = "; ".join(
            f"{row['arm']} {row['value']}" + (f" ± {row['sd']}" if "sd" in row else "") for row in table["rows"]
        )
        lines.append(f"Published: {table['source']}, {table['where']}, {table['metric']}: {figures}. {table['note']}")
    return lines
