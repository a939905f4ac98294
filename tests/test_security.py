"""What comes from outside is data: nothing of it runs, leaves its folder, or becomes markup. See docs/security.md."""

import ast
import html.parser

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from markdown_it import MarkdownIt

from glauber_lib import plotting
from glauber_lib.paper import ROOT, Run, profiles, tables

SOURCES = sorted(path for folder in ("glauber_lib", "scripts", "notebooks") for path in (ROOT / folder).rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
CALLS = {
    "eval", "exec", "__import__", "os.system", "os.popen", "tempfile.mktemp", "pd.read_pickle", "joblib.load",
    "joblib.dump", "yaml.load", "subprocess.getoutput", "subprocess.getstatusoutput",
}  # fmt: skip
MUTATES = {"mutate.py": ["exec"]}  # it runs the library's own sources with a fault put into them
ASKED = {"instruments.py": "remote_code is not None"}  # where code of a checkpoint may run: only when it is asked for


def name_of(node):
    """A name with dots, as it is written in a call; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_constant(node, value):
    return isinstance(node, ast.Constant) and node.value is value


def faults(source, file=""):
    """What in a source could run what it reads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from MODULES & {name.split(".")[0] for name in names}
        if not isinstance(node, ast.Call):
            continue
        name, given = name_of(node.func), {keyword.arg: keyword.value for keyword in node.keywords}
        if name in CALLS:
            yield name
        if "shell" in given and not is_constant(given["shell"], False):
            yield "shell"
        if name == "torch.load" and not is_constant(given.get("weights_only"), True):
            yield "torch.load without weights_only=True"
        if "allow_pickle" in given and not is_constant(given["allow_pickle"], False):
            yield "allow_pickle"
        if name.endswith(".extractall") and "tar" in source and "filter" not in given and "ZipFile" not in source:
            yield "extractall without a filter"
        code = given.get("trust_remote_code")
        if code is not None and not is_constant(code, False) and ast.unparse(code) != ASKED.get(file):
            yield "trust_remote_code"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_source_runs_what_it_reads(path):
    assert list(faults(path.read_text(encoding="utf-8"), path.name)) == MUTATES.get(path.name, [])


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "eval(x)", "os.system(x)", "subprocess.run(x, shell=True)",
        "torch.load(x)", "np.load(x, allow_pickle=True)", "f(trust_remote_code=x)",
        "f(trust_remote_code=True)", "tarfile.open(x).extractall(y)",
    ],
)  # fmt: skip
def test_what_would_run_what_it_reads_is_found(source):
    assert len(list(faults(source))) == 1


# Paths -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    for path in (ROOT / "notebooks").iterdir():
        (tmp_path / "notebooks" / path.name).symlink_to(path)
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    return Run("02_bounds", "smoke")


@pytest.mark.parametrize("name", ["../out", "/out", "org/model", "a\\b", "..", ".hidden", "", "a\0b", None])
def test_a_figure_or_a_table_lies_in_its_folder_whatever_its_name(run, name):
    before = sorted(run.figures.rglob("*"))
    with pytest.raises(ValueError, match="must be without a folder and a dot in front"):
        run.save_table(pd.DataFrame({"x": [1]}), name)
    with pytest.raises(ValueError, match="must be without a folder and a dot in front"):
        run.save_figure(plt.figure(), name)
    assert sorted(run.figures.rglob("*")) == before and run.outputs == []
    run.save_table(pd.DataFrame({"x": [1]}), "chain-minilm.6l")


@pytest.mark.parametrize("name", ["../02_bounds", "/etc/passwd", "02_bounds/../../x", "mini/../../x"])
def test_a_notebook_and_a_profile_are_those_that_are_there(name):
    for profile, notebook in ((name, "02_bounds"), ("smoke", name)):
        with pytest.raises(ValueError, match=r"unknown (profile|notebook)"):
            profiles.load_profile(profile, notebook)


# Texts of a model --------------------------------------------------------------------------------------------------

TEXTS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a < b & c &lt; d", "[a](javascript:alert(1))",
    "![a](http://elsewhere/x.png)", "[a][b]", "<http://elsewhere>", "`a` **b** ~~c~~ \\*d\\*", "a | <b>", "\\<b>",
    "\\\\<b>", "a\n<b>\n\n# c", "--> <!-- x", "\u202e<b>\u2066", "\\", "a\\|b", "\\`x`", "_x_", "__x__", "a _b c_ d",
    "___", "\\_x_", "_a_b_", "(_x_)", "_x|y_", "_\u00e9_", "_, _ x_",
]  # fmt: skip


def shown(markdown):
    """What a reader of a table is shown in its cells, and the kinds of marks in them."""
    inline = [
        token for token in MarkdownIt().enable(["table", "strikethrough"]).parse(markdown) if token.type == "inline"
    ]
    marks = {child.type for token in inline for child in token.children} - {"text", "text_special"}
    return ["".join(child.content for child in token.children) for token in inline], marks


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_in_a_table_is_shown_as_it_is_and_marks_nothing(text):
    cells, marks = shown(tables.markdown(pd.DataFrame({"text": [text, "next"]})))
    assert cells == ["text", " ".join(text.split("\n")), "next"] and not marks


def test_an_underscore_that_marks_nothing_stays_as_it_is():
    for text in ("snake_case_name", "a _ b _ c", "_x", "_tion _", "_ _, _ other", "x_"):
        assert tables.text(text) == text
    assert tables.text("_a $x_1$ b_") == r"\_a $x_1$ b_"


def test_a_formula_in_a_table_begins_no_tag():
    assert tables.text("$a<b$ and $<img src=x>$") == r"$a\lt b$ and $\lt img src=x>$"
    assert tables.text(r"$\tau < 1$, $\alpha$") == r"$\tau < 1$, $\alpha$"


class Tags(html.parser.HTMLParser):
    """The tags and texts of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("text", [*TEXTS, '" onmouseover="alert(1)', "' x='"])
def test_a_word_in_html_is_shown_as_it_is(text):
    row = {"step": 0, "held": 1, "words": ["a", text], "sites": [1], "before": [text]}
    page = Tags()
    page.feed(plotting.moves_as_html(pd.DataFrame([row])))
    assert {tag for tag, _ in page.tags} == {"table", "tr", "th", "td", "mark"}
    [(_, facts)] = [found for found in page.tags if found[0] == "mark"]
    assert facts == {"title": f"before: {text}"} and text in page.texts
