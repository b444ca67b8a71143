//! Checks the HTTP API against its OpenAPI document: the document with a validator, the server with a fuzzer.

use crate::test::cargo;
use crate::tools::{self, PythonTools};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// The settings of the fuzzer.
pub struct Fuzz {
    /// Maximum requests generated for each operation in each phase.
    pub examples: u32,
    pub seed: u64,
    /// The roles of the tokens that send the requests, one after the other.
    pub roles: &'static [&'static str],
}

const ROLES: [&str; 5] = ["admin", "operator", "submitter", "viewer", "worker"];

impl Fuzz {
    /// The run that is part of every test: the same requests each time.
    pub const QUICK: Fuzz = Fuzz { examples: 2, seed: 1, roles: &["admin", "submitter"] };
    const OPERATIONS_ABOUT: u32 = 72;

    /// Approximately this many cases in total, divided among all roles.
    pub fn about(cases: u32, seed: u64) -> Self {
        let examples = cases / Fuzz::OPERATIONS_ABOUT / ROLES.len() as u32;
        Fuzz { examples: examples.max(1), seed, roles: &ROLES }
    }
}

/// Reads `--cases N` and `--seed N`.
pub fn fuzz_arguments(words: &[&str]) -> Result<Fuzz> {
    let (mut cases, mut seed) = (10_000, u64::from(std::process::id()));
    for pair in words.chunks(2) {
        match pair {
            ["--cases", number] => cases = number.parse().context("--cases takes a number")?,
            ["--seed", number] => seed = number.parse().context("--seed takes a number")?,
            _ => bail!("fuzz-api takes --cases N and --seed N, not {}", pair.join(" ")),
        }
    }
    Ok(Fuzz::about(cases, seed))
}

pub fn run_fuzz(root: &Path, fuzz: &Fuzz) -> Result<ExitCode> {
    build(root)?;
    let passed = fuzz_with(root, &PythonTools::ready(root)?, fuzz)?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the committed document is valid OpenAPI 3.1.
pub fn validate(root: &Path) -> Result<bool> {
    tools::with_tools(root, |tools| {
        let mut command = tools.command("openapi-spec-validator");
        command.args(["--schema", "3.1.0"]).arg(root.join("docs").join("openapi.json"));
        Ok(command.status().context("start openapi-spec-validator")?.success())
    })
}

/// A short run with a fixed seed, on the server that the tests have built.
pub fn fuzz_briefly(root: &Path) -> Result<bool> {
    if !binary(root).exists() {
        build(root)?;
    }
    tools::with_tools(root, |tools| fuzz_with(root, tools, &Fuzz::QUICK))
}

fn binary(root: &Path) -> PathBuf {
    tools::target_folder(root).join("debug").join("punctual")
}

fn build(root: &Path) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--package", "punctual"]).current_dir(root);
    if !command.status().context("start cargo build")?.success() {
        bail!("the server cannot be built");
    }
    Ok(())
}

fn fuzz_with(root: &Path, tools: &PythonTools, fuzz: &Fuzz) -> Result<bool> {
    let mut passed = true;
    for role in fuzz.roles {
        let (seed, examples) = (fuzz.seed, fuzz.examples);
        println!("role {role}, seed {seed}, at most {examples} examples per operation and phase");
        // A separate server, because some requests rotate and revoke tokens.
        let server = FuzzedServer::start(root)?;
        passed &= fuzz_as(root, tools, fuzz, &server, &server.token_of(root, role)?)?;
        server.still_lives()?;
    }
    Ok(passed)
}

fn fuzz_as(
    root: &Path,
    tools: &PythonTools,
    fuzz: &Fuzz,
    server: &FuzzedServer,
    token: &str,
) -> Result<bool> {
    let mut command = tools.command("schemathesis");
    command
        .current_dir(&server.folder)
        .arg("--config-file")
        .arg(root.join("xtask").join("schemathesis.toml"))
        .args(["--no-color", "run"])
        .args(["--max-examples", &fuzz.examples.to_string(), "--seed", &fuzz.seed.to_string()])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .arg(format!("http://{}/openapi.json", server.address))
        .env("PYTHONWARNINGS", "ignore");
    Ok(command.status().context("start schemathesis")?.success())
}

/// A dedicated server for the fuzzer: a free port, and a temporary folder.
struct FuzzedServer {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl FuzzedServer {
    fn start(root: &Path) -> Result<Self> {
        let folder = tools::target_folder(root).join("tools").join(format!("fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let data = folder.join("data");
        let mut child = Command::new(binary(root))
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--data-dir"])
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .context("start the server")?;
        let mut greeting = String::new();
        let stdout = child.stdout.as_mut().context("the server has no output")?;
        BufReader::new(stdout).read_line(&mut greeting)?;
        let address = greeting.trim().rsplit("http://").next().unwrap_or_default().to_owned();
        let server = FuzzedServer { child, address, folder };
        if !data.join("admin.token").exists() {
            bail!("the server did not start: {greeting:?}");
        }
        Ok(server)
    }

    /// A new token with this role.
    fn token_of(&self, root: &Path, role: &str) -> Result<String> {
        let output = Command::new(binary(root))
            .args(["token", "create", &format!("fuzz-{role}"), "--role", role, "-o", "json", "--data-dir"])
            .arg(self.folder.join("data"))
            .output()
            .context("start punctual token create")?;
        let created: serde_json::Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("no token: {}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(created["secret"].as_str().context("a token without a secret")?.to_owned())
    }

    /// No request may have ended it.
    fn still_lives(mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server exited: {status}"),
        }
    }
}

impl Drop for FuzzedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_and_seed_can_be_chosen() {
        let fuzz = fuzz_arguments(&["--cases", "72000", "--seed", "7"]).unwrap();
        assert_eq!((fuzz.examples, fuzz.seed, fuzz.roles.len()), (200, 7, 5));
        assert_eq!(fuzz_arguments(&["--cases", "1"]).unwrap().examples, 1);
        assert!(fuzz_arguments(&["--cases"]).is_err());
        assert!(fuzz_arguments(&["--case", "1"]).is_err());
    }
}
