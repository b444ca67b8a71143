# Runs a command inside a root folder. It is the first process of its own namespaces: no other process sees these mounts, and
# mounts and processes end with it.
set -eu
root=$1 toolchain=$2 target=$3 user=$4 clone=$5
shift 5
# As on a real machine, the root folder is a mount point: programs look up their file system in the list of mounts.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$toolchain" "$root/opt/rust"
mount -o remount,bind,ro "$root/opt/rust"
if [ -n "$target" ]; then
    mount --bind "$target" "$root$clone/target"
    # The test command downloads its tools every time.
    mount --bind "$root/opt/tools" "$root$clone/target/tools"
fi
# A root folder that was only changed with chroot would forbid user namespaces, which an ordinary user has on a real machine.
mkdir -p "$root/.machine"
cd "$root"
pivot_root . .machine
umount --lazy /.machine
rmdir /.machine
# In the background, so that this shell can reap processes whose parents have exited.
setpriv --reuid="$user" --regid="$user" --init-groups -- "$@" </dev/null &
wait $!
