"""Machines that run Open vSwitch: inspect, configure in one step, release closed.

`aclflow host configure` does on a machine what these modules say, whoever calls it: the Ansible role `ovs_host`, or the
service for the switch of its own machine.
"""
