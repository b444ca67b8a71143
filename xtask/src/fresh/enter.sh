# Runs a command inside a root folder. It is the first process of namespaces of its own: what is mounted here is seen by nobody
# else, and ends with it, as does every process.
set -eu
root=$1 toolchain=$2 target=$3 user=$4 clone=$5
shift 5
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$toolchain" "$root/opt/rust"
mount -o remount,bind,ro "$root/opt/rust"
if [ -n "$target" ]; then
    mount --bind "$target" "$root$clone/target"
    # What the test command gets for itself is got anew every time.
    mount --bind "$root/opt/tools" "$root$clone/target/tools"
fi
# In the background, so that this shell goes on reaping processes whose parents are gone.
chroot --userspec="$user:$user" "$root" "$@" </dev/null &
wait $!
