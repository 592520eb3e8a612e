"""The tables of the driver in Neutron's database, by `neutron-db-manage --subproject networking-aclflow`."""
