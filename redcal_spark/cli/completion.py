"""`redcal completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redcal_spark.cli.fail_on import NamesAmong
from redcal_spark.config.schema import Config
from redcal_spark.config.section import Section

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "DIR", "TABLE")


@dataclass(frozen=True)
class Word:
    """An option or, without names, an argument; values: what may follow it, where that is known."""

    names: tuple[str, ...]
    text: str
    takes: str | None  # what the value is called; None: an option without one
    values: tuple[str, ...] = ()

    @property
    def file(self) -> bool:
        return self.takes in FILES


@dataclass(frozen=True)
class Command:
    name: str
    text: str
    words: tuple[Word, ...]

    @property
    def options(self) -> list[str]:
        return [name for word in self.words for name in word.names]


def completion(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print the script for a shell."""
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](*_read(parser))
    if options.json:
        print(json.dumps({"shell": options.shell, "script": script}))
    else:
        print(script, end="")
    return 0


# --- what there is --------------------------------------------------------------------------------


def _read(parser: argparse.ArgumentParser) -> tuple[Command, list[Command]]:
    """What stands before a command, and the commands, from the parser itself."""
    commands = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                text = (sub.description or "").rstrip(".")
                commands.append(Command(name, text, tuple(_words(sub._actions))))
    return Command("", "", tuple(_words(parser._actions))), commands


def _words(actions: Sequence[argparse.Action]) -> Iterator[Word]:
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        takes = None if action.nargs == 0 else str(action.metavar or action.dest.upper())
        text = (action.help or "") % {"default": action.default, "prog": "redcal"}
        yield Word(tuple(action.option_strings), text, takes, _values(action))


def _values(action: argparse.Action) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.dest == "set":
        return tuple(f"{key}=" for key in _keys(Config))
    if isinstance(action.type, NamesAmong):
        return action.type.known
    return ("latest",) if "latest" in (action.help or "") else ()


def _keys(section: type[Section], above: str = "") -> Iterator[str]:
    """The keys of the configuration that hold one value each."""
    for name, field in section.model_fields.items():
        key, kind = f"{above}{field.alias or name}", field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _keys(kind, f"{key}.")
        elif above:
            yield key


# --- bash -----------------------------------------------------------------------------------------


def _bash(before: Command, commands: Sequence[Command]) -> str:
    lines = [
        '# redcal in bash; in ~/.bashrc:  eval "$(redcal completion bash)"',
        "_redcal() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} command= i",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        "        case ${COMP_WORDS[i]} in",
        "            -C|--directory) ((i++)) ;;",
        "            -*) ;;",
        "            *) command=${COMP_WORDS[i]}; break ;;",
        "        esac",
        "    done",
        "    COMPREPLY=()",
        "    case $command:$last in  # an option's value; files are the shell's own affair",
    ]
    for one in (before, *commands):
        for word in one.words:
            if word.takes is not None and word.names:
                places = "|".join(f"{one.name}:{name}" for name in word.names)
                lines.append(f"        {places}) {_bash_value(word)}; return ;;")
    lines += ["    esac", "    case $command in"]
    for one in (before, *commands):
        words = [*one.options, *(v for word in one.words if not word.names for v in word.values)]
        if one is before:
            words += [command.name for command in commands]
        place = one.name or "''"
        lines.append(
            f'        {place}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word")) ;;'
        )
    lines += ["    esac", "}", "complete -o default -F _redcal redcal", ""]
    return "\n".join(lines)


def _bash_value(word: Word) -> str:
    if word.file:
        return ":"
    if not word.values:
        return "compopt +o default"
    space = "compopt -o nospace; " if word.values[0].endswith("=") else ""
    return f'{space}COMPREPLY=($(compgen -W "{" ".join(word.values)}" -- "$word"))'


# --- zsh ------------------------------------------------------------------------------------------


def _zsh(before: Command, commands: Sequence[Command]) -> str:
    names = (shlex.quote(f"{one.name}:{one.text}") for one in commands)
    lines = [
        "#compdef redcal",
        "# redcal in zsh; in ~/.zshrc, after compinit:  source <(redcal completion zsh)",
        "_redcal() {",
        "    local curcontext=$curcontext state line",
        "    local -a commands",
        *("    commands+=(" + name + ")" for name in names),
        "    _arguments -C "
        + " ".join(_zsh_words(before))
        + " '1:command:->command' '*::word:->words'",
        "    case $state in",
        "        command) _describe command commands ;;",
        "        words)",
        "            case $words[1] in",
    ]
    for one in commands:
        lines.append(f"                {one.name}) _arguments {' '.join(_zsh_words(one))} ;;")
    lines += [
        *("            esac ;;", "    esac", "}"),
        'if [[ $funcstack[1] = _redcal ]]; then _redcal "$@"; else compdef _redcal redcal; fi',
        "",
    ]
    return "\n".join(lines)


def _zsh_words(command: Command) -> Iterator[str]:
    """One specification for each name of an option: `-c[text]:FILE:_files`."""
    for word in command.words:
        text = _zsh_text(word.text)
        if word.takes is None:
            value = ""
        elif word.values:
            value = f":{word.takes}:({' '.join(word.values)})"
            if word.values[0].endswith("="):
                value = f":{word.takes}:compadd -S '' -- {' '.join(word.values)}"
        else:
            value = f":{word.takes}:{'_files' if word.file else ' '}"
        if not word.names:
            yield shlex.quote(f"1{value}")
        for name in word.names:
            yield shlex.quote(f"{name}[{text}]{value}")


def _zsh_text(text: str) -> str:
    for special in ("\\", "[", "]", ":"):
        text = text.replace(special, f"\\{special}")
    return text


# --- fish -----------------------------------------------------------------------------------------


FISH = """\
# redcal in fish; in ~/.config/fish/config.fish:  redcal completion fish | source
function __redcal_command
    set -l words (commandline -opc)
    set -l i 2
    while test $i -le (count $words)
        switch $words[$i]
            case -C --directory
                set i (math $i + 1)
            case '-*'
            case '*'
                echo $words[$i]
                return
        end
        set i (math $i + 1)
    end
end
complete -c redcal -f
"""


def _fish(before: Command, commands: Sequence[Command]) -> str:
    first = "not count (__redcal_command) >/dev/null"
    lines = []
    for one in commands:
        what = f"-a {one.name} -d {_fish_text(one.text)}"
        lines.append(f"complete -c redcal -n {_fish_text(first)} {what}")
    for one in (before, *commands):
        where = f"contains -- {one.name} (__redcal_command)" if one.name else first
        lines += [
            f"complete -c redcal -n {_fish_text(where)} {_fish_word(word)}" for word in one.words
        ]
    return FISH + "\n".join([*lines, ""])


def _fish_word(word: Word) -> str:
    parts = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in word.names]
    if word.names and word.takes is not None:
        parts.append("-r -F" if word.file else "-x")
    if word.values:
        parts.append(f"-a {_fish_text(' '.join(word.values))}")
    elif not word.names:
        parts.append("-F")
    return " ".join([*parts, f"-d {_fish_text(word.text)}"])


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
