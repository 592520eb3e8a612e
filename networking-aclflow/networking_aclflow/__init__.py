"""Neutron's ports on one physical network as endpoints of aclflow: a mechanism driver of ML2 and its journal."""
