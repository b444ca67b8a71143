//! The private server of the demo: a process of its own, on a temporary directory and a free port of the loopback interface. It
//! ends with its standard input, so it never outlives the demo.

use anyhow::{Context, bail};
use punctual_client::Client;
use punctual_config::exit::Exit;
use punctual_node::serve::{self, ServeArgs};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How the demo starts its server.
pub const SUBCOMMAND: &str = "demo-server";
/// How long the server may take to start, and to end.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Settings of other servers are not meant for this one.
const VARIABLES: &str = "PUNCTUAL_";

pub struct PrivateServer {
    pub url: String,
    pub client: Client,
    pub token_file: PathBuf,
    // Before the directory: fields are dropped in this order, and the server writes there until it is gone.
    child: Child,
    stdin: ChildStdin,
    /// Open until the end: the server may write.
    _stdout: BufReader<ChildStdout>,
    pub directory: TempDir,
}

impl PrivateServer {
    /// Starts the server and waits until it is ready. Only this server may call the loopback interface: others refuse it by
    /// default.
    pub async fn start() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("punctual-demo-").tempdir();
        let directory = directory.context("cannot create a temporary directory")?;
        let data_dir = directory.path().join("data");
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args([SUBCOMMAND, "--listen", "127.0.0.1:0", "--log-level", "error"]);
        command.args(["--notify-allow", "127.0.0.1", "--notify-window", "1s", "--data-dir"]).arg(&data_dir);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(VARIABLES) {
                command.env_remove(name);
            }
        }
        // No punctual.toml is there. In a group of its own, Ctrl-C reaches only the demo, which ends the server itself.
        command.current_dir(directory.path()).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the server")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.context("the server has no pipes")?;
        let (mut stdout, mut greeting) = (BufReader::new(stdout), String::new());
        timeout(START_TIMEOUT, stdout.read_line(&mut greeting))
            .await
            .context("the server did not start")??;
        let Some((_, address)) = greeting.trim().rsplit_once("http://") else {
            bail!("the server did not start");
        };
        let token_file = data_dir.join("admin.token");
        let token = std::fs::read_to_string(&token_file).context("cannot read the token of the server")?;
        Ok(PrivateServer {
            url: format!("http://{address}"),
            client: Client::new(address, token.trim().to_owned())?,
            token_file,
            directory,
            child,
            stdin,
            _stdout: stdout,
        })
    }

    /// Ends the server, and removes its data.
    pub async fn stop(self) -> anyhow::Result<()> {
        let PrivateServer { mut child, stdin, directory, .. } = self;
        drop(stdin);
        if timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
            child.kill().await.context("cannot end the server")?;
        }
        directory.close().context("cannot remove the data of the server")
    }
}

/// The server itself: `punctual serve` until its standard input ends.
pub async fn run(args: ServeArgs, unknown: &[String]) -> anyhow::Result<Exit> {
    let input_ends =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    tokio::select! {
        biased;
        _ = input_ends => Ok(Exit::Done),
        ended = serve::run(args, unknown) => ended,
    }
}
