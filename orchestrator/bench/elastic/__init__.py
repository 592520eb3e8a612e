"""The suite `elastic`: a domain's fleet of firewall VNFs grows and shrinks while its load rises and falls, and what
that costs the traffic."""
