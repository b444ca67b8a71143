//! The token of a data directory reaches the server of that directory and no other.

use crate::server::{BINARY, Server};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn run(data_dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).arg("--data-dir").arg(data_dir).output().expect("the binary starts")
}

/// All that connected to a listener have sent. They must have ended.
fn received(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).unwrap();
    let mut text = Vec::new();
    while let Ok((mut stream, _)) = listener.accept() {
        stream.set_nonblocking(false).unwrap();
        stream.read_to_end(&mut text).unwrap();
    }
    String::from_utf8_lossy(&text).to_lowercase()
}

#[test]
fn a_program_that_took_the_port_of_a_stopped_server_gets_no_token() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_in(&data, &[]);
    let (address, token) = (server.address.clone(), server.token.clone());
    assert!(server.stop().success());
    let impostor = TcpListener::bind(&address).unwrap();
    for arguments in
        [&["job", "list"][..], &["job", "list", "--server", &address], &["whoami"], &["top", "--once"]]
    {
        let output = run(&data, arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", told(&output));
        let socket = data.join("punctual.sock");
        assert!(!socket.exists(), "it is removed when the server stops");
        let expected = format!("cannot reach the server at {}: No such file", socket.display());
        assert!(told(&output).contains(&expected), "{arguments:?}: {}", told(&output));
    }
    let with_a_token = Command::new(BINARY)
        .args(["job", "list", "--data-dir"])
        .arg(&data)
        .env("PUNCTUAL_TOKEN", &token)
        .output()
        .unwrap();
    assert_eq!(with_a_token.status.code(), Some(3), "the data directory names the server");
    run(&data, &["doctor"]);
    let text = received(&impostor);
    assert!(!text.contains("authorization") && !text.contains(&token.to_lowercase()), "{text}");
}

#[test]
fn a_server_that_is_named_gets_no_token_of_a_data_directory_except_its_own() {
    let server = Server::start();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    let by_flag = run(server.data_dir(), &["job", "list", "--server", &address]);
    let by_variable = Command::new(BINARY)
        .args(["job", "list", "--data-dir"])
        .arg(server.data_dir())
        .env("PUNCTUAL_SERVER", &address)
        .output()
        .unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let data_dir = server.data_dir().display();
    let text = format!("data_dir = \"{data_dir}\"\n[client]\nserver = \"{address}\"\n");
    std::fs::write(elsewhere.path().join("punctual.toml"), text).unwrap();
    let by_file = Command::new(BINARY).args(["job", "list"]).current_dir(elsewhere.path()).output().unwrap();
    for output in [by_flag, by_variable, by_file] {
        assert_eq!(output.status.code(), Some(5), "{}", told(&output));
        assert!(told(&output).contains(&format!("no token for {address}")), "{}", told(&output));
        assert!(told(&output).contains("--token-file or PUNCTUAL_TOKEN"), "{}", told(&output));
    }
    assert_eq!(received(&stranger), "");

    // Its own server needs no other token, by any name for this machine.
    let port = server.address.rsplit(':').next().unwrap();
    for named in [server.address.clone(), format!("http://{}/", server.address), format!("localhost:{port}")]
    {
        let output = run(server.data_dir(), &["job", "list", "--server", &named]);
        assert!(output.status.success(), "{named}: {}", told(&output));
    }
}

#[test]
fn the_socket_is_private_and_works_in_a_directory_with_a_long_path() {
    let directory = tempfile::tempdir().unwrap();
    for data in [directory.path().join("data"), directory.path().join("long/".repeat(40)).join("data")] {
        // A socket that a killed server has left is replaced.
        Server::start_in(&data, &[]).kill();
        let server = Server::start_in(&data, &[]);
        let socket = std::fs::metadata(data.join("punctual.sock")).unwrap();
        assert!(socket.file_type().is_socket());
        assert_eq!(socket.permissions().mode() & 0o777, 0o600);
        assert!(server.cli(&["job", "list"]).status.success(), "{}", data.display());
        assert!(server.said(&["whoami"]).contains(&server.address));
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Otherwise its token would be the admin's.
#[test]
fn a_server_refuses_a_directory_that_another_user_can_fill() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("admin.token"), format!("pt_admin_{}\n", "x".repeat(40))).unwrap();
    let refused = |why: &str| {
        let output = run(&data, &["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(7), "{}", told(&output));
        let expected = format!("the data directory {} cannot be used: {why}", data.display());
        assert!(told(&output).contains(&expected), "{}", told(&output));
        assert!(told(&output).contains(&format!("`chmod 700 {}`", data.display())), "{}", told(&output));
        assert!(!data.join("punctual.db").exists());
    };
    set_mode(&data, 0o777);
    refused("users other than its owner");
    set_mode(&data, 0o770);
    refused("users other than its owner");
    if is_root() {
        set_mode(&data, 0o700);
        chown(&data, Some(65534), None).unwrap();
        refused("it belongs to user 65534 (mode 0700), and this command runs as user 0");
    }
}

#[test]
fn a_command_trusts_no_socket_that_another_user_can_replace() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("punctual-data");
    let server = Server::start_in(&data, &[]);
    let distrusts = |output: Output, why: &str| {
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        let expected = format!("punctual-data cannot be trusted: {why}");
        assert!(told(&output).contains(&expected), "{}", told(&output));
    };
    set_mode(&data, 0o777);
    distrusts(server.cli(&["job", "list"]), "users other than its owner");
    let with_a_token = Command::new(BINARY)
        .args(["job", "list", "--data-dir"])
        .arg(&data)
        .env("PUNCTUAL_TOKEN", &server.token)
        .output()
        .unwrap();
    distrusts(with_a_token, "users other than its owner");
    set_mode(&data, 0o700);
    assert!(server.cli(&["job", "list"]).status.success());
    if is_root() {
        // Root manages the server of a service's user, but does not come across one by accident.
        chown(&data, Some(65534), None).unwrap();
        let mixed = server.cli(&["job", "list"]);
        assert!(
            told(&mixed).contains("it belongs to user 0, but its directory to user 65534"),
            "{}",
            told(&mixed)
        );
        for file in ["admin.token", "server.address"] {
            chown(data.join(file), Some(65534), None).unwrap();
        }
        assert!(server.cli(&["job", "list"]).status.success());
        let found =
            Command::new(BINARY).args(["job", "list"]).current_dir(directory.path()).output().unwrap();
        distrusts(found, "it belongs to user 65534 (mode 0700), and this command runs as user 0");
    }
}

/// Otherwise the owner of the directory could have files that only root can read.
#[test]
fn a_command_sends_no_file_that_a_link_leads_to() {
    let directory = tempfile::tempdir().unwrap();
    let [data, other] = ["data", "other.token"].map(|name| directory.path().join(name));
    let server = Server::start_in(&data, &[]);
    let token = data.join("admin.token");
    std::fs::rename(&token, &other).unwrap();
    std::os::unix::fs::symlink(&other, &token).unwrap();
    let linked = server.cli(&["job", "list"]);
    assert!(!linked.status.success());
    assert!(told(&linked).contains("admin.token: it is a symbolic link"), "{}", told(&linked));
    std::fs::remove_file(&token).unwrap();
    std::fs::write(&token, "a key of something else").unwrap();
    let other_text = server.cli(&["job", "list"]);
    assert_eq!(other_text.status.code(), Some(2), "{}", told(&other_text));
    assert!(told(&other_text).contains("does not contain a token of Punctual"), "{}", told(&other_text));
    assert!(!told(&other_text).contains("something else"), "{}", told(&other_text));
}

/// Links in it could make root create or change other files.
#[test]
fn commands_about_a_store_refuse_a_directory_of_another_user() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    assert!(Server::start_in(&data, &[]).stop().success());
    assert!(run(&data, &["check", "--repair"]).status.success());
    let copy = directory.path().join("copy");
    let refuse = |why: &str| {
        for arguments in [
            &["check"][..],
            &["check", "--repair"],
            &["backup", copy.to_str().unwrap()],
            &["migrate", "fork", "--this-is-a-copy"],
        ] {
            let output = run(&data, arguments);
            assert_eq!(output.status.code(), Some(7), "{arguments:?}: {}", told(&output));
            let expected = format!("the data directory {} cannot be used: {why}", data.display());
            assert!(told(&output).contains(&expected), "{arguments:?}: {}", told(&output));
        }
    };
    set_mode(&data, 0o777);
    refuse("users other than its owner");
    if is_root() {
        set_mode(&data, 0o700);
        chown(&data, Some(65534), None).unwrap();
        refuse("it belongs to user 65534 (mode 0700), and this command runs as user 0");
    }
    assert!(!copy.exists());
}
