"""Explain why a machine is not reachable over SSH or unusable, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

_ADVICE: Mapping[str, str] = {
    "no such identity": "the key ({key}) is not there: name one that the user here can read",
    "UNPROTECTED PRIVATE KEY FILE": "others may read the key ({key}), so SSH does not use it: chmod 600",
    "Permission denied": "the machine does not take the key: put its public half into "
    "~{user}/.ssh/authorized_keys there, or name another key ({key}), one without a passphrase",
    "Host key verification failed": "the machine's host key is not the known one: compare it, and put the right "
    "one into known_hosts of the user here",
    "Connection refused": "nothing listens for SSH there: check address and port",
    "Connection timed out": "the machine does not answer: check address, routes and packet filters on the way",
    "No route to host": "there is no way to the machine: check its address and the routes",
    "Network is unreachable": "there is no way to the machine: check its address and the routes",
    "Could not resolve hostname": "the name is not known: give an address, or put it into the DNS",
    "Connection reset": "the machine hung up: the journal of its SSH server says why",
    "Connection closed": "the machine hung up: the journal of its SSH server says why",
    "not responding": "the machine does not answer any more: ask again when it is back",
    "Missing sudo password": "{user} needs a password to become root there: give it the right without one (NOPASSWD in "
    "/etc/sudoers.d), or log in as root",
    "sudo: not found": "{user} cannot become root there: install sudo, or log in as root",
    "module interpreter": "the machine has no Python: apt-get install python3 there",
    "No space left on device": "the machine's disk is full: make room, and ask again",
}
"""What to do, by what was said; of several signs the first holds."""


def advice(said: str, *, user: str, key: str) -> str:
    """Return what to do about an error; empty where nothing is known.

    `key` is the setting that names the key.
    """
    words = next((words for sign, words in _ADVICE.items() if sign in said), "")
    return words.format(user=user, key=key)
