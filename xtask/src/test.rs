//! `cargo xtask test`: the one command that says whether a change may go in.

use crate::services::{Running, Service};
use crate::{api, check, tools};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How much is tested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What every change must pass.
    Quick,
    /// Also what takes longer and seldom breaks.
    Full,
}

/// Runs every step, the later ones too when an earlier one fails, so that one run shows all there is to mend.
pub fn run(root: &Path, extent: Extent) -> Result<ExitCode> {
    let mut results = Vec::new();
    for step in steps(extent) {
        println!("\n== {}", step.name);
        let started = Instant::now();
        let passed = step.run(root).unwrap_or_else(|error| {
            println!("{error:#}");
            false
        });
        let result = StepResult { name: step.name, passed, took: started.elapsed() };
        println!("== {result}");
        results.push(result);
    }
    println!("\n{}", summary(&results));
    Ok(if results.iter().all(|result| result.passed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Step {
    name: &'static str,
    action: Action,
}

enum Action {
    /// The rules of [`check`], in this process.
    Check,
    /// Something of xtask's own that passes or not.
    Own(fn(&Path) -> Result<bool>),
    /// All tests, with servers to test against; by what, is known only once the tools are there.
    Tests(Vec<Service>),
    Cargo {
        arguments: Vec<&'static str>,
        environment: Vec<(&'static str, &'static str)>,
    },
}

/// Adapters that nobody has to build who does not need them, and that are tested none the less.
const FEATURES: &str = "--features=punctual-store/postgres,punctual-store/mysql";

/// What the tests run against. MySQL takes longest to get and to start, and shares its adapter with MariaDB.
fn services(extent: Extent) -> Vec<Service> {
    match extent {
        Extent::Quick => vec![Service::Postgres, Service::MariaDb],
        Extent::Full => vec![Service::Postgres, Service::MariaDb, Service::MySql],
    }
}

/// The steps in order, the quick ones first.
fn steps(extent: Extent) -> Vec<Step> {
    let mut steps = vec![
        Step { name: "tools", action: Action::Own(tools::install) },
        Step::cargo("format", &["fmt", "--all", "--check"]),
        Step { name: "rules", action: Action::Check },
        Step::cargo("lints", &["clippy", "--workspace", "--all-targets", FEATURES, "--", "-D", "warnings"]),
        Step { name: "api document", action: Action::Own(api::validate) },
        Step { name: "tests", action: Action::Tests(services(extent)) },
        Step { name: "api fuzzing", action: Action::Own(api::fuzz_briefly) },
    ];
    if extent == Extent::Full {
        steps.push(Step::cargo("documented examples", &["test", "--workspace", "--doc", FEATURES]));
        steps.push(Step {
            name: "documentation",
            action: Action::Cargo {
                arguments: vec!["doc", "--workspace", "--no-deps", FEATURES],
                environment: vec![("RUSTDOCFLAGS", "-D warnings")],
            },
        });
    }
    steps
}

fn tests_arguments(has_nextest: bool, is_ci: bool) -> Vec<&'static str> {
    match (has_nextest, is_ci) {
        (true, true) => vec!["nextest", "run", "--workspace", FEATURES, "--profile", "ci"],
        (true, false) => vec!["nextest", "run", "--workspace", FEATURES],
        (false, _) => vec!["test", "--workspace", "--all-targets", "--no-fail-fast", FEATURES],
    }
}

fn is_nextest_installed() -> bool {
    let mut command = Command::new(cargo());
    command.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The cargo that started us, so that a chosen toolchain stays chosen.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

impl Step {
    fn cargo(name: &'static str, arguments: &[&'static str]) -> Self {
        Step { name, action: Action::Cargo { arguments: arguments.to_vec(), environment: vec![] } }
    }

    fn run(&self, root: &Path) -> Result<bool> {
        match &self.action {
            Action::Check => Ok(check::run(root)? == ExitCode::SUCCESS),
            Action::Own(check) => check(root),
            Action::Tests(services) => run_tests(root, services),
            Action::Cargo { arguments, environment } => run_cargo(root, arguments, environment),
        }
    }
}

/// Builds the tests before there are servers, so that these need not wait for the compiler.
fn run_tests(root: &Path, services: &[Service]) -> Result<bool> {
    let is_ci = std::env::var_os("CI").is_some();
    let arguments = tests_arguments(is_nextest_installed(), is_ci);
    if !run_cargo(root, &[&arguments[..], &["--no-run"]].concat(), &[])? {
        return Ok(false);
    }
    let running = Running::start(root, services)?;
    running.describe(&mut std::io::stderr())?;
    Ok(running.run(&mut cargo_command(root, &arguments)?)?.success())
}

fn run_cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<bool> {
    let mut command = cargo_command(root, arguments)?;
    command.envs(environment.iter().copied());
    let status = command.status().with_context(|| format!("start cargo {}", arguments.join(" ")))?;
    Ok(status.success())
}

fn cargo_command(root: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(cargo());
    command.args(arguments).current_dir(root).env("PATH", tools::search_path(root)?);
    Ok(command)
}

struct StepResult {
    name: &'static str,
    passed: bool,
    took: Duration,
}

impl std::fmt::Display for StepResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.passed { "passed" } else { "FAILED" };
        write!(f, "{} {verdict} in {:.1} s", self.name, self.took.as_secs_f64())
    }
}

fn summary(results: &[StepResult]) -> String {
    let failed: Vec<&str> =
        results.iter().filter(|result| !result.passed).map(|result| result.name).collect();
    let total: Duration = results.iter().map(|result| result.took).sum();
    let verdict = if failed.is_empty() {
        format!("all {} steps passed", results.len())
    } else {
        format!("{} of {} steps FAILED: {}", failed.len(), results.len(), failed.join(", "))
    };
    format!("{verdict} in {:.1} s", total.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_failed() {
        let result = |name, passed| StepResult { name, passed, took: Duration::from_millis(600) };
        assert_eq!(summary(&[result("lints", true), result("tests", true)]), "all 2 steps passed in 1.2 s");
        assert_eq!(
            summary(&[result("lints", false), result("tests", true)]),
            "1 of 2 steps FAILED: lints in 1.2 s"
        );
    }

    #[test]
    fn every_adapter_is_linted_and_tested() {
        for arguments in
            [tests_arguments(true, true), tests_arguments(true, false), tests_arguments(false, true)]
        {
            assert!(arguments.contains(&FEATURES), "{arguments:?}");
        }
        let is_linted = |step: &Step| matches!(&step.action, Action::Cargo { arguments, .. } if arguments.contains(&FEATURES));
        assert!(steps(Extent::Quick).iter().any(|step| step.name == "lints" && is_linted(step)));
    }

    #[test]
    fn mysql_belongs_to_the_full_extent() {
        assert!(!services(Extent::Quick).contains(&Service::MySql));
        assert!(services(Extent::Full).contains(&Service::MySql));
    }

    #[test]
    fn without_nextest_the_tests_still_run() {
        assert_eq!(tests_arguments(false, true)[0], "test");
        assert!(tests_arguments(true, true).ends_with(&["--profile", "ci"]));
    }
}
