# What the elements of diskimage-builder below us are to do.
export DIB_RELEASE=bookworm
export DIB_DEBIAN_SECURITY_MIRROR=${DIB_DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}
export DIB_APT_MINIMAL_CREATE_INTERFACES=0
export PYTHONHASHSEED=0
