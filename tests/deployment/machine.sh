#!/bin/bash
# machine.sh NAME DIRECTORY BASE: a Debian with systemd as its process 1, in namespaces of its own over an overlay of BASE.
# Called in its network namespace, and in a control group of its own. What it writes is in DIRECTORY/upper.
set -e
if [ "$4" != inside ]; then
    exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child --propagation private "$0" "$1" "$2" "$3" inside
fi
name=$1 directory=$2 base=$3
mount -t overlay overlay -o "lowerdir=$base,upperdir=$directory/upper,workdir=$directory/work" "$directory/root"
cd "$directory/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/net
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty net/tun; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
hostname "$name"
mkdir -p .outside
pivot_root . .outside
exec env -i container=aclflow PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/bash -c 'umount -l /.outside; exec /sbin/init'
