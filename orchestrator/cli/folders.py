"""The texts in a folder, for readers that take texts and open nothing themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from orchestrator.errors import BadInput, Missing, TooLarge
from orchestrator.policy.formats.results import DEFAULT_OPTIONS

MOST_FILES = 10_000


def texts_under(folder: str | None, suffixes: Collection[str], option: str) -> Mapping[str, str]:
    """Return the texts of a folder's files with these suffixes, by path.

    The path is within the folder, with / between its parts. Without a folder there are none.

    Raises Missing for a file that cannot be read, BadInput for one that is no text, TooLarge; they name the option.
    """
    if folder is None:
        return {}
    root = Path(folder)
    if not root.is_dir():
        raise Missing(f"{folder} is not a folder", place=option)
    found: dict[str, str] = {}
    left = DEFAULT_OPTIONS.max_bytes
    for path in sorted(root.rglob("*")):
        if path.suffix not in suffixes or not path.is_file():
            continue
        text = _text_of(path, option)
        left -= len(text)
        found[path.relative_to(root).as_posix()] = text
        if left < 0 or len(found) > MOST_FILES:
            raise TooLarge(
                f"{folder} holds more than {DEFAULT_OPTIONS.max_bytes} bytes, or {MOST_FILES} files", place=option
            )
    return found


def _text_of(path: Path, option: str) -> str:
    try:
        if path.stat().st_size > DEFAULT_OPTIONS.max_bytes:
            raise TooLarge(f"{path} is larger than {DEFAULT_OPTIONS.max_bytes} bytes", place=option)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Missing(f"{path} cannot be read: {error.strerror}", place=option) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text", place=option) from None
