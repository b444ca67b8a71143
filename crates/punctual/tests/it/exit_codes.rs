//! Each exit code, and what causes it.

use crate::server::{BINARY, Server};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

#[test]
fn each_exit_code_has_one_meaning() {
    let server = Server::start();
    let code = |line: &str| {
        let output = server.cli(&line.split(' ').collect::<Vec<_>>());
        output.status.code().unwrap_or_else(|| panic!("{line} was killed"))
    };
    for (expected, line) in [
        (0, "job list"),
        (0, "job submit well --type noop --wait"),
        (1, "job submit ill --type sleep --wait"),
        (2, "job lsit"),
        (2, "job submit x --delay soon"),
        (2, "job list --token pt_admin_x --server a:b:c"),
        (4, "job submit -f /dev/null"),
        (4, "job submit x --every 1ms"),
        (4, "job list --token pt_admin_wrong"),
        (4, "job resume well"),
        (5, "job show nobody"),
        (3, "job list --token pt_admin_x --server 127.0.0.1:1"),
        (8, "job submit slow --type noop --delay 1d --wait --wait-timeout 10ms"),
    ] {
        assert_eq!(code(line), expected, "{line}");
    }
    let taken = ["serve", "--listen", &server.address, "--data-dir"];
    let directory = tempfile::tempdir().unwrap();
    let refused = Command::new(BINARY).args(taken).arg(directory.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn a_server_that_cannot_answer_now_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let busy = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let _ = connection.read(&mut [0; 4096]).unwrap();
        let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        connection.write_all(answer.as_bytes()).unwrap();
    });
    let line = ["job", "list", "--retry-time", "0s", "--token", "pt_admin_x", "--server", &address];
    let failed = Command::new(BINARY).args(line).output().unwrap();
    busy.join().unwrap();
    assert_eq!(failed.status.code(), Some(6), "{}", String::from_utf8_lossy(&failed.stderr));
}
