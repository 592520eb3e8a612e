"""Builds the images of images.yaml.

wheel ──wheels.py──▶ wheels ┐
elements/ ──────────────────┴─root.py (diskimage-builder)──▶ root.tar ──tree.py──▶ a folder, every time the same
                                                                           │
          NAME.qcow2  ◀──disk.py (mke2fs, GRUB)────────────────────────────┤
          NAME.{contents,cdx}.json, NAME.files.gz, SHA256SUMS ◀──contents.py┘
"""
