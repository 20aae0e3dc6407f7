"""Print a completion script for a shell: `source <(haru completion bash)`.

The script asks this command for each word: `haru completion SHELL --words LINE` prints what may stand at the end of the
line: commands, flags, their values, kinds, profiles, contexts, and the names of namespaces, nodes and objects in the
cluster. It is silent where it cannot tell, and ends after a second (HARU_COMPLETION_SECONDS) whatever the cluster does.
"""

from __future__ import annotations

import argparse

_BASH = """\
_haru() {
  local IFS=$'\\n'
  COMPREPLY=($(haru completion bash --words "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
  case "${COMPREPLY[0]}" in
    */|*:|*=) [ "${#COMPREPLY[@]}" -gt 1 ] || compopt -o nospace 2>/dev/null ;;
  esac
}
complete -o default -F _haru haru
"""
_ZSH = """\
#compdef haru
_haru() {
  local -a found open
  found=("${(@f)$(haru completion zsh --words "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
  found=(${found:#})
  [[ ${#found} -gt 0 ]] || { _files; return; }
  open=(${(M)found:#*[/:=]})
  found=(${found:#*[/:=]})
  [[ ${#open} -eq 0 ]] || compadd -S '' -a open
  [[ ${#found} -eq 0 ]] || compadd -a found
}
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit -u }
compdef _haru haru
"""
_FISH = """\
function __haru_complete
  set -l last (commandline -ct)
  set -l found (haru completion fish --words (string join ' ' -- (commandline -opc) "$last") 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\\n' $found
  else
    __fish_complete_path "$last"
  end
end
complete -c haru -e
complete -c haru -f -a '(__haru_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell")
    parser.add_argument("--words", metavar="LINE", help="print what may stand at the end of this command line instead")


def run(options: argparse.Namespace) -> int:
    """Prints the script, or the words."""
    if options.words is None:
        print(_SCRIPTS[options.shell], end="")
        return 0
    from haru.cli.completion_words import print_words

    print_words(options.words, options.shell)
    return 0
