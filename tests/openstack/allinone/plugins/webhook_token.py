"""Webhooks (`alarm_url`), with Debian 12's keystone 22.0.2-0+deb12u6 and heat 19.0.0-3.

That Keystone wants a service's token with whoever checks a signature; that Heat sends none, and every webhook would be
answered 403. Newer ones do this themselves, with the same options in the section `ec2authtoken`.
"""

from heat.api.aws import ec2token
from keystoneauth1 import loading, session
from oslo_config import cfg

_SECTION = "ec2authtoken"
loading.register_auth_conf_options(cfg.CONF, _SECTION)


class _Requests:
    """What the filter uses of `requests`."""

    session = None

    def post(self, url, data, headers, **_):
        """Ask Keystone, as ourselves."""
        if self.session is None:
            self.session = session.Session(auth=loading.load_auth_from_conf_options(cfg.CONF, _SECTION))
        return self.session.post(url, data=data, headers=headers, authenticated=True, raise_exc=False)


ec2token.requests = _Requests()
factory = ec2token.EC2Token_filter_factory
