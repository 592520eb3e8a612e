"""Where VNFs run, behind one small interface: `base.py` says what a cloud must do.

fake.py   one in memory, with the real ones' semantics
heat/     OpenStack, through Heat; the lab's namespaces are in `orchestrator/lab`, where their switches are
"""
