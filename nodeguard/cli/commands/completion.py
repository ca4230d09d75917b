"""nodeguard completion: a completion script for a shell, generated from the parsers of all commands."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.parser_tree import Option, ParsedCommand, read_parsers
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser

SHELLS = ("bash", "zsh", "fish")

_FILES = ("FILE", "DIR", "PATH", "HISTORY|BUNDLE")

# What completes the names of each kind in the function for bash and zsh: words of the catalogue, what the
# aggregator of this machine lists, or the indices of its GPUs.
_EXPRESSIONS = {
    "check": "$checks",
    "subject": "$checks $subjects",
    "family": "$families",
    "node": "$(_nodeguard_names nodes)",
    "incident": "$(_nodeguard_names incidents)",
    "domain": "$(_nodeguard_names domains)",
    "gpu-index": "$(_nodeguard_gpus /proc/driver/nvidia/gpus)",
}
_KINDS = {
    "CHECK": "check",
    "SUBJECT": "subject",
    "FAMILY,…": "family",
    "NODE": "node",
    "NODE|INCIDENT|DOMAIN": "node",
    "GPU": "gpu-index",
}

# The shell expands each word that completes: only names of plain characters are safe there.
# The driver lists a GPU of this machine in each directory, which takes no call of NVML.
_FUNCTIONS = """\
_nodeguard_names() {
    nodeguard get "$1" -o name 2>/dev/null | sed -n 's|^[a-z]*/\\([A-Za-z0-9._/-]*\\)$|\\1|p'
}
_nodeguard_gpus() {
    ls -- "$1" 2>/dev/null | awk '{ print NR - 1 }'
}"""


def completion_script(shell: str, commands: Sequence[ParsedCommand]) -> str:
    """Return the script of a shell."""
    scripts = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return "\n".join(scripts[shell](commands))


def _walk(commands: Sequence[ParsedCommand]) -> Iterator[ParsedCommand]:
    for command in commands:
        yield command
        yield from _walk(command.parts)


def _words(command: ParsedCommand) -> str:
    """Return the words that may follow a command: its parts, flags, and the choices of its arguments."""
    words = [part.words[-1] for part in command.parts]
    for option in command.options:
        words += option.flags or option.choices
    return " ".join(words)


def _kind(command: ParsedCommand, option: Option) -> str:
    """Return the kind of names that an option or an argument takes; empty for none of these."""
    if option.value != "NAME":
        return _KINDS.get(option.value, "")
    if "--node" in option.flags:
        return "" if command.words == ("agent",) else "node"
    if option.flags:
        return ""
    if command.words[0] == "incidents":
        return "incident"
    kind = command.words[-1].removesuffix("s")
    return kind if kind in _EXPRESSIONS else ""


def _choices(commands: Sequence[ParsedCommand]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the values that options accept, by command and flag; none for a value of another kind."""
    choices: dict[tuple[str, ...], tuple[str, ...]] = {}
    for command in _walk(commands):
        for option in command.options:
            kind = _kind(command, option)
            values = option.choices or _listed(option) or ((_EXPRESSIONS[kind],) if kind else ())
            for flag in option.flags if option.value or values else ():
                choices[(*command.words, flag)] = values
    return choices


def _listed(option: Option) -> tuple[str, ...]:
    return ("@file",) if any(option.value.startswith(name) for name in _FILES) else ()


def _bash(commands: Sequence[ParsedCommand]) -> Iterator[str]:
    yield "# bash completion of nodeguard, made by: nodeguard completion bash"
    yield from _function("_nodeguard", commands)


def _function(name: str, commands: Sequence[ParsedCommand]) -> Iterator[str]:
    """Yield a function that completes in bash, and in zsh with its bashcompinit."""
    catalogue, _ = load_catalogue()
    yield _FUNCTIONS
    yield f"{name}() {{"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    local command="" word'
    yield f'    local checks="{" ".join(check.id for check in catalogue.checks)}"'
    yield f'    local families="{" ".join(sorted({check.family for check in catalogue.checks}))}"'
    subjects = [item.name for item in catalogue.fault_classes] + [item.alert for item in catalogue.alerts]
    yield f'    local subjects="{" ".join(subjects)}"'
    yield '    for word in "${COMP_WORDS[@]:1:$((COMP_CWORD-1))}"; do'
    yield '        case "$command $word" in'
    names = "|".join(f'"{" ".join(("", *command.words))}"' for command in _walk(commands))
    yield f'            {names}) command="$command $word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$command $previous" in'
    choices = _choices(commands)
    free = "|".join(f'"{" ".join(("", *words))}"' for words, values in choices.items() if not values)
    yield f"        {free}) return ;;"
    for words, values in choices.items():
        key = " ".join(("", *words))
        if not values:
            continue
        if values == ("@file",):
            yield f'        "{key}") COMPREPLY=($(compgen -f -- "$current")); return ;;'
        else:
            yield f'        "{key}") COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$current")); return ;;'
    yield "    esac"
    yield '    case "$command" in'
    yield f'        "") COMPREPLY=($(compgen -W "{_top(commands)}" -- "$current")) ;;'
    for command in _walk(commands):
        key = " ".join(("", *command.words))
        kinds = [kind for option in command.options if not option.flags and (kind := _kind(command, option))]
        flags = f'compgen -W "{_words(command)}" -- "$current"'
        if not kinds:
            yield f'        "{key}") COMPREPLY=($({flags})) ;;'
            continue
        listed = f'compgen -W "{_EXPRESSIONS[kinds[0]]}" -- "$current"'
        yield f'        "{key}") if [[ "$current" == -* ]]; then COMPREPLY=($({flags}))'
        yield f"            else COMPREPLY=($({listed})); fi ;;"
    yield "    esac"
    yield "}"
    yield f"complete -o default -F {name} nodeguard"


def _top(commands: Sequence[ParsedCommand]) -> str:
    return " ".join([*(command.words[0] for command in commands), "help", "--help", "--version"])


def _zsh(commands: Sequence[ParsedCommand]) -> Iterator[str]:
    yield "#compdef nodeguard"
    yield "# zsh completion of nodeguard, made by: nodeguard completion zsh"
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from _function("_nodeguard_words", commands)
    # The first TAB loads the file as the function _nodeguard, which has to complete, too.
    yield 'if [[ "${funcstack[1]}" = _nodeguard ]]; then _bash_complete -o default -F _nodeguard_words; fi'


def _fish(commands: Sequence[ParsedCommand]) -> Iterator[str]:
    yield "# fish completion of nodeguard, made by: nodeguard completion fish"
    yield "complete -c nodeguard -f"
    for command in commands:
        name, summary = command.words[0], _quoted(command.summary)
        yield f"complete -c nodeguard -n __fish_use_subcommand -a {name} -d {summary}"
    for command in _walk(commands):
        seen = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in command.words)
        if command.parts:
            names = " ".join(part.words[-1] for part in command.parts)
            condition = f"{seen}; and not __fish_seen_subcommand_from {names}"
            for part in command.parts:
                yield f"complete -c nodeguard -n '{condition}' -a {part.words[-1]} -d {_quoted(part.summary)}"
        for option in command.options:
            yield f"complete -c nodeguard -n '{seen}' {_fish_option(option)} -d {_quoted(option.about)}"


def _fish_option(option: Option) -> str:
    flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    if option.choices:
        flags.append(f"{'-x ' if flags else ''}-a {_quoted(' '.join(option.choices))}")
    elif option.value:
        flags.append("-r -F" if _listed(option) else "-x" if flags else "")
    return " ".join(flags)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def run(options: Namespace) -> int:
    """Run the command; returns its exit code."""
    print_output(completion_script(options.shell, read_parsers()))
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard completion",
        description="Print a completion script.",
        examples=(
            "source <(nodeguard completion bash)",
            'nodeguard completion zsh > "${fpath[1]}/_nodeguard"',
            "nodeguard completion fish > ~/.config/fish/completions/nodeguard.fish",
        ),
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    return parser
