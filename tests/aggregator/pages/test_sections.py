from __future__ import annotations

from nodeguard.aggregator.pages.html import element
from nodeguard.aggregator.pages.sections import fields, sections
from nodeguard.fleet_api.text.lines import StyledLine
from nodeguard.fleet_api.text.phrases import command_lines, item_line, title_line


def test_the_first_part_has_the_heading_of_the_page_and_the_advice_follows_it() -> None:
    lines = [
        title_line("fatal", "fatal", "node-1: lost"),
        StyledLine(),
        title_line("ok", "ok", "fine"),
        StyledLine(),
    ]
    page = sections(lines, element("i", "advice"))
    assert page.index("<h1>") < page.index("advice") < page.index("<h2>")
    assert '<h1><b class="badge fatal">FATAL</b> node-1: lost</h1>' in page


def test_items_are_a_list_in_which_repeated_names_are_printed_once() -> None:
    page = fields([item_line("fault", "one"), item_line("fault", "two"), StyledLine(text="all of it")])
    assert page == (
        '<dl><div><dt class="dim">fault</dt><dd>one</dd></div>'
        '<div><dt class="dim"></dt><dd>two</dd></div>'
        '<div class="wide"><dt></dt><dd>all of it</dd></div></dl>'
    )
    assert fields([]) == ""


def test_the_commands_of_an_action_are_code_below_each_other() -> None:
    page = fields(command_lines(["nodeguard gpus detach", "nvidia-smi -r"]))
    assert page == (
        '<dl><div><dt class="dim">how</dt><dd><code>nodeguard gpus detach</code></dd></div>'
        '<div><dt class="dim"></dt><dd><code>nvidia-smi -r</code></dd></div></dl>'
    )


def test_commands_are_code_and_those_that_describe_or_explain_something_are_links() -> None:
    text = "nodeguard describe node gpu-1, nodeguard explain gpu-lost, nodeguard get nodes, nodeguard describe domain fabric/p0"
    page = fields([item_line("see", text)])
    assert '<a href="/nodes/gpu-1"><code>nodeguard describe node gpu-1</code></a>, ' in page
    assert ', <a href="/checks/gpu-lost"><code>nodeguard explain gpu-lost</code></a>, ' in page
    assert ", <code>nodeguard get nodes</code>, " in page
    assert '<a href="/domains/fabric/p0"><code>' in page
