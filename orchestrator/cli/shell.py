"""Fast shell completion: parameters of commands are remembered, so that Tab loads no command.

Loading a command means loading all that it works with, which takes longer than anybody who presses Tab wants to wait.
So the first time that a command's arguments are completed, its parameters are written down in a file of the user's
cache, and from then on a command made from that stands in its place. The file belongs to the command line as it is
installed: where a module of that is newer, it is worth nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from orchestrator.cli import complete

COMPLETING = "_ACLFLOW_COMPLETE"
"""In the environment while a shell asks for completion."""

_LONE_SIGN = re.compile(r"\n@(?:\n|$)")
_COMPLETERS = {each.__name__: each for each in complete.EVERY}


def is_completing() -> bool:
    """Whether a shell asks, and no command will be run."""
    return COMPLETING in os.environ


@contextlib.contextmanager
def words_of_bash() -> Iterator[None]:
    """Complete TENANT@VERSION as one word, and offer bash the part that it replaces.

    Bash ends words at `@` (its COMP_WORDBREAKS): it asks about `shop`, `@` and `1`, a line each, and puts what is
    offered behind the sign.
    """
    split = os.environ.get("COMP_WORDS", "") if os.environ.get(COMPLETING) == "complete_bash" else ""
    words = _LONE_SIGN.sub("@", split)
    if words == split:
        yield
        return
    os.environ["COMP_WORDS"] = words
    os.environ["COMP_CWORD"] = str(int(os.environ.get("COMP_CWORD", "0")) - split.count("\n") + words.count("\n"))
    offered = io.StringIO()
    try:
        with contextlib.redirect_stdout(offered):
            yield
    finally:
        for line in offered.getvalue().splitlines():
            typer.echo(line.rpartition("@")[2])


def standing_for(target: str) -> Callable[..., None] | None:
    """Return a function with a command's parameters that does nothing.

    None where the parameters were not written down yet.
    """
    found = _read().get(target)
    if found is None:
        return None

    def nothing(**_: object) -> None:
        """Do nothing; stands for a command while a shell completes."""

    nothing.__signature__ = inspect.Signature([_make_parameter(each) for each in found])  # type: ignore[attr-defined]
    return nothing


def remember(target: str, function: Callable[..., None]) -> None:
    """Write down the parameters of a command.

    Without a cache the next time takes as long.
    """
    described = [_describe_parameter(each) for each in inspect.signature(function, eval_str=True).parameters.values()]
    path = _find_cache()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"stamp": _stamp(), "commands": {**_read(), target: described}}))
        fresh.replace(path)


def _describe_parameter(parameter: inspect.Parameter) -> dict[str, Any]:
    """Return a parameter as JSON, as Typer is told of it.

    Its first name is in the place of a default.
    """
    kind, *told = get_args(parameter.annotation)
    info = next(each for each in told if isinstance(each, (typer.models.ArgumentInfo, typer.models.OptionInfo)))
    kinds = (kind, *get_args(kind))
    choices = next((each for each in kinds if isinstance(each, type) and issubclass(each, Enum)), ())
    completer = getattr(info.autocompletion, "__name__", "")
    words = [str(each.value) for each in choices]
    if info.autocompletion is complete.formats:  # they are as fixed as the command line is, and slow to find
        words, completer = complete.formats(""), ""
    return {
        "name": parameter.name,
        "names": [*([info.default] if isinstance(info.default, str) else []), *(info.param_decls or ())],
        "is_argument": isinstance(info, typer.models.ArgumentInfo),
        "is_flag": bool in kinds,
        "many": any(get_origin(each) is list for each in kinds),
        "help": info.help or "",
        "choices": words,
        "completer": completer if completer in _COMPLETERS else "",
    }


def _make_parameter(told: dict[str, Any]) -> inspect.Parameter:
    kind: Any = bool if told["is_flag"] else list[str] | None if told["many"] else str | None
    completer = _COMPLETERS.get(told["completer"]) or (complete.one_of(told["choices"]) if told["choices"] else None)
    make: Any = typer.Argument if told["is_argument"] else typer.Option
    info = make(*told["names"], help=told["help"], autocompletion=completer)
    return inspect.Parameter(
        told["name"],
        inspect.Parameter.KEYWORD_ONLY,
        default=False if told["is_flag"] else None,
        annotation=Annotated[kind, info],
    )


def _read() -> dict[str, Any]:
    """Read the cached parameters by target; none of another installation."""
    try:
        found = json.loads(_find_cache().read_text())
        return dict(found["commands"]) if found["stamp"] == _stamp() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _stamp() -> str:
    """The newest module of the command line."""
    newest = max(each.stat().st_mtime_ns for each in Path(__file__).parent.rglob("*.py"))
    return f"{__file__} {newest}"


def _find_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "aclflow" / "completion.json"
