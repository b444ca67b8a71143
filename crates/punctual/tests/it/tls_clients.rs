//! Commands and workers over TLS, and servers that demand client certificates.

use crate::certificates::{Authority, Certificates, HERE, Pair};
use crate::server::{BINARY, Server, eventually};
use punctual_client::{ClientError, Distrust, SubmitJob};
use punctual_core::job::JobStatus;
use rcgen::date_time_ymd;
use rustls::HandshakeKind;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The outcome of a command that is not in the server's data directory: exit code and error output.
fn run(server: &Server, options: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY)
        .args(["job", "list", "--data-dir", "/nonexistent", "--token-file"])
        .arg(server.data_dir().join("admin.token"))
        .args(options)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn commands_reach_a_server_with_tls_if_they_know_its_authority() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let ca = certificates.text("ca.pem");
    let https = format!("https://{}", server.address);
    assert_eq!(run(&server, &["--tls-ca", &ca, "--server", &https]), (Some(0), String::new()));
    // Commands in the data directory need no certificates: they use its socket.
    assert!(server.cli(&["job", "list"]).status.success());
    // With certificates, an address without a scheme means https.
    let port = server.address.rsplit(':').next().unwrap();
    let address = format!("localhost:{port}");
    assert_eq!(run(&server, &["--tls-ca", &ca, "--server", &address]), (Some(0), String::new()));
    let (code, said) = run(&server, &["--server", &https]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("UnknownIssuer") && said.contains("with --tls-ca"), "{said}");
    let (code, said) = run(&server, &["--server", &address]);
    assert!(code == Some(4) && said.contains("use an address that begins with https://"), "{said}");
    let (code, said) = run(&server, &["--tls-ca", "/nonexistent"]);
    assert!(code == Some(2) && said.contains("--tls-ca /nonexistent: No such file"), "{said}");
    let (code, said) = run(&server, &["--tls-client-cert", &ca]);
    assert!(code == Some(2) && said.contains("--tls-client-cert: needs client.tls_client_key"), "{said}");
    let said = String::from_utf8_lossy(&server.cli(&["doctor"]).stdout).into_owned();
    assert!(said.contains(&format!("ready at https://{}", server.address)), "{said}");
    let token = ["--token", &server.token, "--server", &https];
    let doctor = server.cli(&[&["doctor"], &token[..]].concat());
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("no trusted connection to https://") && said.contains("--tls-ca"), "{said}");
}

#[test]
fn commands_reach_a_server_that_listens_on_every_address() {
    let certificates = Certificates::new();
    let data = tempfile::tempdir().unwrap();
    let child = Command::new(BINARY)
        .args(["serve", "--listen", "0.0.0.0:0", "--data-dir"])
        .arg(data.path())
        .args(certificates.server_options())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut server = Process(child.unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(" https://0.0.0.0:"), "{line}");
    let address = std::fs::read_to_string(data.path().join("server.address")).unwrap();
    assert!(address.starts_with("https://127.0.0.1:"), "{address}");
    let list = Command::new(BINARY)
        .args([
            "job",
            "list",
            "--tls-ca",
            &certificates.text("ca.pem"),
            "--server",
            address.trim(),
            "--token-file",
        ])
        .arg(data.path().join("admin.token"))
        .output()
        .unwrap();
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
}

#[tokio::test]
async fn every_client_needs_a_certificate_if_an_authority_for_clients_is_set() {
    let certificates = Certificates::new();
    let clients = Authority::new("the authority of clients");
    certificates.write("clients.pem", &clients.pem);
    let server = certificates.serve(&["--tls-client-ca", &certificates.text("clients.pem")]);
    let known = clients.issue(&["a-client"]);
    certificates.client(&server, Some(&known)).version().await.unwrap();
    let stranger = certificates.authority.issue(&["a-stranger"]);
    for identity in [None, Some(&stranger)] {
        let refused = certificates.client(&server, identity).version().await.unwrap_err();
        assert_eq!(refused.distrust(), Some(Distrust::OfClient), "{refused:?}");
    }
    certificates.give("known", &known);
    let ca = certificates.text("ca.pem");
    let https = format!("https://{}", server.address);
    let (code, said) = run(&server, &["--tls-ca", &ca, "--server", &https]);
    assert!(code == Some(3) && said.contains("with --tls-client-cert and --tls-client-key"), "{said}");
    let [cert, key] = ["known.pem", "known.key"].map(|name| certificates.text(name));
    let options = ["--tls-ca", &ca, "--tls-client-cert", &cert, "--tls-client-key", &key, "--server", &https];
    assert_eq!(run(&server, &options), (Some(0), String::new()));
}

/// Otherwise a client whose certificate has expired meanwhile would still be accepted.
#[tokio::test]
async fn sessions_are_not_resumed_where_clients_have_certificates() {
    let certificates = Certificates::new();
    let ca = certificates.text("ca.pem");
    for (options, resumed) in [
        (vec![], HandshakeKind::Resumed),
        (vec!["--tls-client-ca", ca.as_str(), "--tls-client-auth", "workers"], HandshakeKind::Full),
    ] {
        let server = certificates.serve(&options);
        for version in rustls::ALL_VERSIONS {
            let config = Arc::new(certificates.config(&["http/1.1"], &[version]));
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let mut stream = certificates.connect_by(&server, &config).await.unwrap();
                stream
                    .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    .await
                    .unwrap();
                stream.read_to_end(&mut Vec::new()).await.unwrap();
                kinds.push(stream.get_ref().1.handshake_kind());
            }
            assert_eq!(kinds, [Some(HandshakeKind::Full), Some(resumed)], "{version:?}");
        }
    }
}

/// A process. Killed on drop.
struct Process(Child);

impl Process {
    fn worker(server: &Server, options: &[&str]) -> Self {
        let child = Command::new(BINARY)
            .args(["worker", "--worker-name", "remote", "--server", &format!("https://{}", server.address)])
            .arg("--token-file")
            .arg(server.data_dir().join("admin.token"))
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Process(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn certificates_can_be_demanded_of_workers_alone() {
    let certificates = Certificates::new();
    let clients = Authority::new("the authority of workers");
    certificates.write("clients.pem", &clients.pem);
    let pair: Pair = clients.issue(&["a-worker"]);
    certificates.give("worker", &pair);
    let options = ["--tls-client-ca", &certificates.text("clients.pem"), "--tls-client-auth", "workers"];
    // The server's own worker serves another queue.
    let server = certificates.serve(&[&options[..], &["--queues", "other"]].concat());
    let client = certificates.client(&server, None);
    client.version().await.expect("people need no certificate");

    let ca = certificates.text("ca.pem");
    let mut refused = Process::worker(&server, &["--tls-ca", &ca]);
    assert_eq!(refused.0.wait().unwrap().code(), Some(4));
    let said = std::io::read_to_string(refused.0.stderr.take().unwrap()).unwrap();
    assert!(said.contains("start the worker with --tls-client-cert"), "{said}");
    let unknown = certificates.authority.issue(&["a-stranger"]);
    let stranger = certificates.client(&server, Some(&unknown)).version().await;
    assert!(matches!(stranger, Err(ClientError::Unreachable { .. })), "{stranger:?}");

    let [cert, key] = ["worker.pem", "worker.key"].map(|name| certificates.text(name));
    let _worker =
        Process::worker(&server, &["--tls-ca", &ca, "--tls-client-cert", &cert, "--tls-client-key", &key]);
    let job = client.submit(&SubmitJob::named("noop")).await.unwrap().job_id;
    eventually("it ran", async || client.job(job).await.unwrap().status == JobStatus::Completed).await;
    let executions = client.executions(job, None, None).await.unwrap();
    assert_eq!(executions.items[0].worker_id.as_deref(), Some("remote"));
}

#[test]
fn an_expired_certificate_is_told_before_clients_notice() {
    let certificates = Certificates::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("punctual.toml");
    let text = format!(
        "listen = \"0.0.0.0:7070\"\ntls_cert = \"{}\"\ntls_key = \"{}\"\n",
        certificates.text("server.pem"),
        certificates.text("server.key")
    );
    std::fs::write(&file, text).unwrap();
    let check = || {
        let output = Command::new(BINARY).args(["config", "check"]).arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check(), (Some(0), String::new()));
    certificates.replace(&certificates.authority.issue_with(&HERE, |params| {
        params.not_after = date_time_ymd(2020, 1, 1);
    }));
    let (code, said) = check();
    assert_eq!(code, Some(0));
    assert!(
        said.contains("server.pem: the certificate has expired") && said.contains("2020-01-01"),
        "{said}"
    );
    let doctor =
        Command::new(BINARY).args(["doctor", "-o", "json"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(doctor.stdout).unwrap();
    assert!(said.contains("the certificate has expired"), "{said}");

    std::fs::remove_file(certificates.text("server.key")).unwrap();
    let (code, said) = check();
    assert!(code == Some(7) && said.contains("server.key: cannot be read"), "{said}");
    std::fs::write(&file, "listen = \"0.0.0.0:7070\"\n").unwrap();
    let (code, said) = check();
    assert!(code == Some(2) && said.contains("--insecure-http"), "{said}");
    std::fs::write(
        &file,
        "[oidc]\nissuer = \"https://id.example.org\"\nclient_id = \"x\"\nca_file = \"none\"\n",
    )
    .unwrap();
    let (code, said) = check();
    assert!(code == Some(7) && said.contains("oidc.ca_file"), "{code:?} {said}");
}

#[test]
fn a_worker_that_does_not_trust_its_server_says_what_to_do() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let mut worker = Process::worker(&server, &[]);
    let stderr = BufReader::new(worker.0.stderr.take().unwrap());
    let told = stderr.lines().map(Result::unwrap).find(|line| line.contains("with --tls-ca"));
    assert!(told.is_some());
}
