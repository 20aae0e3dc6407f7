"""Print a completion script for a shell: `source <(haru completion bash)`."""

from __future__ import annotations

import argparse

_BASH = """\
_haru() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" words
  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else
    case "$command" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _haru haru
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"
_FISH = "complete -c haru -n __fish_use_subcommand -f -a '{command}' -d '{help}'\n"
_FISH_FLAG = "complete -c haru -n '__fish_seen_subcommand_from {command}' -l '{flag}'\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell")


def run(options: argparse.Namespace) -> int:
    """Prints the script, made from the parser itself so that it cannot go stale."""
    from haru.cli.main import COMMANDS, build_parser, flags_of

    flags = flags_of(build_parser())
    if options.shell == "fish":
        for command, text in COMMANDS.items():
            print(_FISH.format(command=command, help=text.replace("'", "")), end="")
            for flag in flags[command]:
                print(_FISH_FLAG.format(command=command, flag=flag.removeprefix("--")), end="")
        return 0
    cases = "\n".join(f'      {command}) words="{" ".join(names)}" ;;' for command, names in flags.items())
    script = _BASH.format(commands=" ".join(COMMANDS), cases=cases)
    print((_ZSH if options.shell == "zsh" else "") + script, end="")
    return 0
