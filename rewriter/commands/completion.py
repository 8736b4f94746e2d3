"""`rewriter completion`: a script with which a shell completes commands, options and files."""

from __future__ import annotations

from rewriter.commands import _options
from rewriter.commands._click import Choice, argument, command
from rewriter.core.errors import OK
from rewriter.core.terminal import say_text

_SHELLS = ("bash", "zsh", "fish")


class Arguments(_options.Arguments):
    shell: str = argument("SHELL", " or ".join(_SHELLS), type=Choice(_SHELLS))


@command(
    Arguments,
    (
        "bash: until the shell ends; to stay, put the line into ~/.bashrc",
        'eval "$(rewriter completion bash)"',
    ),
    ("zsh: into a directory of $fpath", "rewriter completion zsh > ~/.zfunc/_rewriter"),
    ("fish", "rewriter completion fish > ~/.config/fish/completions/rewriter.fish"),
)
def act(arguments: Arguments) -> int:
    from click.shell_completion import get_completion_class

    from rewriter.commands._top import COMPLETE, GROUP

    script = get_completion_class(arguments.shell)
    assert script is not None
    say_text(script(GROUP, {}, "rewriter", COMPLETE).source())
    return OK
