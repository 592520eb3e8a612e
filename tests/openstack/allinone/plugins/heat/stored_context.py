"""Signals to scaling policies, with Debian 12's oslo.messaging 14.0.3-0+deb12u1 and heat 19.0.0-3.

Before every notification that oslo.messaging makes Heat's StoredContext anew, without its trust, and that raises
AuthorizationFailure: no signal would ever scale. Where there is nothing to authenticate with, a plain context does.
"""

from heat.common import context

_KEYS = ("trust_id", "password", "auth_token")
_whole = context.StoredContext.from_dict.__func__


def _from_dict(cls, values):
    return _whole(cls if any(values.get(key) for key in _KEYS) else context.RequestContext, values)


context.StoredContext.from_dict = classmethod(_from_dict)
