"""Build plain English paragraphs from freely licensed Debian packages.

Every source names a Debian package, its licence
and a reader that turns the unpacked package into clean paragraphs. Run

    python scripts/corpus_debian.py --out FOLDER

on a machine whose ``apt-get`` can download packages; it writes one
``debian-NAME.jsonl`` per source, one ``{"source", "text"}`` object per line.
"""

import argparse
import gzip
import json
import lzma
import re
import struct
import subprocess
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

MIN_WORDS, MAX_WORDS = 6, 400
ASCII = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"',
        "\u00ab": '"', "\u00bb": '"', "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-",
        "\u2014": " - ", "\u2015": " - ", "\u2212": "-", "\u00a0": " ", "\u200b": "", "\u00ad": "",
        "`": "'", "\u00b4": "'", "\ufeff": "",
    }
)  # fmt: skip
CODE = re.compile(r"[{}<>\\|=$@#~^*_\ufffd]|::|://|www\.|(?<!\w)/\w|\w/\w+/|\(\)|(?<![\w-])--?\w")
OFFENSIVE = re.compile(
    r"(?i)negro|nigger|mulatto|half-breed|redskin|red-skinned|\bsavages?\b|\bkaf+irs?\b|prostitut|whore|\bsquaw"
)
UI = r"(?i)\bclick|button|screenshot|\bwindow|dialog|\bmenu|toolbar|check ?box|press(?:ing)? the|\u2192|shortcut|image shows|\btab\b"
REFERENCE = r"^\W*[A-Z][\w'-]+(?: [A-Z][\w'-]+)*, (?:[A-Z]\.|[A-Z][a-z]+[ ,])|Press\b|ISBN|\bpp\.|Izd|et al|^According to the GNU|Publish"
SENTENCE_END = re.compile(r"(?<=[a-z)\"'][.!?])\"?\s+(?=[A-Z\"'(])")


def tidy(text: str) -> str:
    """Return `text` on one line, with ASCII quotes and dashes."""
    text = unicodedata.normalize("NFKC", text.translate(ASCII)).replace("''", '"')
    text = re.sub(r"(?<=[a-z])-\n\s*(?=[a-z])", "-", text)
    text = re.sub(r"\s*--+\s*", " - ", text)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s+([,.;:!?)]+)(?=[\s\"')]|$)", r"\1", re.sub(r"\(\s+", "(", text))
    return re.sub(r"\s*\(\s*[,;.]?\s*\)", "", text)


def paragraphs(blocks: Iterator[str]) -> Iterator[str]:
    """Yield the blocks that are prose, split at sentence ends where too long.

    Parameters
    ----------
    blocks : iterator of str
        Candidate paragraphs, wrapped or not.

    Yields
    ------
    str
        Text of `MIN_WORDS` to `MAX_WORDS` words, mostly letters, that begins
        like a sentence, ends like one and holds no code; never the same twice.
    """
    seen = set()
    for block in blocks:
        block = tidy(block)
        if CODE.search(block) or not re.match(r"[\"'(]*\w", block):
            continue
        pieces, size = [[]], 0
        for sentence in SENTENCE_END.split(block):
            count = len(sentence.split())
            if size + count > MAX_WORDS:
                pieces.append([])
                size = 0
            pieces[-1].append(sentence)
            size += count
        for text in map(" ".join, pieces):
            letters = sum(c.isalpha() or c == " " for c in text)
            good = MIN_WORDS <= len(text.split()) <= MAX_WORDS and letters > 0.8 * len(text)
            if good and re.search(r"[.!?][\"')]*$", text) and text not in seen:
                seen.add(text)
                yield text


class Prose(HTMLParser):
    """Collect the running text of an HTML or DocBook page as blocks."""

    SKIP = frozenset(
        re.findall(
            r"[\w-]+",
            "script style pre table ul ol dl nav h1 h2 h3 h4 h5 h6 title head code-block figure programlisting"
            " screen itemizedlist variablelist informaltable segmentedlist authorgroup copyright legalnotice"
            " bookinfo keywordset orderedlist procedure mediaobject footnote sup informalexample",
        )
    )
    BLOCK = frozenset(re.findall(r"\w+", "p para simpara blockquote div section article body hr sect1 sect2 dd li dt"))

    def __init__(self, unskip: frozenset = frozenset()):
        super().__init__(convert_charrefs=True)
        self.skip, self.depth = self.SKIP - unskip, []
        self.blocks, self.breaks = [""], 0

    def handle_starttag(self, tag: str, attrs: list) -> None:
        """Start a block at a block tag; leave out what a skipped tag holds."""
        if tag in self.skip:
            self.depth.append(tag)
        if tag in self.BLOCK or tag in self.skip:
            self.blocks.append("")
        elif tag == "br":
            self.breaks += 1
            self.blocks.append("") if self.breaks > 1 else self.handle_data("\n")

    def handle_endtag(self, tag: str) -> None:
        """Close a block or the skipped tag `tag`."""
        if tag in self.depth:
            del self.depth[self.depth.index(tag) :]
        if tag in self.BLOCK or tag in self.skip:
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        """Add text to the current block."""
        if data.strip():
            self.breaks = 0
        if not self.depth:
            self.blocks[-1] += data


def read_text(path: Path) -> str:
    """Return the text of a file, gzip-compressed or not."""
    data = path.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")


def pages(pattern: str, unskip: str = "", drop: str = "$^") -> Callable[[Path], Iterator[str]]:
    """Return a reader of the HTML or DocBook files that match `pattern`.

    Parameters
    ----------
    pattern : str
        Glob inside the unpacked package.
    unskip : str, optional
        Tags, separated by blanks, to read although they are skipped normally.
    drop : str, optional
        Regular expression; files whose name and blocks that match are left out.

    Returns
    -------
    callable
        Reader from a package folder to paragraphs.
    """

    def blocks(folder: Path) -> Iterator[str]:
        for path in sorted(folder.glob(pattern)):
            if re.search(drop, path.name):
                continue
            parser = Prose(frozenset(unskip.split()))
            parser.feed(re.sub(r"<!\[CDATA\[.*?\]\]>|<\?.*?\?>", "", read_text(path), flags=re.DOTALL))
            for block in parser.blocks:
                block = re.sub(r"&([\w.-]+);", r"\1", block)
                block = re.sub(r"\s*\[[^\]]*(?:\bpp?\.|Op\. Cit|Ibid|Vol\.|^\d+$|\.html)[^\]]*\]", "", block)
                block = re.sub(r"\s*\[\d*\]", "", block)
                if not re.search(drop, block):
                    yield re.sub(r"\[([^\]]*)\]", r"\1", block)

    return lambda folder: paragraphs(blocks(folder))


def entries(folder: Path, name: str) -> Iterator[str]:
    """Yield the raw entries of a dictd database: a head line and what is indented below."""
    text = read_text(folder / f"usr/share/dictd/{name}.dict.dz")
    for entry in re.split(r"\n(?=\S)", text):
        if not entry.startswith("00-"):
            yield entry


def plain(text: str) -> str:
    """Return text without the braces of cross references and the stress marks within."""
    return re.sub(r"\{([^}]*)\}", lambda m: re.sub(r"[`\"*]", "", m.group(1)), text)


def copula(word: str, text: str) -> str:
    """Join a head word and its definition into a sentence."""
    start = re.match(r"(?:(an?)|the|one|any|to|that|those) ", text, re.IGNORECASE)
    if text.lower().startswith((f"a {word.lower()} ", f"an {word.lower()} ", word.lower())):
        return text
    if not start:
        return f"{word}: {text}"
    text = text[0].lower() + text[1:]
    if text.startswith("to "):
        return f"To {word.lower().removeprefix('to ')} is {text}"
    mass = re.search(
        r"(?:id[ae]e|ine|ide|ate|ium|ism|ness|ity|logy|graphy|tomy|ics|ing|ae|ous|[ae]nc[ey]|tion|[^s]s|[oi]da|[aoy]ta|cea)$",
        word,
    )
    state = re.match(r"an? (?:state|act|quality|condition|genus|family|group|tribe|title|name|salt)\b", text)
    single = re.match(r"(?:an?|one) ", text) and word[1:].islower() and not mass and not state
    article = ("An " if word[0] in "AEIOUaeiou" else "A ") if single else ""
    return f"{article}{word.lower() if article else word} {'are' if text.startswith('those') else 'is'} {text}"


def sense(text: str) -> str:
    """Return one sense of a Webster entry as plain text, empty if it is no use."""
    text = re.sub(r"\s+", " ", text).strip()
    if re.search(r"\[(?:Obs|R\.|Archaic|Scot|Prov|Obsoles|Written|Slang|Poetic)|^Syn[:.]|^Usage:|^\[?[Ss]ee\b", text):
        return ""
    text = re.sub(r"\[(ae|oe|AE|OE)\]|\B\[\W?([a-z])\W?\]", r"\1\2", text)
    text = plain(re.sub(r"\[[^\]]*\]", "", text)).strip()
    label = r"Note: ?|pl\. ?|\d+\.? |\([a-z\d]\) ?|\([A-Z][^)]*\)[,:]? ?|Specifically[:,.]? ?|Hence[,:]? |Fig\.: ?|, |or [A-Z][^,.;]{0,40}, "
    text = re.sub(rf"^(?:{label})+", "", text)
    text = re.sub(r"\s*\"[^\"]*\"\s*--.*$|\s*--\s?[A-Z][\w.' ]*(?:\([^)]*\))?[\w.:, ]*$", "", text)
    text = re.sub(r"\s+-- .*?,\s*(?:n|a|adv|v)\..*$|\(\?\)|\s*\"[^\"]*\"\.?$", "", text)
    text = re.sub(r"-- \(?(?:see|opposed|distinguished|contrasted)\b.*", "", text, flags=re.IGNORECASE)
    text = re.sub(r"\s*-- (?:n|a|adv|v)\.(?: (?:pl|t|i)\.)? (?=[A-Z])", " ", text)
    refers = r"\(?See|Cf\.|Compare|Opposed|Distinguished|Contrasted|Opposite of|Also See|Antonym"
    text = re.sub(rf"(?:^|(?<=[.;:]))\s*(?:{refers})(?!\w).*$", "", text)
    text = re.sub(r"\besp\.", "especially", text).replace("i. e.", "i.e.").replace("e. g.", "e.g.")
    text = re.sub(r"(?:\s|[.;:,]|\bSpecifically)+$", "", text)
    text = re.sub(r"(?<=[a-z]\.) [A-Z][a-z'-]+$", "", text).rstrip(".")
    if (
        re.search(r"\w\?\w|\? |[\\=]|\bp\. ?p\.|^same as", text, re.IGNORECASE)
        or OFFENSIVE.search(text)
        or text.count(" ") < 2
    ):
        return ""
    return text if text[-1] in "!?" else text + "."


def webster(folder: Path) -> Iterator[str]:
    """Read GCIDE: one line per entry, its senses as sentences, quotations left out."""

    def article(entry: str) -> Iterator[str]:
        lines = entry.split("\n")
        word = re.match(r"[^\\\[{(]*", lines[0]).group().strip(" ,.")
        head, start = lines[0], 1
        while start < len(lines) and (
            any(head.count(a) != head.count(b) for a, b in ("[]", "()", "{}"))
            or head.count("\\") % 2
            or not re.search(r"[.\])\\}]\s*$", head)
            or re.match(r" +[\[(][A-Z][^\n]*[.)\]]$", lines[start])
        ):
            head += " " + lines[start].strip()
            start += 1
        body = "\n" + "\n".join(lines[start:])
        body = re.sub(r"\n +\[[^\]]*(?:Web|PJC|WordNet|Century|RH|AS|MW)[^\]]*\].*", "\n", body)
        blocks = re.split(r"\n\s*\n|\n(?= +(?:\d+\.|\([a-z]\)) )", body)
        blocks = [b for b in blocks if len(b.lstrip("\n")) - len(b.lstrip()) < 9 or b.strip()[:1] == "("]
        if not re.fullmatch(r"[A-Za-z' -]+", word) or OFFENSIVE.search(word):
            return
        senses = []
        for block in blocks:
            phrase = re.match(r"\s*\{([^}]*)\}((?: or \{[^}]*\})?)[,.]? *(\([A-Z][^)]*\))?,? *(?=[(A-Za-z])", block)
            text = sense(block[phrase.end() :] if phrase else block)
            if text and phrase:
                yield copula(plain(phrase.group()[: phrase.end(2) - phrase.start()]).strip(" .,"), text)
            elif text:
                senses.append(text[0].upper() + text[1:])
        if senses:
            yield " ".join([copula(word, senses[0]), *senses[1:]])

    return paragraphs(line for entry in entries(folder, "gcide") for line in article(entry))


def computing(folder: Path) -> Iterator[str]:
    """Read the computing dictionary FOLDOC; a head word joins its first paragraph."""

    def blocks() -> Iterator[str]:
        for entry in re.split(r"\n\n(?=\S)", "\n".join(entries(folder, "foldoc"))):
            head, body = re.match(r"(\S.*)\n(?:\S.*\n)*((?:.|\n)*)|", entry + "\n").groups()
            for block in re.split(r"\n\s*\n", (body or "").strip("\n")):
                block = re.sub(r"\s*\([12]\d\d\d-\d\d-\d\d\)|\s*\[\{.*?\}[^\]]*\]", "", block, flags=re.DOTALL)
                block = re.sub(r"^\s*(?:\d+\. *)?(?:<[^>]*> *)?(?:/[^/]+/,? *)?", "", block)
                block = re.sub(r"[{}]", "", re.sub(r"\[[^\]]*\]", "", block))
                block = re.sub(r"(?:^|(?<=\. ))\s*(?:See|Compare|Cf)\b[^.]*\.", "", block).strip()
                if block[:1].isupper() or block[:1] == "(":
                    short, text = re.match(r"(\([^)]*\) )?((?:.|\n)*)", block).groups()
                    title = f"{head} {short or ''}".strip()
                    yield copula(title, text) if head and text else block
                    head = ""

    return paragraphs(blocks())


def biography(folder: Path) -> Iterator[str]:
    """Read the biography that the SiSU markup package ships as its sample."""
    (path,) = folder.glob("usr/share/doc/sisu/markup-samples/samples/free_as_in_freedom_2*.sst")
    text = re.sub(r"^=\{.*?\}$", "", read_text(path).partition("1~ Chapter 1")[2], flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"~\{.*?\}~|\^~.*", "", text.partition("\n1~ Appendix B")[0], flags=re.DOTALL)
    text = re.sub(r"[*/!_\"]\{(.*?)\}[*/!_\"]", r"\1", text)
    return paragraphs(re.sub(r"^_\d? ", "", block) for block in text.split("\n\n"))


def commentary(folder: Path) -> Iterator[str]:
    """Read Matthew Henry's concise commentary from its SWORD module."""

    def blocks() -> Iterator[str]:
        for index in sorted(folder.glob("usr/share/sword/modules/comments/zcom/mhcc/*.bzs")):
            data = index.with_suffix(".bzz").read_bytes()
            for start, size, _ in struct.iter_unpack("<III", index.read_bytes()):
                text = zlib.decompress(data[start : start + size]).decode("utf-8", "replace")
                text = re.sub(r"<(table|hi)\b.*?</\1>|<title\b.*?</title>", "\n\n", text, flags=re.DOTALL)
                yield from re.split(r"<div[^>]*>|\n\n", re.sub(r"</?(?!div)[^>]*>", "", text))

    return paragraphs(blocks())


def nations(folder: Path) -> Iterator[str]:
    """Read the histories of nations in the rules of the Freeciv game."""
    files = sorted((folder / "usr/share/games/freeciv").glob("nation/*.ruleset"))
    found = (re.search(r'legend\s*=\s*_\("(.*?)"\)', read_text(path), re.DOTALL) for path in files)
    return paragraphs(re.sub(r"\\\n", "", m.group(1)).replace('\\"', '"') for m in found if m)


def novels(folder: Path) -> Iterator[str]:
    """Read the novels of Jane Austen from the data file of an R package."""

    def blocks() -> Iterator[str]:
        (path,) = folder.glob("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
        data, start = path.read_bytes(), 0
        while start < len(data):
            size, stream = None, data[start:]
            for offset, new in ((4, zlib.decompressobj), (5, zlib.decompressobj), (5, lzma.LZMADecompressor)):
                try:
                    unpack = new()
                    raw = unpack.decompress(stream[offset:])
                    size = len(stream) - len(unpack.unused_data)
                    break
                except (zlib.error, lzma.LZMAError):
                    continue
            if size is None:
                return
            start += size
            lines, at = [], 0
            for match in re.finditer(rb"\x00[\x00-\x0f]\x00\x09(\x00\x00\x00.)", raw, re.DOTALL):
                if match.start() >= at:
                    at = match.end() + match.group(1)[3]
                    lines.append(raw[match.end() : at].decode("utf-8", "replace"))
            yield from re.split(r"\n\s*\n", "\n".join(lines).replace("_", ""))

    return paragraphs(blocks())


class Source(NamedTuple):
    """A Debian package, its licence and how to read it."""

    package: str
    licence: str
    reader: Callable[[Path], Iterator[str]]


SOURCES = {
    "gcide": Source("dict-gcide", "GPL-2+", webster),
    "foldoc": Source("dict-foldoc", "GFDL-1.1+", computing),
    "anarchism": Source("anarchism", "GPL-2", pages("usr/share/doc/anarchism/html/*.html", drop="links|biblio|^http")),
    "stellarium": Source(
        "stellarium-data", "GPL-2+", pages("usr/share/stellarium/**/description.en.utf8", "ul ol dl", REFERENCE)
    ),
    "freeciv": Source("freeciv-data", "GPL-2+", nations),
    "biography": Source("sisu", "GFDL-1.3+", biography),
    "gnucash": Source(
        "gnucash-docs", "GFDL-1.1+", pages("usr/share/doc/gnucash-docs/gnucash-guide-en/*.html", drop=UI)
    ),
    "kstars": Source("kstars-data", "GFDL-1.2+", pages("usr/share/doc/HTML/en/kstars/*.docbook", drop=UI)),
    "copyright": Source("cfi-en", "public domain", pages("usr/share/doc/cfi-en/html/*.htm", "table")),
    "handbook": Source(
        "debian-handbook",
        "GPL-2+ or CC-BY-SA-3.0",
        pages("usr/share/doc/debian-handbook/html/en-US/*.html", drop=UI),
    ),
    "sqlite": Source("sqlite3-doc", "public domain", pages("usr/share/doc/sqlite3/*.html", drop=UI)),
    "commentary": Source("sword-comm-mhcc", "public domain", commentary),
    "austen": Source("r-cran-janeaustenr", "public domain", novels),
}


def fetch(name: str, workdir: Path) -> Path:
    """Download and unpack the package of a source.

    Parameters
    ----------
    name : str
        Key of `SOURCES`.
    workdir : Path
        Folder to work in.

    Returns
    -------
    Path
        Folder that holds the unpacked package.
    """
    package = SOURCES[name].package
    folder = workdir / package
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=workdir) as temporary:
            subprocess.run(["apt-get", "download", "-qq", package], cwd=temporary, check=True)
            (archive,) = Path(temporary).glob("*.deb")
            unpacked = Path(temporary) / "unpacked"
            subprocess.run(["dpkg", "-x", archive, unpacked], check=True)
            unpacked.rename(folder)  # whole or not at all: a folder that is there is taken as it is
    return folder


def write_paragraphs(target: Path, name: str, texts: Iterable[str], folder: Path) -> tuple[int, int]:
    """Write the paragraphs of a source as JSON lines, whole or not at all; their number and that of their words.

    SystemExit, which names the `folder` of the package, if there is none.
    """
    partial, count, words = target.with_suffix(".partial"), 0, 0
    with partial.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"source": name, "text": text}, ensure_ascii=False) + "\n")
            count, words = count + 1, words + len(text.split())
    if not count:
        partial.unlink()
        raise SystemExit(
            f"{name}: no paragraph in {str(folder)!r}; if its unpacking was cut off, delete it and run again"
        )
    partial.replace(target)
    return count, words


def main() -> None:
    """Write one JSON Lines file per source."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the JSON Lines files")
    parser.add_argument("--work", type=Path, help="folder of unpacked packages, kept (default: temporary)")
    parser.add_argument("names", nargs="*", help="sources (default: all)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.names or SOURCES:
            folder = fetch(name, args.work or Path(temporary))
            count, words = write_paragraphs(
                args.out / f"debian-{name}.jsonl", name, SOURCES[name].reader(folder), folder
            )
            print(f"{name}: {count} paragraphs, {words} words", flush=True)


if __name__ == "__main__":
    main()
