"""`aclflow acl`: access lists in files, without any service, and at a service."""
