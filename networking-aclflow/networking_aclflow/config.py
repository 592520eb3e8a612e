"""Settings of the driver: the section `aclflow` of neutron-server's configuration."""

from __future__ import annotations

from oslo_config import cfg

OPTIONS = (
    cfg.StrOpt("url", required=True, help="where aclflow's service is, such as https://192.0.2.1:8443"),
    cfg.StrOpt("token_file", required=True, help="a file with a token of an administrator"),
    cfg.StrOpt("authority", help="the certificate (PEM) that signs the service's; default: what the machine believes"),
    cfg.BoolOpt("plain_http", default=False, help="speak HTTP without TLS to another machine; tokens can then be read"),
    cfg.StrOpt("domain", required=True, help="the security domain whose hosts the compute hosts are"),
    cfg.ListOpt("physical_networks", default=["aclflow"], help="the physical networks that are this driver's"),
    cfg.StrOpt("address_scope", help="the address scope of these networks' subnets; default: any, and all are one"),
    cfg.StrOpt("bridge", default="br-aclflow", help="the bridge on compute hosts"),
    cfg.StrOpt("datapath_type", default="system", help="of that bridge: system or netdev"),
    cfg.FloatOpt("request_timeout", default=10.0, min=0.1, help="seconds to wait for an answer of the service"),
    cfg.FloatOpt("poll_interval", default=0.3, min=0.05, help="seconds between looks at the journal"),
    cfg.FloatOpt("compare_interval", default=60.0, min=1, help="seconds between comparisons of all bindings"),
)


def settings(conf: cfg.ConfigOpts = cfg.CONF) -> cfg.GroupAttr:
    """Return the section, after making it known."""
    conf.register_opts(OPTIONS, group="aclflow")
    return conf.aclflow
