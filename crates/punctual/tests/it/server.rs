//! A running `punctual serve`, and requests to it.

use punctual_client::{Client, ClientTls};
use punctual_core::ids::JobId;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_punctual");

/// The suite may run as root, which commands of a server must otherwise not do.
pub const ALLOW_ROOT: &str = "PUNCTUAL_ALLOW_ROOT_COMMANDS";

/// The address of a server that may have any port.
const ANY_PORT: &str = "127.0.0.1:0";

/// How long an expected event may take. Generous, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until the condition holds; fails with `what` if it never does.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A server on a data directory. Killed on drop.
pub struct Server {
    child: Child,
    pub address: String,
    pub token: String,
    data_dir: PathBuf,
    /// `None` when the caller owns the directory.
    _temporary: Option<TempDir>,
}

impl Server {
    /// A server on a fresh directory.
    pub fn start() -> Self {
        Server::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let mut server = Server::start_in(&temporary.path().join("data"), options);
        server._temporary = Some(temporary);
        server
    }

    /// A server on a directory that outlives it.
    pub fn start_in(data_dir: &Path, options: &[&str]) -> Self {
        Server::launch(Command::new(BINARY), ANY_PORT, data_dir, options)
    }

    /// A server at this address, for tests that start another one there. With an IP address other than that of all
    /// other servers, nothing takes the port in between.
    pub fn start_at(address: &str, data_dir: &Path) -> Self {
        Server::launch(Command::new(BINARY), address, data_dir, &[])
    }

    /// A server that another program starts.
    pub fn start_through(launcher: &[&str], data_dir: &Path) -> Self {
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]);
        Server::launch(command, ANY_PORT, data_dir, &[])
    }

    fn launch(mut command: Command, listen: &str, data_dir: &Path, options: &[&str]) -> Self {
        let mut child = command
            .env(ALLOW_ROOT, "true")
            .args(["serve", "--listen", listen, "--log-level", "warn", "--data-dir"])
            .arg(data_dir)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut greeting = String::new();
        let stdout = child.stdout.as_mut().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut greeting).expect("a greeting");
        let address = greeting.trim().rsplit("://").next().expect("an address").to_owned();
        assert!(address.starts_with("127."), "no address in {greeting:?}");
        let token = std::fs::read_to_string(data_dir.join("admin.token")).expect("a token");
        Server {
            child,
            address,
            token: token.trim().to_owned(),
            data_dir: data_dir.to_owned(),
            _temporary: None,
        }
    }

    /// It passes on every answer: tests decide themselves when to repeat a request.
    pub fn client(&self) -> Client {
        Client::new(&self.address, self.token.clone()).expect("a good address").without_retries()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A request with the admin token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.token)
    }

    /// A request without a token.
    pub fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        http_client().request(method, format!("http://{}{path}", self.address))
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &str) -> (StatusCode, Value) {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        answer(request.body(body.to_owned())).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.request(Method::PATCH, path).json(body)).await
    }

    /// Submits a job that must be accepted.
    pub async fn submit(&self, job: Value) -> JobId {
        let (status, body) = self.post("/api/v1/jobs", &job.to_string()).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["job_id"].as_str().expect("an id").parse().expect("the id of a job")
    }

    /// The output of a command that must succeed.
    pub fn said(&self, arguments: &[&str]) -> String {
        let output = self.cli(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs the binary against this server.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        Command::new(BINARY)
            .args(arguments)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .output()
            .expect("the binary starts")
    }

    /// Kills the process with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("the server still runs");
        self.child.wait().expect("the server is gone");
    }

    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the server still runs");
    }

    /// Asks the server to stop and waits until it has.
    pub fn stop(self) -> ExitStatus {
        self.terminate();
        self.ended()
    }

    /// Waits until the server has stopped.
    pub fn ended(mut self) -> ExitStatus {
        self.child.wait().expect("the server is gone")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client without connections yet.
pub fn http_client() -> reqwest::Client {
    ClientTls::default().http().build().expect("a client")
}

pub async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
