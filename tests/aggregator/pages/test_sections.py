from __future__ import annotations

from nodeguard.aggregator.pages.sections import fields, sections
from nodeguard.fleet_api.view import (
    Field,
    Heading,
    Note,
    Section,
    Subject,
    View,
    badge_heading,
    commands,
    see,
)


def test_the_first_section_has_the_heading_of_the_page() -> None:
    lost = Section(badge_heading("fatal", "fatal", "node-1: lost"))
    page = sections(View((lost, Section(badge_heading("ok", "ok", "fine")))))
    assert page.index("<h1>") < page.index("<h2>")
    assert '<h1><b class="badge fatal">FATAL</b> node-1: lost</h1>' in page


def test_an_article_has_its_paragraphs_between_its_title_and_its_properties() -> None:
    rows = (Note("It is gone."), Field("health", "fatal"))
    title = Heading("gpu-lost", "strong", "GPU lost", separator=" - ")
    assert sections(View((Section(title, rows, "article"),))) == (
        '<section class="head"><h1>gpu-lost - GPU lost</h1><p>It is gone.</p>'
        '<dl><div><dt class="dim">health</dt><dd>fatal</dd></div></dl></section>'
    )


def test_items_are_a_list_in_which_repeated_names_are_printed_once() -> None:
    page = fields([Field("fault", "one"), Field("fault", "two"), Note("all of it")])
    assert page == (
        '<dl><div><dt class="dim">fault</dt><dd>one</dd></div>'
        '<div><dt class="dim"></dt><dd>two</dd></div>'
        '<div class="wide"><dt></dt><dd>all of it</dd></div></dl>'
    )
    assert fields([]) == ""


def test_the_commands_of_an_action_are_code_below_each_other() -> None:
    page = fields(commands(("nodeguard gpus detach", "nvidia-smi -r")))
    assert page == (
        '<dl><div><dt class="dim">how</dt><dd><code class="command">nodeguard gpus detach</code></dd></div>'
        '<div><dt class="dim"></dt><dd><code class="command"><span>nvidia-smi</span> <span>-r</span></code></dd></div></dl>'
    )


def test_the_commands_for_subjects_are_links_to_their_pages() -> None:
    subjects = Subject("node", "gpu-1"), Subject("check", "gpu-lost"), Subject("domain", "fabric/p0")
    page = fields([see(*subjects)])
    assert '<a href="/nodes/gpu-1"><code>nodeguard describe node <span>gpu-1</span></code></a>, ' in page
    assert ', <a href="/checks/gpu-lost"><code>nodeguard explain <span>gpu-lost</span></code></a>, ' in page
    assert '<a href="/domains/fabric/p0"><code>nodeguard describe domain fabric/p0</code></a></dd>' in page


def test_names_of_nodes_are_links_to_their_pages() -> None:
    nodes = Subject("node", "gpu-1"), Subject("node", "gpu-2")
    page = fields([Field("", "gpu-1, gpu-2", subjects=nodes)])
    assert '<a href="/nodes/gpu-1">gpu-1</a>, <a href="/nodes/gpu-2">gpu-2</a></dd>' in page
