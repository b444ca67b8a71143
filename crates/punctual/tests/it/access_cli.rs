//! Tokens, users, contexts and logins on the command line, end to end.

use crate::server::{BINARY, Server, eventually};
use crate::terminal::Terminal;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A user of the command line: a home, and a working directory without a server.
struct Person {
    home: TempDir,
}

impl Person {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(home.path().join("work")).expect("a directory");
        Person { home }
    }

    fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("config/punctual/contexts.toml")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .current_dir(self.work())
            .env("HOME", self.home.path())
            .env("XDG_CONFIG_HOME", self.home.path().join("config"));
        command
    }

    fn cli(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary starts")
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = self.cli(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", told(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same with text on standard input.
    fn piped(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // A command that refuses its arguments does not read it.
        let _ = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
        child.wait_with_output().expect("an output")
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", told(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn create(server: &Server, name: &str, options: &[&str]) -> Value {
    json_of(&server.cli(&[&["token", "create", name, "-o", "json"], options].concat()))
}

fn secret(token: &Value) -> &str {
    token["secret"].as_str().expect("a secret")
}

/// Runs a command with this token.
fn with_token(server: &Server, token: &str, arguments: &[&str]) -> Output {
    let person = Person::new();
    let mut command = person.command(arguments);
    command.args(["--server", &server.address]).env("PUNCTUAL_TOKEN", token);
    command.output().expect("the binary starts")
}

fn refused(output: &Output, text: &str) {
    assert_eq!(output.status.code(), Some(4), "{}", told(output));
    assert!(told(output).contains(text), "{}", told(output));
}

#[test]
fn each_role_may_do_its_part_and_no_more() {
    let server = Server::start();
    let tokens = ["viewer", "submitter", "operator", "admin", "worker"].map(|role| {
        let token = create(&server, role, &["--role", role]);
        assert_eq!((&token["name"], &token["role"]), (&json!(role), &json!(role)));
        secret(&token).to_owned()
    });
    let [viewer, submitter, operator, admin, worker] = &tokens;
    let submit = ["job", "submit", "x", "--type", "noop"];
    for (token, may, may_not, text) in [
        (viewer, &["job", "list"][..], &submit[..], "jobs:write"),
        (submitter, &submit, &["queue", "pause", "q"], "queues:write"),
        (operator, &["queue", "pause", "q"], &["token", "list"], "access:read"),
        (admin, &["token", "list"], &["token", "show", "unknown"], ""),
        (worker, &["whoami"], &["job", "list"], "roles with it: viewer, submitter, operator, admin"),
    ] {
        let done = with_token(&server, token, may);
        assert!(done.status.success(), "{may:?}: {}", told(&done));
        let output = with_token(&server, token, may_not);
        match text {
            "" => assert_eq!(output.status.code(), Some(5), "{}", told(&output)),
            text => refused(&output, text),
        }
    }
}

#[test]
fn a_created_token_is_told_to_programs_by_field_and_to_people_once() {
    let server = Server::start();
    let options =
        ["--role", "submitter", "--owner", "team", "--queue", "mail-*", "--queue", "web", "--expires", "30d"];
    let token = create(&server, "deploy", &options);
    for field in ["token_id", "secret", "name", "role", "owner_id", "queues", "expires_at"] {
        assert!(!token[field].is_null(), "{field}: {token}");
    }
    assert_eq!((&token["owner_id"], &token["queues"]), (&json!("team"), &json!(["mail-*", "web"])));
    let person =
        server.cli(&["token", "create", "backup", "--role", "viewer", "--permission", "payload:read"]);
    let said = String::from_utf8_lossy(&person.stdout).into_owned();
    assert!(said.contains("pt_") && said.contains("payload:read"), "{said}");
    assert!(told(&person).contains("not shown again"), "{}", told(&person));
    let id = token["token_id"].as_str().unwrap();
    assert!(server.said(&["token", "show", "deploy"]).contains(id));
    let unknown = server.cli(&["token", "show", "nobody"]);
    assert!(told(&unknown).contains("punctual token list"), "{}", told(&unknown));
    create(&server, "twice", &["--role", "viewer"]);
    create(&server, "twice", &["--role", "viewer"]);
    refused(&server.cli(&["token", "revoke", "twice"]), "2 tokens have the name twice");
    assert_eq!(server.said(&["token", "revoke", "backup"]).matches("revoked token").count(), 1);
    for command in [&["token", "list"][..], &["token", "list", "-o", "json"], &["token", "show", id]] {
        let said = server.said(command);
        assert!(said.contains("deploy") && !said.contains("pt_"), "{said}");
    }
}

#[test]
fn errors_name_flags() {
    let server = Server::start();
    let bad = server.cli(&["token", "create", "x", "--role", "root"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(told(&bad).contains("must be viewer, submitter, operator, admin or worker"), "{}", told(&bad));
    let missing = server.cli(&["token", "create", "x"]);
    assert_eq!(missing.status.code(), Some(2));
    let both = server.cli(&["token", "create", "x", "--role", "viewer", "--user", "ann@example.org"]);
    assert_eq!(both.status.code(), Some(2));
    refused(&server.cli(&["token", "create", "x", "--role", "viewer", "--queue", ""]), "--queue");
    refused(&server.cli(&["token", "create", "x", "--role", "viewer", "--owner", " a"]), "--owner");
    refused(&server.cli(&["token", "rotate", "admin", "--overlap", "8d"]), "--overlap");
    refused(&server.cli(&["user", "add", "x@y", "--role", "viewer", "--job-type", ""]), "--job-type");
}

#[test]
fn a_caller_is_told_its_whole_scope() {
    let server = Server::start();
    let scope = |options: &[&str]| {
        let token = create(&server, "x", options);
        let output = with_token(&server, secret(&token), &["whoami"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("scope")).unwrap_or_else(|| panic!("{text}"));
        line.trim_start_matches("scope").trim().to_owned()
    };
    let limited = ["--role", "operator", "--queue", "mail-*", "--job-type", "send"];
    assert_eq!(scope(&limited), "the jobs of all owners in the queues mail-* of the types send");
    assert_eq!(scope(&["--role", "operator"]), "the jobs of all owners");
    assert_eq!(scope(&["--role", "viewer", "--owner", "mail"]), "the jobs of mail");
}

#[tokio::test]
async fn tokens_expire_rotate_and_are_revoked() {
    let server = Server::start();
    let who = |token: &str| with_token(&server, token, &["whoami", "-o", "json"]);
    let short = create(&server, "short", &["--role", "viewer", "--expires", "1s"]);
    eventually("it has expired", async || !who(secret(&short)).status.success()).await;
    refused(&who(secret(&short)), "expired");
    refused(&who(secret(&short)), "the token came from PUNCTUAL_TOKEN");

    let token = create(&server, "service", &["--role", "viewer"]);
    let id = token["token_id"].as_str().unwrap();
    assert_eq!(json_of(&who(secret(&token)))["token_id"], id);
    let rotate =
        |options: &[&str]| json_of(&server.cli(&[&["token", "rotate", id, "-o", "json"], options].concat()));
    let second = rotate(&[]);
    assert!(second["old_secret_until"].is_string() && second["token_id"] == id, "{second}");
    assert!(who(secret(&token)).status.success() && who(secret(&second)).status.success());
    // A second overlap would end the first secret before its time.
    refused(&server.cli(&["token", "rotate", id]), "must be 0s");
    assert!(who(secret(&token)).status.success() && who(secret(&second)).status.success());
    let third = rotate(&["--overlap", "0s"]);
    for old in [&token, &second] {
        refused(&who(secret(old)), "the token is unknown");
    }
    assert!(who(secret(&third)).status.success());
    server.said(&["token", "revoke", id]);
    refused(&who(secret(&third)), "the token is unknown");
    assert_eq!(server.cli(&["token", "revoke", id]).status.code(), Some(5));
    refused(&server.cli(&["token", "revoke", "admin"]), "serve --new-admin-token");
}

#[test]
fn users_are_added_changed_and_removed() {
    let server = Server::start();
    let add = ["user", "add", "Ann@example.org", "--role", "operator", "--name", "Ann", "--channel", "slack"];
    let user = json_of(&server.cli(&[&add[..], &["-o", "json"]].concat()));
    assert_eq!((&user["email"], &user["notification_channel"]), (&json!("ann@example.org"), &json!("slack")));
    refused(&server.cli(&add), "another user has the email address");
    let channel = server.cli(&["user", "update", "ann@example.org", "--channel", "nonsense"]);
    assert!(told(&channel).contains("there is no channel nonsense"), "{}", told(&channel));
    assert!(server.said(&["channel", "list"]).contains("no channels"));
    let token = create(&server, "laptop", &["--user", "ann@example.org"]);
    assert_eq!((&token["user_id"], &token["role"]), (&user["user_id"], &json!("operator")));
    let list = |code: i32| {
        let output = with_token(&server, secret(&token), &["queue", "pause", "q"]);
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
    };
    list(0);
    server.said(&["user", "update", "ann@example.org", "--role", "viewer", "--owner", "team"]);
    list(4);
    let shown = server.said(&["user", "show", "ann@example.org"]);
    assert!(shown.contains("viewer") && shown.contains("team"), "{shown}");
    server.said(&["user", "update", "ann@example.org", "--disable"]);
    refused(&with_token(&server, secret(&token), &["whoami"]), "disabled");
    assert!(server.said(&["user", "list"]).contains("DISABLED"));
    server.said(&["user", "update", "ann@example.org", "--enable", "--unset", "owner"]);
    assert!(with_token(&server, secret(&token), &["whoami"]).status.success());
    server.said(&["user", "remove", "ann@example.org"]);
    refused(&with_token(&server, secret(&token), &["whoami"]), "the token is unknown");
    assert_eq!(server.cli(&["user", "show", "ann@example.org"]).status.code(), Some(5));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

#[test]
fn a_login_is_stored_in_a_private_file_and_used() {
    let server = Server::start();
    let token = create(&server, "ann", &["--role", "operator"]);
    let person = Person::new();
    let login = ["login", "--server", &server.address];
    refused(&person.piped(&login, "pt_admin_wrong\n"), "the token is unknown");
    let missing = ["context", "add", "bad", "--server", "localhost:1", "--tls-ca", "/nonexistent.pem"];
    let missing = person.cli(&missing);
    assert_eq!(missing.status.code(), Some(2), "{}", told(&missing));
    assert!(told(&missing).contains("--tls-ca /nonexistent.pem: No such file"), "{}", told(&missing));
    let nowhere = person.cli(&["logout"]);
    assert!(told(&nowhere).contains("--context NAME"), "{}", told(&nowhere));
    assert!(!person.file().exists(), "a wrong token is not stored");
    assert_eq!(person.piped(&login, "").status.code(), Some(2));
    let output = person.piped(&login, &format!("{}\n", secret(&token)));
    assert!(output.status.success(), "{}", told(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("as ann (operator)") && !said.contains("pt_"), "{said}");
    assert_eq!((mode(&person.file()), mode(person.file().parent().unwrap())), (0o600, 0o700));

    let who = json_of(&person.cli(&["whoami", "-o", "json"]));
    assert_eq!((&who["context"], &who["name"]), (&json!(server.address), &json!("ann")));
    let wrong = person.work().join("wrong");
    std::fs::write(&wrong, "pt_admin_wrong\n").unwrap();
    std::fs::set_permissions(&wrong, std::fs::Permissions::from_mode(0o600)).unwrap();
    let wrong = person.cli(&["whoami", "--token-file", "wrong"]);
    refused(&wrong, &format!("unknown at http://{}", server.address));
    refused(&wrong, &format!("the address of the server from the context {}", server.address));
    assert!(person.cli(&["job", "list"]).status.success());
    let output = person.cli(&["logout"]);
    assert!(told(&output).contains(&format!("token revoke {}", token["token_id"].as_str().unwrap())));
    let output = person.cli(&["job", "list"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(
        told(&output).contains(&format!("punctual login --context {}", server.address)),
        "{}",
        told(&output)
    );
    assert!(!std::fs::read_to_string(person.file()).unwrap().contains("pt_"));
    let file = person.work().join("token");
    std::fs::write(&file, secret(&token)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    person.said(&["login", "--token-file", "token"]);
    std::fs::remove_file(&file).unwrap();
    assert!(person.cli(&["job", "list"]).status.success(), "the token was copied");
}

#[test]
fn a_terminal_does_not_show_the_token() {
    let server = Server::start();
    let person = Person::new();
    let config = person.home.path().join("config");
    let config = config.to_str().unwrap();
    let login = ["login", "--server", &server.address];
    let mut terminal = Terminal::start_with(&[("XDG_CONFIG_HOME", config)], &login);
    terminal.waits_for("token for ");
    terminal.press(&format!("{}\r", server.token));
    terminal.waits_for("logged in to ");
    assert!(terminal.ended().success() && !terminal.drawn.contains(&server.token), "{}", terminal.drawn);
    assert!(person.cli(&["token", "list"]).status.success());

    let mut terminal = Terminal::start_with(&[("XDG_CONFIG_HOME", config)], &login);
    terminal.waits_for("token for ");
    terminal.press("pt_admin_secret\u{3}");
    terminal.waits_for("interrupted: nothing was stored");
    assert!(!terminal.drawn.contains("secret"), "{}", terminal.drawn);
}

#[test]
fn contexts_name_servers_and_the_current_one_is_used() {
    let [north, south] = [Server::start(), Server::start()];
    let person = Person::new();
    for (name, server) in [("north", &north), ("south", &south)] {
        let token_file = server.data_dir().join("admin.token");
        let add = ["context", "add", name, "--server", &server.address, "--token-file"];
        person.said(&[&add[..], &[token_file.to_str().unwrap()]].concat());
        refused(&person.cli(&add[..5]), "there is a context");
    }
    assert_eq!((mode(&person.file()), mode(person.file().parent().unwrap())), (0o600, 0o700));
    let server_of = |arguments: &[&str]| {
        let who = json_of(&person.cli(&[&["whoami", "-o", "json"], arguments].concat()));
        who["server"].as_str().unwrap().trim_start_matches("http://").to_owned()
    };
    person.said(&["context", "use", "north"]);
    assert_eq!(server_of(&[]), north.address);
    assert_eq!(server_of(&["--context", "south"]), south.address);
    let by_variable = person.command(&["whoami"]).env("PUNCTUAL_CONTEXT", "south").output().unwrap();
    assert!(String::from_utf8_lossy(&by_variable.stdout).contains(&south.address));

    let list = json_of(&person.cli(&["context", "list", "-o", "json"]));
    assert_eq!(
        (&list[0]["name"], &list[0]["current"], &list[1]["current"]),
        (&json!("north"), &json!(true), &json!(false))
    );
    assert!(person.said(&["context", "show"]).contains(&north.address));
    assert!(!std::fs::read_to_string(person.file()).unwrap().contains("pt_"), "only the path is stored");

    let unknown = person.cli(&["job", "list", "--context", "east"]);
    assert_eq!(unknown.status.code(), Some(5));
    assert!(told(&unknown).contains("there is no context east") && told(&unknown).contains("north, south"));
    person.said(&["context", "remove", "north"]);
    assert_eq!(person.cli(&["context", "show"]).status.code(), Some(5));
    assert_eq!(person.cli(&["job", "list"]).status.code(), Some(5), "nothing names a server");
}

#[test]
fn flags_and_variables_count_before_contexts_and_these_before_the_data_directory() {
    let [local, remote] = [Server::start(), Server::start()];
    let person = Person::new();
    let data_dir = local.data_dir().to_str().unwrap();
    std::os::unix::fs::symlink(local.data_dir(), person.work().join("punctual-data")).unwrap();
    let server_of = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = person.command(&["whoami", "-o", "json"]);
        let who = json_of(&command.args(arguments).envs(variables.iter().copied()).output().unwrap());
        who["server"].as_str().unwrap().trim_start_matches("http://").to_owned()
    };
    assert_eq!(server_of(&[], &[]), local.address, "without contexts, as ever");
    let output = person.piped(&["login", "--server", &remote.address, "--context", "remote"], &remote.token);
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(server_of(&[], &[]), remote.address);
    assert_eq!(server_of(&["--data-dir", "punctual-data"], &[]), local.address);
    assert_eq!(server_of(&[], &[("PUNCTUAL_DATA_DIR", data_dir)]), local.address);
    assert_eq!(server_of(&["--data-dir", data_dir, "--context", "remote"], &[]), remote.address);
    assert_eq!(server_of(&["--server", &local.address], &[]), local.address);
    assert_eq!(server_of(&[], &[("PUNCTUAL_SERVER", &local.address)]), local.address);
    let noted =
        person.command(&["whoami", "--context", "remote"]).env("PUNCTUAL_SERVER", &local.address).output();
    assert!(
        told(&noted.unwrap()).contains("PUNCTUAL_SERVER names the server, so the context remote is not used")
    );
    person.said(&["context", "use", "--none"]);
    assert_eq!(server_of(&[], &[]), local.address);

    // The token of a context goes only to the server of the context.
    person.said(&["context", "use", "remote"]);
    std::fs::remove_file(person.work().join("punctual-data")).unwrap();
    let other = person.cli(&["job", "list", "--server", &local.address]);
    assert_eq!(other.status.code(), Some(5));
    assert!(told(&other).contains("no token for "), "{}", told(&other));
    drop(remote);
    let gone = person.cli(&["job", "list"]);
    assert_eq!(gone.status.code(), Some(3));
    assert!(told(&gone).contains("(from the context remote in "), "{}", told(&gone));
}

#[test]
fn a_damaged_file_of_contexts_is_told_and_affects_only_commands_that_need_it() {
    let server = Server::start();
    let person = Person::new();
    let output = person.piped(&["login", "--server", &server.address], &server.token);
    assert!(output.status.success(), "{}", told(&output));
    let mut text = std::fs::read_to_string(person.file()).unwrap();
    text.push_str("token = ");
    std::fs::write(person.file(), &text).unwrap();
    for command in [&["job", "list"][..], &["context", "list"], &["logout"]] {
        let output = person.cli(command);
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        assert!(told(&output).contains("contexts.toml cannot be used: line "), "{}", told(&output));
        assert!(!told(&output).contains("pt_"), "{}", told(&output));
    }
    assert_eq!(std::fs::read_to_string(person.file()).unwrap(), text, "it is left as it is");
    let data_dir = server.data_dir().to_str().unwrap();
    assert!(person.cli(&["job", "list", "--data-dir", data_dir]).status.success());
    std::fs::set_permissions(person.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(person.file(), "").unwrap();
    let warned = person.cli(&["context", "list"]);
    assert!(told(&warned).contains("other users can read the secret"), "{}", told(&warned));
}
