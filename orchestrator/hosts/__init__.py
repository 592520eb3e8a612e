"""Machines that run Open vSwitch: what their switch must be, configuring it in one step, releasing it closed.

`aclflow host configure` does on a machine what these modules say, whoever calls it: the Ansible role `ovs_host`, or the
service for the switch of its own machine.
"""
