//! Commands that look for the paths of what is hidden from them.

use super::{Way, said, servers};
use serde_json::json;

/// The first process of a command's namespace comes before the sandbox, and its arguments stay readable.
#[tokio::test]
async fn the_arguments_before_a_command_do_not_name_hidden_paths() {
    for (way, server, directory) in servers(Way::separating()) {
        let script = "tr '\\0' ' ' </proc/1/cmdline; echo; for fd in /proc/1/fd/[3-9] /proc/1/fd/[1-9][0-9]; do \
                      [ -p $fd ] && timeout 1 cat <$fd; done; echo over";
        let lines = said(&server.client(), json!({"script": script})).await;
        assert!(lines[0].contains(" __init "), "{way:?}: {lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("over"), "{way:?}: {lines:?}");
        let hidden = directory.path().canonicalize().unwrap();
        let hidden = hidden.join("data");
        assert!(!lines.iter().any(|line| line.contains(hidden.to_str().unwrap())), "{way:?}: {lines:?}");
    }
}
