"""Completion, by the shells themselves."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from redcal_spark.cli import main
from redcal_spark.cli.completion import SHELLS

COMMANDS = {"run", "runs", "report", "resume"}
CASES = [
    ("redcal r", COMMANDS),
    ("redcal -C somewhere re", {"report", "resume"}),
    ("redcal run --fo", {"--force"}),
    ("redcal apply --mo", {"--model"}),
    ("redcal run --engine s", {"spark"}),
    ("redcal check --set reconcile.al", {"reconcile.algorithm=", "reconcile.alpha="}),
    ("redcal log --run ", {"latest"}),
    ("redcal run -c conf/m", {"conf/my.yaml"}),
    ("redcal completion f", {"fish"}),
    ("redcal run --fail-on cap", {"capped"}),
    ("redcal monitor --fail-on d", {"drift"}),
    ("redcal prune --keep ", set()),
]


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    path = folder / f"redcal.{shell}"
    path.write_text(capsys.readouterr().out, "utf-8")
    (folder / "conf").mkdir()
    (folder / "conf" / "my.yaml").touch()
    return path


def said(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    return done.stdout


# Readline adds file names where there is no other word: `-o default` asks it to.
BASH = """
source redcal.bash
compopt() { [ "$1" = +o ] && files=; :; }
files=yes; COMP_WORDS=(LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_redcal
[ ${#COMPREPLY[@]} = 0 ] && [ "$files" ] && COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(("line", "words"), CASES)
def test_bash(
    line: str, words: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("bash", tmp_path, capsys)
    text = line.replace(" ", "' '")
    program = BASH.replace("LINE", f"'{text}'")
    assert {*said(tmp_path, "bash", "-c", program).split()} == words
    assert "complete -o default -F _redcal redcal" in (tmp_path / "redcal.bash").read_text()


@pytest.mark.parametrize(("line", "words"), CASES)
def test_fish(
    line: str, words: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("fish", tmp_path, capsys)
    lines = said(tmp_path, "fish", "--no-config", "-c", f"source redcal.fish; complete -C '{line}'")
    assert {found.split("\t")[0] for found in lines.splitlines()} == words


def test_zsh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Typed at a prompt, a tab after each; what zsh makes of it is printed."""
    script("zsh", tmp_path, capsys)
    one = [(line, *words) for line, words in CASES if len(words) == 1]
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "dumb", "HOME": str(tmp_path), "PS1": "> "}
    with subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=env
    ) as process:
        os.close(theirs)
        setup = 'autoload -U compinit; compinit -u -D; redcal() { print -r -- "$@" >> told }\n'
        os.write(ours, f"{setup}source redcal.zsh; touch ready\n".encode())
        _wait(tmp_path / "ready", ours)
        for line, _ in one:
            os.write(ours, f"{line}\t\n".encode())
        os.write(ours, b"touch done\n")
        _wait(tmp_path / "done", ours)
        os.write(ours, b"exit\n")
        process.wait(30)
    os.close(ours)
    expected = [" ".join([*line.split(" ")[1:-1], word]) for line, word in one]
    assert (tmp_path / "told").read_text("utf-8").splitlines() == expected


def _wait(path: Path, terminal: int) -> None:
    os.set_blocking(terminal, False)
    until = time.monotonic() + 60
    while not path.exists():
        try:
            os.read(terminal, 65_536)  # else the shell would wait for its reader
        except BlockingIOError:
            time.sleep(0.02)
        assert time.monotonic() < until, f"no {path.name}"
    os.set_blocking(terminal, True)


def test_shells_that_are_unknown_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["completion", "csh"])
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "'csh'" in told and all(repr(shell) in told for shell in SHELLS)


def test_every_option_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        text = capsys.readouterr().out
        for option in ("fail-on", "older-than", "reconcile-alpha", "switch-model"):
            assert option in text, (shell, option)
