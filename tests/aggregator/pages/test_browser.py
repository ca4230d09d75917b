"""The status page in a real browser: Chromium without a window."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from nodeguard.aggregator.pages.change_feed import ChangeFeed
from nodeguard.aggregator.pages.handler import MAX_STREAMS, StatusPages, serve_pages
from tests.aggregator.pages.scenes import (
    HOSTILE,
    faulty_fleet,
    gpu_name,
    hostile_fleet,
    large_fleet,
    pages_context,
    plain_fleet,
)
from tests.browser import Tab, browser, new_tab
from tests.fleet.scene import Fleet, finding
from tests.ports import free_ports

pytestmark = pytest.mark.slow

TAB, ENTER = ("Tab", 9), ("Enter", 13)


@pytest.fixture(scope="module")
def browser_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a browser for all tests of this file, which takes a second to start."""
    with browser(tmp_path_factory.mktemp("browser")) as url:
        yield url


@pytest.fixture
async def tab(browser_url: str) -> AsyncIterator[Tab]:
    """Return a new page. It fails the test if its console has an error, as after a violation of the policy."""
    async with new_tab(browser_url) as opened:
        yield opened
        assert opened.messages == []


@asynccontextmanager
async def served(fleet: Fleet, tab: Tab) -> AsyncIterator[str]:
    """Serve the pages of a fleet, until the page of the browser has ended. It is left at the end."""
    [port] = free_ports(1)
    feed = ChangeFeed(lambda: hash(frozenset(fleet.planner.tracker.recorded.by_uid)), 0.01, 1e6)
    pages = StatusPages(pages_context(fleet), feed)
    await tab.servers.enter_async_context(serve_pages(("127.0.0.1", port), pages))
    yield f"http://localhost:{port}"
    await tab.open("about:blank")


@pytest.fixture(scope="module")
def faulty() -> Fleet:
    return faulty_fleet()


PAGES = (
    "/",
    "/incidents",
    f"/nodes/{gpu_name(100)}",
    "/checks/gpu-lost",
    "/checks/link",
    "/domains",
    "/nodes?health=fatal",
    "/domains/fabric/p0/r2",
    "/nodes/none",
)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
async def test_pages_fit_their_width_and_obey_the_policy(
    tab: Tab, faulty: Fleet, width: int, dark: bool
) -> None:
    await tab.view(width, dark=dark)
    async with served(faulty, tab) as url:
        for path in PAGES:
            await tab.open(url + path)
            await tab.shows("document.getElementById('live').innerText.startsWith('live, as of ')")
            assert await tab.evaluate("document.documentElement.scrollWidth") <= width
            background = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
        assert await tab.evaluate("document.querySelector('h1').innerText") == "Not found"
    # The browser reports the status of the page that does not exist.
    assert all("404" in message for message in tab.messages)
    tab.messages.clear()


# The contrast of two colors: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio. Text of an element is on the first
# background that is not transparent; a hatched one has none.
_CONTRAST = """
(() => {
  const light = color => {
    const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map(Number).map(part => {
      part /= 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!text || element.closest(".skip, .unknown, footer svg")) continue;
    let behind = element;
    while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    const lights = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(light).sort();
    const contrast = (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
    if (contrast < 4.5) poor.push(`${element.tagName}.${element.className} ${element.innerText} ${contrast.toFixed(2)}`);
  }
  return [...new Set(poor)];
})()
"""


@pytest.mark.parametrize("dark", [False, True])
async def test_all_text_has_enough_contrast(tab: Tab, faulty: Fleet, dark: bool) -> None:
    await tab.view(1280, dark=dark)
    async with served(faulty, tab) as url:
        for path in PAGES[:-1]:
            await tab.open(url + path)
            assert await tab.evaluate(_CONTRAST) == []


async def test_a_change_appears_without_a_reload_and_focus_stays(tab: Tab) -> None:
    fleet = plain_fleet(40)
    await tab.view(1280)
    async with served(fleet, tab) as url:
        await tab.open(f"{url}/?by=fabric")
        await tab.shows("document.getElementById('live').innerText.startsWith('live')")
        await tab.evaluate("document.getElementById('by-power').focus(); window.marker = 1")
        fleet.report(3, finding(message="the GPU is gone"))
        fleet.carry_out()
        await tab.shows("document.getElementById('main').innerText.includes('the GPU is gone')")
        assert await tab.evaluate("document.activeElement.id") == "by-power"
        assert await tab.evaluate("document.title.startsWith('FATAL 40 nodes: 1 fatal')")
        assert await tab.evaluate("window.marker") == 1


async def test_a_lost_connection_is_shown(tab: Tab) -> None:
    fleet = plain_fleet(8)
    await tab.view(390)
    [port] = free_ports(1)
    async with serve_pages(("127.0.0.1", port), StatusPages(pages_context(fleet))):
        await tab.open(f"http://localhost:{port}/")
        await tab.shows("document.getElementById('live').innerText.startsWith('live')")
    await tab.shows(
        "document.getElementById('live').innerText.startsWith('CONNECTION LOST - this page shows 2023-')"
    )
    await tab.open("about:blank")
    assert all("ERR_" in message for message in tab.messages)
    tab.messages.clear()


async def test_a_page_above_the_limit_of_streams_is_no_lost_connection(tab: Tab) -> None:
    fleet = plain_fleet(8)
    feed = ChangeFeed(lambda: 0, 1e6, 1e6)
    await tab.view(1280)
    [port] = free_ports(1)
    async with serve_pages(("127.0.0.1", port), StatusPages(pages_context(fleet), feed)):
        with ExitStack() as streams:
            for _ in range(MAX_STREAMS):
                streams.enter_context(feed.subscribe())
            await tab.open(f"http://localhost:{port}/")
            await tab.shows("document.getElementById('live').innerText.startsWith('live')")
            assert any("503" in message for message in tab.messages)
            tab.messages.clear()
        await tab.open("about:blank")


async def test_without_scripts_the_page_is_whole_and_is_read_again(tab: Tab, faulty: Fleet) -> None:
    await tab.view(1280, scripts=False)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/")
        assert await tab.evaluate("document.querySelectorAll('a.cell').length") == 17
        reload = await tab.evaluate("document.querySelector('noscript meta[http-equiv=refresh]')?.content")
        assert reload == "30"
        assert (await tab.evaluate("document.getElementById('live').innerText")).startswith("as of ")


async def test_the_keyboard_reaches_faults_before_healthy_nodes(tab: Tab, faulty: Fleet) -> None:
    await tab.view(1280)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/")
        await tab.shows("document.getElementById('live').innerText.startsWith('live')")
        stops = []
        for _ in range(52):
            await tab.press(*TAB)
            stops.append(await tab.evaluate("document.activeElement.getAttribute('href')"))
            if len(stops) == 1:
                # The focus is visible.
                assert await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert stops[:7] == ["#main", "/", "/incidents", "/nodes", "/domains", None, "/nodes?work=faulty"]
        chosen = stops.index("/?by=power#map")
        assert f"/nodes/{gpu_name(66)}" in stops[:chosen]
        on_map = stops[chosen:]
        first = on_map.index("/domains/fabric/p0/r2")
        assert on_map[first - 1] == "/domains/fabric/p0"
        assert on_map[first + 1 : first + 7] == [f"/nodes/{gpu_name(number)}" for number in range(16, 22)]
        assert gpu_name(5) not in str(stops)
        await tab.evaluate(f"document.querySelector('a[href=\"/nodes/{gpu_name(100)}\"]').focus()")
        await tab.press(*ENTER)
        await tab.shows(
            "document.querySelector('h1')?.innerText.includes('quarantined, no new work: gpu-lost')"
        )


@pytest.mark.parametrize(("faults", "leaf"), [(0, 0), (40, 0), (60, 8), (400, 0)])
async def test_7500_nodes_fit_on_one_screen(tab: Tab, faults: int, leaf: int) -> None:
    fleet = large_fleet(faults, leaf)
    await tab.view(1280)
    async with served(fleet, tab) as url:
        for topology in ("fabric", "power", "pool"):
            await tab.open(f"{url}/?by={topology}")
            await tab.shows("document.getElementById('live').innerText.startsWith('live')")
            assert await tab.evaluate("document.documentElement.scrollHeight") <= 900


@pytest.mark.parametrize("scripts", [False, True])
async def test_a_node_is_found_by_a_part_of_its_name(tab: Tab, faulty: Fleet, scripts: bool) -> None:
    await tab.view(1280, scripts=scripts)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/")
        await tab.evaluate("document.querySelector('header input').value = '0100'")
        await tab.evaluate("document.querySelector('header form').requestSubmit()")
        await tab.shows("document.querySelector('h1')?.innerText.startsWith(\"1 node with '0100'\")")
        assert await tab.evaluate("document.querySelector('header input').value") == "0100"


async def test_cells_are_large_enough_for_a_finger(tab: Tab, faulty: Fleet) -> None:
    await tab.view(390)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/")
        small = "[...document.querySelectorAll('a.cell')].filter(cell => cell.offsetWidth < 24 || cell.offsetHeight < 24)"
        assert await tab.evaluate(f"{small}.length") == 0


async def test_the_first_screen_of_a_phone_has_the_worst_incident_with_what_to_do(
    tab: Tab, faulty: Fleet
) -> None:
    # What Safari shows on an iPhone 14 between its bars, in the list of devices of Playwright.
    width, height = 390, 664
    await tab.view(width)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/")
        await tab.shows("document.getElementById('live').innerText.startsWith('live')")
        action = "document.querySelector('td[data-name=\"What to do\"]')"
        assert "Reboot the node" in await tab.evaluate(f"{action}.innerText")
        assert await tab.evaluate(f"{action}.getBoundingClientRect().bottom") <= height


async def test_a_healthy_node_takes_one_line_of_a_phone(tab: Tab, faulty: Fleet) -> None:
    await tab.view(390)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/nodes?health=ok")
        heights = await tab.evaluate(
            "[...document.querySelectorAll('tbody tr')].map(row => row.offsetHeight)"
        )
        assert len(heights) == 50
        assert min(heights) < 45
        text = await tab.evaluate("document.querySelector('tbody tr').innerText")
        assert text.split() == [gpu_name(0), "OK", "8"]


async def test_the_parts_of_a_node_have_text_of_one_size(tab: Tab, faulty: Fleet) -> None:
    await tab.view(1280)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/nodes/{gpu_name(100)}")
        sizes = "[...document.querySelectorAll('dl')].map(list => getComputedStyle(list).fontSize)"
        assert set(await tab.evaluate(sizes)) == {"14px"}


async def test_no_choice_is_split_over_two_lines_of_a_phone(tab: Tab, faulty: Fleet) -> None:
    await tab.view(390)
    async with served(faulty, tab) as url:
        for path in ("/", "/incidents", "/nodes"):
            await tab.open(f"{url}{path}")
            links = "[...document.querySelectorAll('nav a')].filter(link => link.getClientRects().length > 1)"
            assert await tab.evaluate(f"{links}.map(link => link.innerText)") == []


# The words of commands that are on several lines, although one has enough room.
_SPLIT_WORDS = r"""
[...document.querySelectorAll("code")].flatMap(code => {
  const split = [], texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/\S+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const parts = [...range.getClientRects()];
      const width = parts.reduce((sum, part) => sum + part.width, 0);
      const isSplit = new Set(parts.map(part => part.top)).size > 1;
      if (isSplit && width <= code.parentElement.clientWidth) split.push(word[0]);
    }
  }
  return split;
})
"""


async def test_a_command_breaks_between_its_words_on_a_phone(tab: Tab, faulty: Fleet) -> None:
    await tab.view(390)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/nodes/{gpu_name(100)}")
        commands = await tab.evaluate(
            "[...document.querySelectorAll('.command')].map(code => code.innerText)"
        )
        drain = "kubectl drain gpu-h100-0100 --ignore-daemonsets --delete-emptydir-data"
        assert drain in commands
        assert await tab.evaluate(_SPLIT_WORDS) == []


async def test_the_field_for_a_node_does_not_enlarge_the_page_of_a_phone(tab: Tab, faulty: Fleet) -> None:
    await tab.view(390)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/")
        size = await tab.evaluate(
            "parseFloat(getComputedStyle(document.querySelector('header input')).fontSize)"
        )
        assert size >= 16


async def test_the_marks_of_a_node_are_on_one_line(tab: Tab, faulty: Fleet) -> None:
    await tab.view(1280)
    async with served(faulty, tab) as url:
        await tab.open(f"{url}/nodes?mark=domain-degraded")
        heights = await tab.evaluate(
            "[...document.querySelectorAll('tbody tr')].map(row => row.offsetHeight)"
        )
        assert len(heights) == 8
        assert max(heights) < 30


async def test_an_opened_list_stays_open_after_a_change(tab: Tab) -> None:
    fleet = plain_fleet(4000)
    await tab.view(1280)
    async with served(fleet, tab) as url:
        await tab.open(f"{url}/")
        await tab.shows("document.getElementById('live').innerText.startsWith('live')")
        assert await tab.evaluate("document.getElementById('healthy').open") is False
        await tab.evaluate("document.querySelector('summary').click()")
        fleet.report(3, finding(message="the GPU is gone"))
        fleet.carry_out()
        await tab.shows("document.getElementById('main').innerText.includes('the GPU is gone')")
        assert await tab.evaluate("document.getElementById('healthy').open") is True


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_longest_name_of_a_node_is_cut(tab: Tab, width: int) -> None:
    fleet = plain_fleet(8)
    fleet.change(3, name="n" * 253)
    await tab.view(width)
    async with served(fleet, tab) as url:
        for path in ("/", "/nodes"):
            await tab.open(url + path)
            assert await tab.evaluate("document.documentElement.scrollWidth") <= width


async def test_an_attack_in_every_text_runs_nothing(tab: Tab) -> None:
    fleet = hostile_fleet()
    await tab.view(1280)
    async with served(fleet, tab) as url:
        for path in ("/", "/incidents", "/domains"):
            await tab.open(url + path)
            assert await tab.evaluate("document.querySelectorAll('main script, main img').length") == 0
        await tab.open(url + "/")
        await tab.evaluate(
            f"[...document.querySelectorAll('main a')].find(a => a.title.startsWith({HOSTILE!r})).click()"
        )
        await tab.shows("location.pathname.startsWith('/nodes/') && document.readyState === 'complete'")
        assert HOSTILE in await tab.evaluate("document.querySelector('h1').innerText")
