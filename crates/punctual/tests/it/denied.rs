//! Databases that answer and deny access: the error says what is missing and what to do. And passwords that
//! other users can see. The servers here only deny, so that none has to be set up.

use crate::server::{BINARY, Server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the binary in a directory, without the variables of the tests' own process; returns its exit code and
/// its stderr.
fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = output_of(dir, arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn output_of(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PUNCTUAL_") {
            command.env_remove(name);
        }
    }
    command.output().expect("the binary starts")
}

/// Sends the same to every client, for as long as the test runs; returns its port.
fn server(greet: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client may disconnect early.
            let _ = stream.and_then(|mut stream| {
                greet(&mut stream)?;
                stream.read_to_end(&mut Vec::new())
            });
        }
    });
    port
}

/// The URL of a PostgreSQL server that answers the first message of a connection with this one.
fn postgres(kind: u8, body: Vec<u8>) -> String {
    let port = server(move |stream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let rest = u64::from(u32::from_be_bytes(length)) - 4;
        std::io::copy(&mut Read::by_ref(stream).take(rest), &mut std::io::sink())?;
        let length = u32::try_from(body.len() + 4).unwrap();
        stream.write_all(&[&[kind][..], &length.to_be_bytes(), &body].concat())
    });
    format!("postgres://me@127.0.0.1:{port}/d?sslmode=disable")
}

fn postgres_that_wants_a_password() -> String {
    postgres(b'R', 3_u32.to_be_bytes().to_vec())
}

fn postgres_that_says(code: &str, message: &str) -> String {
    postgres(b'E', format!("SFATAL\0C{code}\0M{message}\0\0").into_bytes())
}

fn mysql_that_says(code: u16, message: &str) -> String {
    let body = [&[0xff][..], &code.to_le_bytes(), message.as_bytes()].concat();
    let length = u8::try_from(body.len()).unwrap();
    let port = server(move |stream| stream.write_all(&[&[length, 0, 0, 0][..], &body].concat()));
    format!("mysql://me@127.0.0.1:{port}/d")
}

/// What a database denies, and the expected text besides its URL; `PASSWORD` is where the password is set.
fn denials() -> Vec<(String, &'static [&'static str])> {
    const GUIDE: &str = "see \"Rights in the database\" in docs/guides/going-to-production.md";
    let without = "Access denied for user 'me'@'localhost' (using password: NO)";
    let with = "Access denied for user 'me'@'localhost' (using password: YES)";
    let of_database = "Access denied for user 'me'@'%' to database 'd'";
    vec![
        (postgres_that_wants_a_password(), &["requires a password, but none was given", "PASSWORD"]),
        (mysql_that_says(1045, without), &["requires a password, but none was given", "PASSWORD"]),
        (
            postgres_that_says("28P01", "password authentication failed for user \"me\""),
            &["rejected the login", "(28P01)", "PASSWORD"],
        ),
        (mysql_that_says(1045, with), &["rejected the login", "(1045)", "PASSWORD"]),
        (postgres_that_says("3D000", "database \"d\" does not exist"), &["has no such database", "(3D000)"]),
        (
            postgres_that_says("42501", "permission denied for database \"d\""),
            &["lacks a privilege", "(42501)", "ALTER DATABASE d OWNER TO me", GUIDE],
        ),
        (
            mysql_that_says(1044, of_database),
            &["lacks a privilege", "(1044)", "DROP, INDEX ON d.* TO me", GUIDE],
        ),
    ]
}

/// The message contains no hint that leads in the wrong direction.
fn tells(said: &str, expected: &[&str], password: &str) {
    for words in expected {
        let words = if *words == "PASSWORD" { password } else { words };
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.contains("was reached"), "{said}");
    for misleading in ["cannot be reached", "is the database running", "repeat the command"] {
        assert!(!said.contains(misleading), "{said}");
    }
}

#[test]
fn a_store_that_refuses_is_told_with_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    for (url, expected) in denials() {
        for command in [&["migrate", "status"][..], &["migrate", "fork", "--this-is-a-copy"], &["scheduler"]]
        {
            let (code, said) = run(directory.path(), &[command, &["--store", &url]].concat());
            assert_eq!(code, Some(7), "{command:?}: {said}");
            tells(&said, expected, "PUNCTUAL_STORE_PASSWORD or the file that store.password_file names");
        }
    }
}

#[test]
fn a_move_names_the_end_that_refuses_and_says_to_repeat_only_what_repeating_helps() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    Server::start_in(&data, &[]).kill();
    let embedded = format!("sqlite:{}", data.display());
    for (url, expected) in denials() {
        for (from, to, end, password) in [
            (url.as_str(), "sqlite:new", "the source", "PUNCTUAL_FROM_PASSWORD"),
            (&embedded, &url, "the target", "PUNCTUAL_TO_PASSWORD"),
        ] {
            let (code, said) = run(directory.path(), &["migrate-data", "--from", from, "--to", to]);
            assert_eq!(code, Some(7), "{said}");
            assert!(said.contains(&format!("{end} {url} was reached")), "{said}");
            tells(&said, expected, password);
        }
    }
    let lost = "postgres://me@127.0.0.1:1/d";
    let (code, said) = run(directory.path(), &["migrate-data", "--from", lost, "--to", "sqlite:new"]);
    assert!(code == Some(6) && said.contains("repeat the command to continue where it stopped"), "{said}");
}

#[test]
fn a_password_in_a_flag_is_warned_of_by_all_commands() {
    let directory = tempfile::tempdir().unwrap();
    let url = "postgres://me:hunter2@127.0.0.1:1/d";
    let store = "all users of this machine can see the password in --store: use store.password_file or \
                 PUNCTUAL_STORE_PASSWORD\n";
    let from = "all users of this machine can see the password in --from: use PUNCTUAL_FROM_PASSWORD\n";
    for (command, told) in [
        (&["migrate", "status", "--store", url][..], store),
        (&["migrate", "up", "--store", url], store),
        (&["doctor", "--store", url], store),
        (&["scheduler", "--store", url], store),
        (&["migrate-data", "--from", url, "--to", "sqlite:new"], from),
    ] {
        let (_, said) = run(directory.path(), command);
        assert!(said.contains(told) && !said.contains("hunter2"), "{command:?}: {said}");
    }
    let coordination = "all users of this machine can see the password in --coordination: use coordination.password_file \
                        or PUNCTUAL_COORDINATION\n";
    let lost = "postgres://me@127.0.0.1:1/d";
    for role in [&["api", "--listen", "127.0.0.1:0"][..], &["scheduler"], &["worker"]] {
        let command = [role, &["--store", lost, "--coordination", "redis://me:hunter2@127.0.0.1:1"]].concat();
        let (_, said) = run(directory.path(), &command);
        assert!(said.contains(coordination) && !said.contains("hunter2"), "{command:?}: {said}");
    }
    let (_, said) = run(directory.path(), &["migrate", "status", "--store", "postgres://me@127.0.0.1:1/d"]);
    assert!(!said.contains("all users of this machine"), "{said}");
}

#[test]
fn a_password_in_the_wrong_place_of_a_url_is_repeated_by_no_command() {
    let directory = tempfile::tempdir().unwrap();
    for (url, told) in [
        ("mysql://me@127.0.0.1:1/d?passwd=hunter2", "mysql://me@127.0.0.1:1/d?… "),
        ("postgres://me@127.0.0.1:1/d?sslmode=disable&pass=hunter2", "/d?sslmode=disable&… "),
        ("sqlite://me:hunter2@h/x", "must be sqlite:DIRECTORY"),
    ] {
        for command in [&["migrate", "status"][..], &["doctor"], &["serve"], &["scheduler"]] {
            let output = output_of(directory.path(), &[command, &["--store", url]].concat());
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(!output.status.success() && said.contains(told), "{command:?} {url}: {said}");
            assert!(!said.contains("hunter2"), "{command:?} {url}: {said}");
        }
    }
    assert!(!directory.path().join("me:hunter2@h").exists(), "nothing is made under a name that is a secret");
}

#[test]
fn a_password_file_that_others_can_read_is_warned_of_by_all_commands() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "hunter2\n").unwrap();
    let settings = "[store]\nurl = \"postgres://me@127.0.0.1:1/d\"\npassword_file = \"secret\"\n";
    std::fs::write(directory.path().join("punctual.toml"), settings).unwrap();
    for (mode, is_told) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        for command in
            [&["migrate", "status"][..], &["doctor"], &["api"], &["scheduler"], &["worker"], &["serve"]]
        {
            let (_, said) = run(directory.path(), command);
            assert_eq!(said.contains("other users can read the secret in"), is_told, "{command:?}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
