"""What SSH says when a machine is not reached, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

_ADVICE: Mapping[str, str] = {
    "Permission denied": "the machine does not take the key: put its public half into "
    "~{user}/.ssh/authorized_keys there, or name another key ({key})",
    "Host key verification failed": "the machine's host key is not the known one: compare it, and put the right "
    "one into known_hosts of the user here",
    "Connection refused": "nothing listens for SSH there: check address and port",
    "Connection timed out": "the machine does not answer: check address, routes and packet filters on the way",
    "No route to host": "there is no way to the machine: check its address and the routes",
    "Could not resolve hostname": "the name is not known: give an address, or put it into the DNS",
    "No space left on device": "the machine's disk is full: make room, and ask again",
}


def advice(said: str, *, user: str, key: str) -> str:
    """What to do about what SSH said; empty where nothing is known. `key` is the setting that names the key."""
    words = next((words for sign, words in _ADVICE.items() if sign in said), "")
    return words.format(user=user, key=key)
