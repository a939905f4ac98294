"""The built site in headless Chromium, as wide as a phone and as a screen: `make test` runs this after the notebooks.

It is not among the other tests, since it needs build/site. Nothing here skips: no site, or no browser, is an error.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
SITE, CHROMIUM = ROOT / "build" / "site", ROOT / ".venv" / "chromium" / "chromium"
WIDTHS = (380, 1280)
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_static" not in path.parts)
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
BROKEN = "() => [...document.images].filter((i) => !(i.complete && i.naturalWidth)).map((i) => i.src)"


@pytest.fixture(scope="module")
def page():
    """A page that notes every message of an error and every request that leaves this disk."""
    assert CHROMIUM.is_file(), f"no {CHROMIUM.relative_to(ROOT)}: make {CHROMIUM.relative_to(ROOT)}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.faults = []
        page.on("console", lambda said: page.faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("requestfailed", lambda request: page.faults.append(f"failed: {request.url}"))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else page.faults.append(r.url))
        yield page
        browser.close()


def faults_of(page, path):
    """What is wrong with a page at each width."""
    page.faults.clear()
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if width == WIDTHS[0]:
            page.goto(path.as_uri(), wait_until="load")
        if (more := page.evaluate(WIDE)) > 0:
            found.append(f"{more} pixels wider than {width}")
    return found + [f"no picture {src}" for src in page.evaluate(BROKEN)] + page.faults


def test_the_site_has_a_page_for_each_notebook_and_module():
    assert {"index.html", "api/index.html", "search.html"} <= {*PAGES}
    modules = [path.stem for path in (ROOT / "glauber_lib").rglob("*.py") if not path.stem.startswith("__")]
    assert len(PAGES) >= len(modules) + 4 + 3
    assert all((SITE / "notebooks" / f"{name}.html").is_file() for name in (
        "01_incompatibility", "02_bounds", "03_crossover", "04_basins",
    ))  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_whole_and_fits_both_widths(name, page):
    assert faults_of(page, SITE / name) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<p>as it should be", None),
        ('<img src="nowhere.png">', "no picture"),
        ("<script>undefined_name()</script>", "undefined_name is not defined"),
        ('<div style="width: 500px">wide', "120 pixels wider than 380"),
        ('<script src="https://example.invalid/x.js"></script>', "https://example.invalid/x.js"),
    ],
)
def test_a_fault_is_seen(body, fault, page, tmp_path):
    (tmp_path / "page.html").write_text(f'<!doctype html><body style="margin: 0">{body}')
    found = faults_of(page, tmp_path / "page.html")
    assert (found == []) if fault is None else any(fault in said for said in found)


def test_claims_are_sorted_filtered_and_lead_to_their_cells(page):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((SITE / "index.html").as_uri())
    rows = page.locator("#claims-table tbody tr")
    whole = rows.count()
    assert whole > 50 and page.locator("#claims-count").inner_text() == f"{whole} of {whole} claims"
    page.locator("#claims-section").select_option("bounds")
    shown = page.locator("#claims-table tbody tr:not([hidden])")
    assert 0 < shown.count() < whole
    assert {*shown.evaluate_all("rows => rows.map((row) => row.dataset.section)")} == {"bounds"}
    page.locator("#claims-section").select_option("")
    page.locator("#claims-words").fill("no row holds these words")
    assert page.locator("#claims-count").inner_text().startswith("0 of")
    page.locator("#claims-words").fill("")
    page.get_by_role("button", name="measured").click()
    values = rows.evaluate_all("rows => rows.map((row) => row.cells[2].dataset.value)")
    numbers = [float(value) for value in values if value]
    assert numbers == sorted(numbers) and "" not in values[: len(numbers)]
    link = page.locator("#claims-table tbody a").first
    target = link.get_attribute("href").split("#")[1]
    link.click()
    page.locator(f'[id="{target}"]').wait_for(state="attached")
    page.wait_for_load_state("load")
    links = page.locator("details.hide")
    assert links.count() > 3 and not links.evaluate_all("all => all.some((one) => one.open)")  # code is folded
    assert page.get_by_text('profile = "mini"').count() == 0  # the parameters that were given, once


def test_every_link_within_the_site_leads_somewhere():
    lost = []
    for name in PAGES:
        text = (SITE / name).read_text(encoding="utf-8")
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            path, _, mark = target.partition("#")
            if "://" in target or target.startswith(("data:", "mailto:")):
                continue
            found = (SITE / name).parent / path.partition("?")[0] if path else SITE / name
            if not found.exists():
                lost.append(f"{name}: {target}")
            elif mark and found.suffix == ".html" and f'id="{mark}"' not in found.read_text(encoding="utf-8"):
                lost.append(f"{name}: {target}")
    assert lost == []
