"""Tables as Markdown: cells as they are, whatever characters they hold."""

from collections.abc import Iterable
from typing import Any

import pandas as pd


def cell(value: Any) -> str:
    """A value as one cell of a Markdown table: bars escaped, lines joined."""
    return " ".join(str(value).split("\n")).replace("\r", "").replace("|", "\\|")


def line(cells: Iterable[Any]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(map(cell, cells)) + " |"


def markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """A table as Markdown: numbers with `digits` digits, missing values as dashes, texts as they are.

    A text of digits, such as ``007``, is a text.
    """
    shown = table.astype(object).where(table.notna(), None)
    texts = [k for k in range(shown.shape[1]) if any(isinstance(value, str) for value in shown.iloc[:, k])]
    for k in texts:
        column = [cell(value) if isinstance(value, str) else value for value in shown.iloc[:, k]]
        shown.isetitem(k, pd.Series(column, index=shown.index, dtype=object))
    shown.columns = [cell(name) for name in shown.columns]
    return str(shown.to_markdown(index=False, floatfmt=f".{digits}g", missingval="–", disable_numparse=texts))
