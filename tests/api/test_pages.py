"""What is served beside the API; and the page of documentation, in a real browser."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mainspring.rest.routes import ROUTES
from mainspring.store.database import Database

from .browser import CHROMIUM, browsing
from .conftest import Asker, key_for, serve

pytestmark = pytest.mark.asyncio(loop_scope="session")

STATIC = Path(__file__).parents[2] / "src/mainspring/api/static"
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; tools/services installs it")
FILES = {"/docs": "text/html", "/docs/docs.js": "text/javascript", "/docs/docs.css": "text/css"}
LISTED = "document.querySelectorAll('#list a').length"
SHOWN = "[...document.querySelectorAll('#list li:not([hidden]) a')].map(each => each.hash.slice(1))"
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.mark.covers("F112")
@pytest.mark.parametrize("path", FILES)
async def test_pages_allow_nothing_inline_and_nothing_from_elsewhere(ask: Asker, path: str) -> None:
    answer = await ask("GET", path)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith(FILES[path])
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in str(policy)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"


@pytest.mark.covers("F112")
async def test_the_page_writes_text_and_never_markup() -> None:
    script, page = (STATIC / "docs.js").read_text(), (STATIC / "docs.html").read_text()
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "Storage",
        "cookie",
    ):
        assert forbidden not in script
    assert "//" not in page.replace("<!doctype", "")  # no address of anybody else
    assert "style=" not in page
    assert "onclick" not in page


async def test_health_metrics_and_the_description_are_there(ask: Asker) -> None:
    assert (await ask("GET", "/healthz")).body == {"status": "ok"}
    assert (await ask("GET", "/readyz")).body == {"ready": True, "database": "ok"}
    assert "# HELP" in (await ask("GET", "/metrics")).body
    assert (await ask("GET", "/openapi.json"))["openapi"] == "3.1.0"
    refused = await ask("POST", "/healthz")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET")


@in_a_browser
async def test_the_documentation_in_a_browser(db: Database, tmp_path: Path) -> None:
    pictures = Path(os.environ.get("MAINSPRING_PICTURES", tmp_path))
    key = await key_for(db, "shop")
    async with serve(db) as ask, browsing() as page:
        await page.look(1_280, 900)
        await page.go(f"{ask.url}/docs")
        await page.until(f"{LISTED} > 0")
        assert set(await page.value(SHOWN)) == {route.name.replace(".", "_") for route in ROUTES}
        await page.picture(pictures / "light.png")

        # every operation can be shown, with all that can be opened
        for route in ROUTES:
            name = route.name.replace(".", "_")
            await page.value(f"location.hash = '{name}'")
            await page.until(f"document.querySelector('[aria-current]')?.hash === '#{name}'")
            assert await page.value("document.querySelector('h1').textContent") == route.summary
            assert await page.value("document.querySelector('.where code').textContent") == f"/api/v1{route.path}"
            await page.value("document.querySelectorAll('main details').forEach(each => each.open = true)")
            statuses = await page.value(
                "[...document.querySelectorAll('.answer .status')].map(each => each.textContent)"
            )
            assert {str(route.status), *map(str, route.errors), "503"} <= set(statuses)

        # the filter, by keyboard
        await page.value("document.activeElement.blur()")
        await page.tell("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
        assert await page.value("document.activeElement.id") == "filter"
        await page.tell("Input.insertText", text="post trig")
        assert await page.value(SHOWN) == ["jobs_trigger"]
        await page.tell("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        assert len(await page.value(SHOWN)) == len(ROUTES)

        # asking: as nobody, as somebody, and with a body
        await page.value("location.hash = 'me_get'")
        await page.until("document.querySelector('h1').textContent.startsWith('Who is asking')")
        await page.value("document.querySelector('form.try').requestSubmit()")
        await page.until("document.querySelector('.answered .status')?.textContent.startsWith('200')")
        await page.until("document.querySelector('.answered pre').textContent.includes('\"local\"')")
        await page.value(f"document.getElementById('key').value = '{key}'")
        await page.value("document.querySelector('form.try').requestSubmit()")
        await page.until("document.querySelector('.answered pre')?.textContent.includes('\"shop\"')")
        assert key not in await page.value("document.documentElement.outerHTML")
        await page.value("location.hash = 'jobs_create'")
        await page.until("document.querySelector('h1').textContent === 'Make a job'")
        await page.value("document.querySelector('form.try').requestSubmit()")
        await page.until("document.querySelector('.answered .status')?.textContent.startsWith('201')")
        assert (await ask.with_key(key)("GET", "/jobs/nightly")).status == 200
        assert "curl -X POST" in await page.value("document.querySelector('.curl pre').textContent")

        # dark, narrow
        await page.look(1_280, 900, dark=True)
        await page.value("document.querySelectorAll('main .schema details').forEach((each, at) => each.open = at < 2)")
        await page.picture(pictures / "dark.png")
        await page.value("document.querySelector('form.try').scrollIntoView()")
        await page.picture(pictures / "try.png")
        await page.look(340, 800)
        assert await page.value(FITS)
        await page.value("scrollTo(0, 0)")
        await page.picture(pictures / "narrow.png")
        await page.value("document.getElementById('menu').click()")
        assert await page.value("getComputedStyle(document.getElementById('side')).display") == "block"
        await page.picture(pictures / "narrow-menu.png")

        assert {urlsplit(url).netloc for url in page.requests if not url.startswith("data:")} == {
            urlsplit(ask.url).netloc
        }
        assert page.complaints == []


@pytest.mark.covers("F112")
@in_a_browser
async def test_markup_in_names_stays_text(db: Database) -> None:
    """A job whose name is a script: the page shows it, and runs nothing."""
    name = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"
    async with serve(db) as ask, browsing() as page:
        made = await ask("POST", "/jobs", {"name": name, "task": "report", "schedule": [{"cron": "30 2 * * *"}]})
        assert made.status == 201, made.body
        await page.go(f"{ask.url}/docs#jobs_list")
        await page.until(f"{LISTED} > 0")
        await page.value("document.querySelector('form.try').requestSubmit()")
        await page.until("document.querySelector('.answered pre')?.textContent.includes('onerror')")
        assert await page.value("document.querySelectorAll('main img, main script').length") == 0
        assert "broken" not in await page.value("document.title")
        assert page.complaints == []
