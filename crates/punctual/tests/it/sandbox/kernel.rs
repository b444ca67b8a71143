//! Commands that attack the kernel, and other commands through it.

use super::{Way, said, servers};
use serde_json::json;

/// `access` says whether they could be written, so that nothing happens to this machine if they could.
#[tokio::test]
async fn a_command_cannot_change_cgroups_or_the_kernel() {
    let attack = r#"
        find /sys/fs/cgroup \( -fstype cgroup -o -fstype cgroup2 \) ! -type l -writable -print -quit
        find /sys -xdev ! -type l -writable -print -quit 2>/dev/null
        find /proc/sys -writable -print -quit 2>/dev/null
        for file in /proc/sysrq-trigger /proc/irq /proc/bus /proc/fs; do [ -w $file ] && echo BREACH $file; done
        try() { what=$1; shift; "$@" >/dev/null 2>&1 && echo "BREACH $what"; }
        for group in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do
            try "leave for $group" sh -c 'echo 0 >"$1"' sh "$group"
        done
        try remount mount -o remount,bind,rw /proc/sys
        try uncover umount /proc/sys
        try 'remount in a user namespace' unshare -Urm mount -o remount,bind,rw /proc/sys
        try 'uncover in a user namespace' unshare -Urm umount /proc/sys
        # Reading goes on.
        cat /proc/sys/kernel/ostype
        echo over"#;
    for (way, server, _directory) in servers(Way::separating()) {
        let payload = json!({"script": attack, "limits": {"memory": "256M", "processes": 50}});
        assert_eq!(said(&server.client(), payload).await, ["Linux", "over"], "{way:?}");
    }
}
