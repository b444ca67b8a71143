//! Settings from flags, variables and `punctual.toml`, and the errors about invalid ones.

use crate::server::{BINARY, Server};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

/// The binary in a directory, without the variables of the tests' own process.
fn punctual(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PUNCTUAL_") {
            command.env_remove(name);
        }
    }
    command
}

fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(&punctual(dir, arguments).output().expect("the binary starts"))
}

async fn slots(server: &Server) -> u32 {
    crate::server::eventually("the worker is there", async || {
        !server.client().stats().await.unwrap().workers.is_empty()
    })
    .await;
    server.client().stats().await.unwrap().workers[0].slots
}

#[tokio::test]
async fn a_server_goes_by_flags_then_variables_then_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml");
    std::fs::write(&file, "slots = 3\n\n[log]\nformat = \"json\"\n").unwrap();
    let file = file.to_str().unwrap();
    let data = directory.path().join("data");
    let by_file = Server::start_in(&data, &["--config", file]);
    assert_eq!(slots(&by_file).await, 3);
    assert!(by_file.stop().success());
    let variables = [format!("PUNCTUAL_CONFIG={file}"), "PUNCTUAL_SLOTS=5".to_owned()];
    let by_variable = Server::start_through(&["env", &variables[0], &variables[1], BINARY], &data);
    assert_eq!(slots(&by_variable).await, 5);
    assert!(by_variable.stop().success());
    let by_flag = Server::start_in(&data, &["--config", file, "--slots", "7"]);
    assert_eq!(slots(&by_flag).await, 7);
}

#[test]
fn commands_find_the_server_and_the_token_by_the_file() {
    let server = Server::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let token_file = elsewhere.path().join("token");
    std::fs::write(&token_file, format!("{}\n", server.token)).unwrap();
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!("[client]\nserver = \"{}\"\ntoken_file = \"token\"\n", server.address);
    std::fs::write(elsewhere.path().join("punctual.toml"), text).unwrap();
    let (code, _, said) = run(elsewhere.path(), &["job", "list"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    // The flag takes precedence over the file.
    assert_eq!(run(elsewhere.path(), &["job", "list", "--server", "127.0.0.1:1"]).0, Some(3));
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, said) = run(elsewhere.path(), &["job", "list"]);
    assert_eq!(code, Some(0));
    assert!(
        said.starts_with("warning: other users can read the secret in token (mode 0644): chmod 600"),
        "{said}"
    );
    std::fs::write(&token_file, "\n").unwrap();
    let (code, _, said) = run(elsewhere.path(), &["job", "list"]);
    assert!(
        code == Some(5) && said.contains("the token file token must contain a single line with a token"),
        "{said}"
    );
}

/// It could send the token to another server.
#[test]
fn a_file_of_another_user_is_used_only_if_it_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("punctual.toml");
    std::fs::write(&file, "[client]\nserver = \"127.0.0.1:1\"\n").unwrap();
    let refused = |why: &str| {
        for command in [&["job", "list"][..], &["serve"], &["config", "check"], &["config", "show"]] {
            let (code, _, said) = run(directory.path(), command);
            assert_eq!(code, Some(2), "{command:?}: {said}");
            assert!(said.starts_with(&format!("error: punctual.toml: not used, because {why}")), "{said}");
            assert!(said.contains("--config punctual.toml"), "{said}");
        }
        let (code, _, said) = run(directory.path(), &["config", "show", "--config", "punctual.toml"]);
        assert_eq!((code, said.as_str()), (Some(0), ""));
    };
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o646)).unwrap();
    refused("users other than its owner");
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(run(directory.path(), &["config", "check"]).0, Some(0));
        chown(&file, Some(65534), None).unwrap();
        refused("it belongs to user 65534 (mode 0644), and this command runs as user 0");
    }
}

#[test]
fn a_server_warns_of_secrets_that_others_can_read() {
    let directory = tempfile::tempdir().unwrap();
    let [data, log, key] = ["data", "log", "signing.key"].map(|name| directory.path().join(name));
    assert!(Server::start_in(&data, &[]).stop().success());
    std::fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    for file in [&key, &data.join("admin.token")] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    let script = format!(
        "export PUNCTUAL_HTTP_SIGNING_KEY_FILE='{}'; exec \"$0\" \"$@\" 2>'{}'",
        key.display(),
        log.display()
    );
    assert!(Server::start_through(&["sh", "-c", &script, BINARY], &data).stop().success());
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("signing.key (mode 0640): chmod 600"), "{said}");
    assert!(said.contains("admin.token (mode 0640): chmod 600"), "{said}");
    assert!(!said.contains("0123456789abcdef"), "{said}");
}

#[test]
fn logins_that_return_over_plain_http_are_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let warned = |url: &str| {
        let text = format!(
            "public_url = \"{url}\"\n[oidc]\nissuer = \"https://id.example.org\"\naudience = \"punctual\"\n"
        );
        std::fs::write(directory.path().join("punctual.toml"), text).unwrap();
        let (code, stdout, stderr) = run(directory.path(), &["config", "check"]);
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        format!("{stdout}{stderr}").contains("is not encrypted")
    };
    assert!(warned("http://jobs.example.org") && warned("http://jobs.example.org:7070"));
    for fine in ["https://jobs.example.org", "http://localhost:7070", "http://127.0.0.1:7070", "http://[::1]"]
    {
        assert!(!warned(fine), "{fine}");
    }
}

#[test]
fn mistakes_are_told_with_file_and_line_and_nothing_is_started() {
    let directory = tempfile::tempdir().unwrap();
    let mistakes = "slotz = 4\nprefetch = \"many\"\n[client]\ntoken = \"pt_admin_secret\"\n";
    std::fs::write(directory.path().join("punctual.toml"), mistakes).unwrap();
    let expected = "error: invalid configuration:\n  \
        punctual.toml:1: slotz is not a setting; did you mean slots?\n  \
        punctual.toml:2: prefetch must be a number from 0 to 10000, but is \"many\"\n  \
        punctual.toml:4: secrets are not allowed here: write it to a separate file, and set client.token_file \
        to its path\n";
    for command in [&["serve"][..], &["job", "list"], &["config", "check"], &["config", "show"], &["check"]] {
        let (code, stdout, stderr) = run(directory.path(), command);
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(2), "", expected), "{command:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// A check before the start would fail with a code that systemd ignores, and be repeated forever.
#[test]
fn the_unit_does_not_start_again_what_its_configuration_ends() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/punctual.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let values = |key: &str| -> Vec<&str> {
        unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
    };
    assert_eq!(values("ExecStartPre"), [""; 0]);
    assert_eq!(values("WorkingDirectory"), ["/var/lib/punctual-jobs"]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("punctual.toml"), "slotz = 4").unwrap();
    let (code, _, said) = run(directory.path(), &["serve"]);
    assert_eq!(values("RestartPreventExitStatus"), [code.unwrap().to_string()], "{said}");
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let directory = tempfile::tempdir().unwrap();
    let (code, _, said) = run(directory.path(), &["serve", "--config", "gone.toml"]);
    assert!(code == Some(2) && said.contains("gone.toml: cannot read the configuration file"), "{said}");
    let (code, _, said) = run(directory.path(), &["config", "check"]);
    assert!(code == Some(5) && said.contains("punctual.toml does not exist in this directory"), "{said}");
}

#[test]
fn what_is_not_a_file_is_refused_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let large = directory.path().join("large");
    std::fs::write(&large, "#".repeat(2 << 20)).unwrap();
    for (file, why) in [
        (Path::new("/dev/zero"), "it is not a file"),
        (&pipe, "it is not a file"),
        (directory.path(), "it is not a file"),
        (&large, "it has more than 1048576 bytes"),
    ] {
        let (code, _, said) = run(directory.path(), &["config", "check", file.to_str().unwrap()]);
        assert_eq!(code, Some(2), "{said}");
        let expected = format!("{}: cannot read the configuration file: {why}\n", file.display());
        assert!(said.ends_with(&expected), "{said}");
    }
    assert_eq!(run(directory.path(), &["config", "check", "/dev/null"]).0, Some(0));
}

#[test]
fn a_password_in_an_address_is_refused_and_never_printed() {
    let directory = tempfile::tempdir().unwrap();
    let address = "http://me:hunter2@127.0.0.1:1";
    let by_flag = punctual(directory.path(), &["job", "list", "--server", address]).output().unwrap();
    let by_variable =
        punctual(directory.path(), &["config", "show"]).env("PUNCTUAL_SERVER", address).output().unwrap();
    std::fs::write(directory.path().join("punctual.toml"), format!("[client]\nserver = \"{address}\""))
        .unwrap();
    let by_file = punctual(directory.path(), &["doctor"]).output().unwrap();
    for (output, expected) in [(by_flag, Some(2)), (by_variable, Some(2)), (by_file, Some(1))] {
        let (code, stdout, stderr) = outcome(&output);
        assert_eq!(code, expected, "{stdout}{stderr}");
        assert!(
            format!("{stdout}{stderr}").contains("without a user, a password or a query"),
            "{stdout}{stderr}"
        );
        assert!(!format!("{stdout}{stderr}").contains("hunter2"), "{stdout}{stderr}");
    }
}

#[test]
fn variables_are_named_when_they_are_wrong_or_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = punctual(directory.path(), &["serve"]).env("PUNCTUAL_DRAIN_GRACE", "30").output().unwrap();
    let (code, _, said) = outcome(&wrong);
    assert_eq!(code, Some(2));
    assert!(said.starts_with("error: PUNCTUAL_DRAIN_GRACE: must be a duration from 0s to 7d"), "{said}");
    assert!(said.ends_with("but is \"30\"\n"), "{said}");
    let unknown = punctual(directory.path(), &["config", "show"]).env("PUNCTUAL_SLOT", "4").output().unwrap();
    let (code, _, said) = outcome(&unknown);
    assert_eq!(code, Some(0));
    assert_eq!(said, "warning: PUNCTUAL_SLOT is not a variable of Punctual; did you mean PUNCTUAL_SLOTS?\n");
}

#[test]
fn a_start_time_without_a_manual_clock_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (code, _, said) = run(directory.path(), &["serve", "--clock-start", "2026-03-29T00:00:00Z"]);
    assert!(code == Some(2) && said.contains("--clock manual"), "{said}");
    std::fs::write(directory.path().join("punctual.toml"), "clock_start = 2026-03-29T00:00:00Z").unwrap();
    assert_eq!(run(directory.path(), &["config", "check"]).0, Some(2));
}

#[test]
fn what_counts_is_shown_with_where_it_comes_from() {
    let directory = tempfile::tempdir().unwrap();
    let text = "slots = 3\nlease = \"PT9S\"\n[client]\ntoken_file = \"/etc/punctual/token\"\n";
    std::fs::write(directory.path().join("punctual.toml"), text).unwrap();
    let mut show = punctual(directory.path(), &["config", "show", "-o", "json", "--slots", "9"]);
    let (code, shown, said) = outcome(&show.env("PUNCTUAL_PREFETCH", "1").output().unwrap());
    assert_eq!(code, Some(0), "{said}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["file"], "punctual.toml");
    let setting = |key: &str| {
        let settings = shown["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("{key}")).clone()
    };
    let told = |key: &str| (setting(key)["value"].clone(), setting(key)["from"].clone());
    assert_eq!(told("slots"), (9.into(), "flag".into()));
    assert_eq!(told("prefetch"), (1.into(), "variable".into()));
    assert_eq!(told("lease"), ("9s".into(), "file".into()));
    assert_eq!(setting("lease")["line"], 2);
    assert_eq!(told("listen"), ("127.0.0.1:7070".into(), "default".into()));
    assert_eq!(told("client.token_file"), ("/etc/punctual/token".into(), "file".into()));
}

#[test]
fn the_template_is_a_configuration_that_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (_, template, _) = run(directory.path(), &["config", "template"]);
    std::fs::write(directory.path().join("punctual.toml"), template).unwrap();
    let (code, said, _) = run(directory.path(), &["config", "check"]);
    assert_eq!((code, said.as_str()), (Some(0), "punctual.toml is valid\n"));
    let (_, shown, _) = run(directory.path(), &["config", "show"]);
    assert!(!shown.contains("punctual.toml:"), "{shown}");
}
