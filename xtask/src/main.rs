//! Development commands, run with `cargo xtask`. Knows the layout of the repository and none of its crates.

mod api;
mod chaos;
mod check;
mod dashboard_types;
mod fresh;
mod package;
mod services;
mod test;
mod tools;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// For all commands whose modules have none of their own.
const USAGE: &str = "\
cargo xtask check           the mechanical rules of the repository, a line per violation
cargo xtask dashboard-speed --server URL --token-file FILE [--jobs N] [--minutes N]
                            measures the dashboard of a running server in a browser: see docs/performance.md
cargo xtask dashboard-types the types of the dashboard, with the answers of the API as docs/openapi.json describes them
cargo xtask fuzz-api [--cases N] [--seed N]
                            sends generated requests to its own server and compares the responses with docs/openapi.json
cargo xtask test [--full]   all checks: format, rules, lints, tests; --full adds MySQL, failover of database clusters, and the
                            documentation
cargo xtask tools           downloads the programs that the tests need and this machine lacks into target/tools
";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["chaos", ref rest @ ..] => chaos::run(&root(), rest),
        ["check"] => check::run(&root()),
        ["dashboard-speed", ref rest @ ..] => {
            tools::measure_dashboard(&root(), rest)?;
            Ok(ExitCode::SUCCESS)
        }
        ["dashboard-types"] => {
            let fits = dashboard_types::check(&root())?;
            Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        ["fresh", ref rest @ ..] => fresh::run(&root(), rest),
        ["fuzz-api", ref rest @ ..] => api::run_fuzz(&root(), &api::fuzz_arguments(&root(), rest)?),
        ["package"] => {
            package::run(&root())?;
            Ok(ExitCode::SUCCESS)
        }
        ["services", ref rest @ ..] => services::run(&root(), rest),
        ["test"] => test::run(&root(), test::Extent::Quick),
        ["test", "--full"] => test::run(&root(), test::Extent::Full),
        ["tools"] => {
            let has_all = tools::install(&root())? && tools::PythonTools::ready(&root()).map(|_| true)?;
            Ok(if has_all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        [] | ["help" | "--help" | "-h"] => {
            println!("{}", usage());
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("unknown command: {}\n\n{}", words.join(" "), usage()),
    }
}

fn usage() -> String {
    [USAGE, package::USAGE, chaos::USAGE, fresh::USAGE, services::USAGE].join("\n")
}

/// The root of the repository, directly above xtask.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}
