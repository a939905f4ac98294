"""Tables as Markdown: cells as they are, whatever characters they hold, also those of a model's text."""

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

_FORMULA = re.compile(r"(\$(?! )[^$]+(?<! )\$)")  # as Markdown finds one: no blank inside either dollar sign
_MARKS = re.compile(r"\\(?!\\*\|)(?=[!-/:-@\[-`{-~])|[`*~<]|\[(?=[^\]]*\][\[(])|&(?=#?\w+;)")
_OPENS = re.compile(_MARKS.pattern + r"|(?<![^\W_])_(?=_*[^\s_])")  # also an underscore at the beginning of a word
_CLOSES = re.compile(r"[^\s_]_+(?![^\W_])")  # one at the end of a word
_NAMED = {"<": "&lt;", "&": "&amp;"}


def text(value: Any) -> str:
    r"""A text that someone else wrote, such as a model's, as `cell`: no mark of it becomes HTML, a link, code or type.

    An underscore is escaped only where it begins a word, and only if another one ends a word. In a formula a ``<`` that
    could begin a tag is written ``\lt``.
    """
    parts = _FORMULA.split(str(value))
    tag, marks = re.compile(r"<(?=[A-Za-z/!?])"), _OPENS if _CLOSES.search(str(value)) else _MARKS
    shown = (
        tag.sub(r"\\lt ", part) if k % 2 else marks.sub(lambda mark: _NAMED.get(mark[0], "\\" + mark[0]), part)
        for k, part in enumerate(parts)
    )
    return cell("".join(shown))


def cell(value: Any) -> str:
    r"""A value as one cell of a Markdown table that shows its text: bars escaped, lines joined.

    A table is cut at bars before anything else is read. A bar is written ``\|``, and each backslash before it twice:
    one backslash would belong to the bar, two would not protect it. A formula knows no such escape, and its bars are
    written ``\vert`` and ``\Vert``.
    """
    parts = _FORMULA.split(re.sub(r"\r\n|\r|\n", " ", str(value)))
    return "".join(_bars_by_name(part) if k % 2 else _bars_escaped(part) for k, part in enumerate(parts))


def _bars_escaped(text):
    return re.sub(r"(\\*)\|", lambda found: found[1] * 2 + r"\|", text)


def _bars_by_name(formula):
    names = {"": r"\vert ", "\\": r"\Vert "}
    return re.sub(r"(?<!\\)((?:\\\\)*)(\\?)\|", lambda found: found[1] + names[found[2]], formula)


def line(cells: Iterable[Any]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(map(cell, cells)) + " |"


def markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """A table as Markdown: numbers with `digits` digits, missing values as dashes, texts and names as they are.

    A text of digits, such as ``007``, is a text.
    """
    shown = table.astype(object).where(table.notna(), None)
    texts = [k for k in range(shown.shape[1]) if any(isinstance(value, str) for value in shown.iloc[:, k])]
    for k in texts:
        column = [text(value) if isinstance(value, str) else value for value in shown.iloc[:, k]]
        shown.isetitem(k, pd.Series(column, index=shown.index, dtype=object))
    shown.columns = [text(name) if isinstance(name, str) else cell(name) for name in shown.columns]
    return str(shown.to_markdown(index=False, floatfmt=f".{digits}g", missingval="–", disable_numparse=texts))
