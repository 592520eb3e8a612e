"""What every module of this collection takes."""

from __future__ import annotations


class ModuleDocFragment:
    """The service that is asked."""

    DOCUMENTATION = r"""
attributes:
  check_mode: {support: full, description: Says what would be changed and changes nothing.}
  diff_mode: {support: full, description: Shows what is there before and after.}
options:
  url:
    description: Where the service answers, as in V(https://192.0.2.1:8420).
    type: str
    required: true
  token:
    description: A token of the service; what it may do decides what the module can.
    type: str
    required: true
  authority:
    description: The certificate (PEM) that the service's must be signed by; by default one that the machine believes.
    type: path
  plain_http:
    description:
      - Whether O(url) may begin with C(http://) and lead off the machine that runs the module. The token can then be
        read on the way.
    type: bool
    default: false
  timeout:
    description: How long a request may take, in seconds.
    type: int
    default: 30
"""
