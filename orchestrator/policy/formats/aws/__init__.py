"""AWS security groups and network ACLs as `aws ec2 describe-security-groups` and `describe-network-acls` give them.

services: what both say of protocols, ports and ICMP types; groups and acls: the two readers; write: both writers.
"""
