//! `cargo xtask test`: the one command that decides whether a change may be merged.

use crate::services::{RunningServers, Service};
use crate::{api, chaos, check, dashboard_types, tools};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How much is tested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What every change must pass.
    Quick,
    /// Also tests that take longer and seldom fail.
    Full,
}

/// Runs every step, the later ones even when an earlier one fails, so that one run shows everything to fix.
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
        if step.is_needed_by_others && !passed {
            println!("the other steps need the missing tools");
            break;
        }
    }
    println!("\n{}", summary(&results));
    Ok(if results.iter().all(|result| result.passed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Step {
    name: &'static str,
    action: Action,
    /// If it fails, the other steps do not run.
    is_needed_by_others: bool,
}

enum Action {
    /// The rules of [`check`], in this process.
    Check,
    /// A check of xtask itself that passes or fails.
    Own(fn(&Path) -> Result<bool>),
    /// Tests with servers; the test runner is known only after the tools are installed.
    Tests(Extent),
    Cargo {
        arguments: Vec<&'static str>,
        environment: Vec<(&'static str, &'static str)>,
    },
}

/// The services for the tests. MySQL takes longest to download and start, and shares its adapter with
/// MariaDB. Clusters take the memory of several servers, and their tests wait until servers notice that
/// another one is gone.
fn services(extent: Extent) -> Vec<Service> {
    match extent {
        Extent::Quick => {
            let databases = [Service::Postgres, Service::MariaDb];
            [
                &databases[..],
                &[
                    Service::Redis,
                    Service::Nats,
                    Service::RabbitMq,
                    Service::Etcd,
                    Service::ZooKeeper,
                    Service::Oidc,
                    Service::Receivers,
                    Service::S3,
                ],
            ]
            .concat()
        }
        // The tests that break etcd and ZooKeeper ensembles start them.
        Extent::Full => {
            [services(Extent::Quick), vec![Service::MySql, Service::Replica, Service::Galera]].concat()
        }
    }
}

/// Modules whose tests need servers that only the full extent starts, in any crate. They fail without them, so
/// the quick extent excludes them by name, and the test runner counts them as skipped.
const FULL_MODULES: [&str; 5] = ["ensemble", "galera", "mysql_server", "promotion", "replica"];

/// Set for tests that run on every server of a kind: none of the servers may be missing.
const FULL: &str = "PUNCTUAL_TEST_FULL";

fn without_full_modules() -> [String; 2] {
    ["-E".to_owned(), format!("not test(/(^|::)({})::/)", FULL_MODULES.join("|"))]
}

/// The steps in order, the quick ones first.
fn steps(extent: Extent) -> Vec<Step> {
    let mut steps = vec![
        Step { is_needed_by_others: true, ..Step::own("tools", tools::install) },
        Step::cargo("format", &["fmt", "--all", "--check"]),
        Step::new("rules", Action::Check),
        Step::cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Step::own("api document", api::validate),
        Step::own("dashboard types", dashboard_types::check),
        Step::new("tests", Action::Tests(extent)),
        Step::new("kafka", kafka()),
        Step::own("api fuzzing", if extent == Extent::Full { api::fuzz_fully } else { api::fuzz_briefly }),
        Step::own("chaos", chaos::short),
    ];
    if extent == Extent::Full {
        steps.push(Step::cargo("documented examples", &["test", "--workspace", "--doc"]));
        let documentation = Action::Cargo {
            arguments: vec!["doc", "--workspace", "--no-deps", "--document-private-items"],
            environment: vec![("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")],
        };
        steps.push(Step::new("documentation", documentation));
    }
    steps
}

/// librdkafka's C++ library is left out, so that a machine without a C++ compiler is enough.
pub const KAFKA_VARIABLES: [(&str, &str); 2] = [("CXX", "cc"), ("GNUMAKEFLAGS", "LIBSUBDIRS=src")];

/// Few users need Kafka, and its C library takes longer to compile than the crate that uses it. The brokers are part of
/// the tests.
fn kafka() -> Action {
    let words = ["test", "-p", "punctual-queue", "--features", "kafka", "--lib", "--", "kafka", "options"];
    Action::Cargo { arguments: words.to_vec(), environment: KAFKA_VARIABLES.to_vec() }
}

/// The arguments of cargo, and those after them.
fn tests_arguments(extent: Extent, has_nextest: bool, is_ci: bool) -> (Vec<String>, Vec<String>) {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (mut arguments, mut behind) = match (has_nextest, is_ci) {
        (true, true) => (words(&["nextest", "run", "--workspace", "--profile", "ci"]), vec![]),
        (true, false) => (words(&["nextest", "run", "--workspace"]), vec![]),
        (false, _) => (words(&["test", "--workspace", "--all-targets", "--no-fail-fast"]), words(&["--"])),
    };
    if extent == Extent::Quick && has_nextest {
        arguments.extend(without_full_modules());
    } else if extent == Extent::Quick {
        behind.extend(FULL_MODULES.map(|module| format!("--skip={module}::")));
    }
    (arguments, behind)
}

/// The cargo that started this process, so that a selected toolchain stays selected.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    remove_package_variables(&mut command);
    command
}

/// Removes what `cargo run` has set about this package. `ring` is compiled again whenever one of them has changed since the
/// last build, and with it most of the workspace.
pub fn remove_package_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
}

impl Step {
    fn new(name: &'static str, action: Action) -> Self {
        Step { name, action, is_needed_by_others: false }
    }

    fn own(name: &'static str, action: fn(&Path) -> Result<bool>) -> Self {
        Step::new(name, Action::Own(action))
    }

    fn cargo(name: &'static str, arguments: &[&'static str]) -> Self {
        Step::new(name, Action::Cargo { arguments: arguments.to_vec(), environment: vec![] })
    }

    fn run(&self, root: &Path) -> Result<bool> {
        match &self.action {
            Action::Check => Ok(check::run(root)? == ExitCode::SUCCESS),
            Action::Own(check) => check(root),
            Action::Tests(extent) => run_tests(root, *extent),
            Action::Cargo { arguments, environment } => run_cargo(root, arguments, environment),
        }
    }
}

/// Builds the tests before the servers start, so that the servers need not wait for the compiler.
fn run_tests(root: &Path, extent: Extent) -> Result<bool> {
    let is_ci = std::env::var_os("CI").is_some();
    let (arguments, behind) = tests_arguments(extent, tools::has_nextest(root)?, is_ci);
    let mut build: Vec<&str> = arguments.iter().map(String::as_str).collect();
    build.push("--no-run");
    if !run_cargo(root, &build, &[])? {
        return Ok(false);
    }
    let running = RunningServers::start(root, &services(extent))?;
    running.describe(&mut std::io::stderr())?;
    if extent == Extent::Quick {
        println!("tests of clusters and of MySQL ({}) run only with --full", FULL_MODULES.join(", "));
    }
    let all: Vec<&str> = arguments.iter().chain(&behind).map(String::as_str).collect();
    let mut command = cargo_command(root, &all)?;
    if extent == Extent::Full {
        command.env(FULL, "1");
    }
    Ok(running.run(&mut command)?.success())
}

fn run_cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<bool> {
    let mut command = cargo_command(root, arguments)?;
    command.envs(environment.iter().copied());
    let status = command.status().with_context(|| format!("start cargo {}", arguments.join(" ")))?;
    Ok(status.success())
}

fn cargo_command(root: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = cargo();
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
    fn the_summary_names_failed_steps() {
        let result = |name, passed| StepResult { name, passed, took: Duration::from_millis(600) };
        assert_eq!(summary(&[result("lints", true), result("tests", true)]), "all 2 steps passed in 1.2 s");
        assert_eq!(
            summary(&[result("lints", false), result("tests", true)]),
            "1 of 2 steps FAILED: lints in 1.2 s"
        );
    }

    #[test]
    fn every_change_meets_every_kind_of_fault() {
        for extent in [Extent::Quick, Extent::Full] {
            assert!(steps(extent).iter().any(|step| step.name == "chaos"));
        }
    }

    #[test]
    fn mysql_and_clusters_belong_to_the_full_extent() {
        for service in [Service::MySql, Service::Replica, Service::Galera] {
            assert!(!services(Extent::Quick).contains(&service));
            assert!(services(Extent::Full).contains(&service));
        }
        for has_nextest in [true, false] {
            let all = |extent| {
                let (arguments, behind) = tests_arguments(extent, has_nextest, true);
                [arguments, behind].concat().join(" ")
            };
            assert!(all(Extent::Quick).contains("galera"), "{}", all(Extent::Quick));
            assert!(!all(Extent::Full).contains("galera"), "{}", all(Extent::Full));
        }
    }

    #[test]
    fn without_nextest_the_tests_still_run() {
        assert_eq!(tests_arguments(Extent::Full, false, true).0[0], "test");
        assert!(tests_arguments(Extent::Full, true, true).0.ends_with(&["--profile".into(), "ci".into()]));
    }
}
