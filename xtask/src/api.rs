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
    /// The roles whose requests also cover the boundaries of all parameters, which takes many cases. All other roles send
    /// the rest.
    pub covering: &'static [&'static str],
}

const ROLES: [&str; 5] = ["admin", "operator", "submitter", "viewer", "worker"];

impl Fuzz {
    /// The run that is part of every test: the same requests each time.
    const QUICK: Fuzz = Fuzz { examples: 2, seed: 1, covering: &["admin", "submitter"] };
    const FULL: Fuzz = Fuzz { covering: &ROLES, ..Fuzz::QUICK };

    /// Cases of one role per operation, as Schemathesis 4.32 generates them: at least these, and more for each
    /// example. Each run prints how many there were.
    const CASES_AT_LEAST: f64 = 4.0;
    const CASES_PER_EXAMPLE: f64 = 0.8;
    const CASES_OF_COVERAGE: f64 = 103.0;

    /// Approximately this many cases in total, divided among all roles. They cover all boundaries if that leaves as
    /// many cases for the rest.
    pub fn about(cases: u32, seed: u64, operations: usize) -> Self {
        let per_operation = f64::from(cases) / ROLES.len() as f64 / operations as f64;
        let (covering, rest): (&[&str], f64) = if per_operation >= 2.0 * Fuzz::CASES_OF_COVERAGE {
            (&ROLES, per_operation - Fuzz::CASES_OF_COVERAGE)
        } else {
            (&[], per_operation)
        };
        let examples = (rest - Fuzz::CASES_AT_LEAST) / Fuzz::CASES_PER_EXAMPLE;
        Fuzz { examples: (examples.round() as u32).max(1), seed, covering }
    }
}

/// How many operations the committed document has.
fn operations(root: &Path) -> Result<usize> {
    let text =
        std::fs::read_to_string(root.join("docs").join("openapi.json")).context("read the document")?;
    let document: serde_json::Value = serde_json::from_str(&text)?;
    let paths = document["paths"].as_object().context("the document has no paths")?;
    let methods = ["get", "post", "put", "patch", "delete"];
    Ok(paths.values().map(|path| methods.iter().filter(|method| path.get(*method).is_some()).count()).sum())
}

/// Reads `--cases N` and `--seed N`.
pub fn fuzz_arguments(root: &Path, words: &[&str]) -> Result<Fuzz> {
    let (mut cases, mut seed) = (10_000, u64::from(std::process::id()));
    for pair in words.chunks(2) {
        match pair {
            ["--cases", number] => cases = number.parse().context("--cases takes a number")?,
            ["--seed", number] => seed = number.parse().context("--seed takes a number")?,
            _ => bail!("fuzz-api takes --cases N and --seed N, not {}", pair.join(" ")),
        }
    }
    Ok(Fuzz::about(cases, seed, operations(root)?))
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
    fuzz_built(root, &Fuzz::QUICK)
}

/// The same, with the boundaries of all parameters for every role.
pub fn fuzz_fully(root: &Path) -> Result<bool> {
    fuzz_built(root, &Fuzz::FULL)
}

fn fuzz_built(root: &Path, fuzz: &Fuzz) -> Result<bool> {
    if !binary(root).exists() {
        build(root)?;
    }
    tools::with_tools(root, |tools| fuzz_with(root, tools, fuzz))
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
    let (mut passed, mut cases) = (true, 0);
    for role in ROLES {
        let (seed, examples) = (fuzz.seed, fuzz.examples);
        println!("role {role}, seed {seed}, at most {examples} examples per operation and phase");
        // A separate server, because some requests rotate and revoke tokens.
        let server = FuzzedServer::start(root)?;
        let run = fuzz_as(root, tools, fuzz, &server, role)?;
        server.still_lives()?;
        println!("role {role}: {} cases", run.cases);
        passed &= run.passed;
        cases += run.cases;
    }
    println!("{cases} cases with {} roles", ROLES.len());
    Ok(passed)
}

/// The run of one role.
struct FuzzRun {
    passed: bool,
    cases: u64,
}

fn fuzz_as(
    root: &Path,
    tools: &PythonTools,
    fuzz: &Fuzz,
    server: &FuzzedServer,
    role: &str,
) -> Result<FuzzRun> {
    let phases = if fuzz.covering.contains(&role) {
        "examples,coverage,fuzzing,stateful"
    } else {
        "examples,fuzzing,stateful"
    };
    let mut command = tools.command("schemathesis");
    command
        .current_dir(&server.folder)
        .arg("--config-file")
        .arg(root.join("xtask").join("schemathesis.toml"))
        .args(["--no-color", "run", "--phases", phases])
        .args(["--max-examples", &fuzz.examples.to_string(), "--seed", &fuzz.seed.to_string()])
        .args(["--header", &format!("Authorization: Bearer {}", server.token_of(root, role)?)])
        .arg(format!("http://{}/openapi.json", server.address))
        .env("PYTHONWARNINGS", "ignore")
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("start schemathesis")?;
    let mut cases = None;
    for line in BufReader::new(child.stdout.take().context("schemathesis has no output")?).lines() {
        let line = line?;
        println!("{line}");
        cases = generated(&line).or(cases);
    }
    let passed = child.wait()?.success();
    Ok(FuzzRun { passed, cases: cases.context("schemathesis does not say how many cases it generated")? })
}

/// The number in a line such as `586 generated, 586 passed, 194 skipped`.
fn generated(line: &str) -> Option<u64> {
    line.trim().split_once(" generated")?.0.parse().ok()
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
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |words: &[&str]| fuzz_arguments(root, words);
        assert!(operations(root).unwrap() > 100);
        let fuzz = read(&["--cases", "10000", "--seed", "7"]).unwrap();
        assert_eq!(fuzz.seed, 7);
        assert_eq!(read(&["--cases", "1"]).unwrap().examples, 1);
        assert!(read(&["--cases"]).is_err());
        assert!(read(&["--case", "1"]).is_err());
    }

    #[test]
    fn about_as_many_cases_are_generated_as_were_asked_for() {
        for (cases, examples, covers) in [(10_000, 14, false), (100_000, 187, false), (200_000, 251, true)] {
            let fuzz = Fuzz::about(cases, 1, 130);
            assert_eq!((fuzz.examples, !fuzz.covering.is_empty()), (examples, covers), "{cases}");
        }
        assert_eq!(generated("  586 generated, 586 passed, 194 skipped"), Some(586));
        assert_eq!(generated("Warnings generated"), None);
    }
}
