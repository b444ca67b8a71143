//! Which crate may depend on which: everything knows core, adapters do not know each other, only `node` and the
//! simulator combine them.

use super::Violation;
use anyhow::{Context, Result};
use serde::Deserialize;

const RULE: &str = "crate edges";

/// Each crate with its allowed dependencies, of any kind. The crate itself is not listed: its tests may
/// enable a feature that way.
const ALLOWED: [(&str, &[&str]); 22] = [
    ("punctual-core", &[]),
    ("punctual-tls", &["punctual-core"]),
    ("punctual-store", &["punctual-core", "punctual-tls"]),
    ("punctual-coordination", &["punctual-core", "punctual-tls"]),
    // Its tests cut connections with the fault proxy.
    ("punctual-queue", &["punctual-core", "punctual-link", "punctual-tls"]),
    ("punctual-blobs", &["punctual-core", "punctual-tls"]),
    // The fault proxy: forwards bytes for benchmarks and the chaos suite.
    ("punctual-link", &[]),
    ("punctual-test-servers", &[]),
    ("punctual-engine", &["punctual-core"]),
    // The client for targets that users choose, and the channels of notifications.
    ("punctual-outbound", &["punctual-core", "punctual-tls"]),
    ("punctual-worker", &["punctual-core", "punctual-outbound"]),
    // The client's optional worker is the one that the server runs (decision 0008).
    ("punctual-client", &["punctual-core", "punctual-worker"]),
    ("punctual-api", &["punctual-core", "punctual-engine", "punctual-client"]),
    ("punctual-shim", &["punctual-core", "punctual-worker"]),
    // The types of some settings belong to the crates that they configure.
    (
        "punctual-config",
        &[
            "punctual-core",
            "punctual-blobs",
            "punctual-client",
            "punctual-coordination",
            "punctual-queue",
            "punctual-shim",
            "punctual-worker",
        ],
    ),
    ("punctual-cli", &["punctual-core", "punctual-client", "punctual-config"]),
    (
        "punctual-node",
        &[
            "punctual-core",
            "punctual-blobs",
            "punctual-store",
            "punctual-coordination",
            "punctual-queue",
            "punctual-engine",
            "punctual-outbound",
            "punctual-tls",
            "punctual-worker",
            "punctual-client",
            "punctual-api",
            "punctual-shim",
            "punctual-config",
        ],
    ),
    (
        "punctual-bench",
        &[
            "punctual-core",
            "punctual-store",
            "punctual-link",
            "punctual-engine",
            "punctual-worker",
            "punctual-client",
            "punctual-api",
            "punctual-config",
            "punctual-node",
        ],
    ),
    (
        "punctual",
        &[
            "punctual-core",
            "punctual-store",
            "punctual-worker",
            "punctual-client",
            "punctual-shim",
            "punctual-config",
            "punctual-cli",
            "punctual-node",
            "punctual-bench",
            // Its tests use them.
            "punctual-coordination",
            "punctual-engine",
            "punctual-queue",
        ],
    ),
    (
        "punctual-sim",
        &["punctual-core", "punctual-coordination", "punctual-engine", "punctual-worker", "punctual-store"],
    ),
    // It sees a cluster as its users do.
    ("punctual-chaos", &["punctual-core", "punctual-client", "punctual-link", "punctual-test-servers"]),
    ("xtask", &[]),
];

/// Starts servers for tests. The tests of any crate may use it, but no product code.
const FOR_TESTS: &str = "punctual-test-servers";

/// The feature of core that breaks rules on purpose, and the crates that may enable it.
const DEFECTS_FEATURE: &str = "planted-defects";
const MAY_PLANT_DEFECTS: [&str; 2] = ["punctual-sim", "punctual-core"];

/// The crate that uses databases outside tests, and its drivers.
const KNOWS_DATABASES: &str = "punctual-store";
const DRIVERS: [&str; 5] =
    ["deadpool-postgres", "mysql_async", "rusqlite", "tokio-postgres", "tokio-postgres-rustls"];

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<CrateDependency>,
}

#[derive(Deserialize)]
struct CrateDependency {
    name: String,
    features: Vec<String>,
    /// `dev`, `build`, or `None` for product dependencies.
    #[serde(default)]
    kind: Option<String>,
}

/// Checks the output of `cargo metadata --no-deps`.
pub fn check(metadata: &str) -> Result<Vec<Violation>> {
    let metadata: CargoMetadata = serde_json::from_str(metadata).context("read cargo metadata")?;
    let mut violations = check_edges(&metadata);
    violations.extend(unknown_crates(&metadata));
    Ok(violations)
}

fn check_edges(metadata: &CargoMetadata) -> Vec<Violation> {
    metadata.packages.iter().flat_map(|package| check_package(package, metadata)).collect()
}

/// Names in the table that are no crates: a rule about them checks nothing.
fn unknown_crates(metadata: &CargoMetadata) -> Vec<Violation> {
    let is_known = |name: &&str| metadata.packages.iter().any(|package| package.name == **name);
    let names = ALLOWED.iter().flat_map(|(name, allowed)| std::iter::once(name).chain(*allowed));
    let unknown: std::collections::BTreeSet<&&str> = names.filter(|name| !is_known(name)).collect();
    let violation = |name: &&str| Violation {
        path: "xtask/src/check/edges.rs".to_owned(),
        line: 1,
        rule: RULE,
        advice: format!("remove {name}: there is no such crate"),
    };
    unknown.into_iter().map(violation).collect()
}

fn check_package(package: &Package, metadata: &CargoMetadata) -> Vec<Violation> {
    let manifest = match package.name.strip_prefix("punctual") {
        Some(rest) => format!("crates/{}/Cargo.toml", rest.strip_prefix('-').unwrap_or("punctual")),
        None => format!("{}/Cargo.toml", package.name),
    };
    let violation = |advice| Violation { path: manifest.clone(), line: 1, rule: RULE, advice };
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
        return vec![violation(format!(
            "add {} with its allowed dependencies to xtask/src/check/edges.rs",
            package.name
        ))];
    };
    let mut violations = Vec::new();
    for dependency in &package.dependencies {
        let is_ours = metadata.packages.iter().any(|other| other.name == dependency.name);
        let is_itself = dependency.name == package.name;
        let is_for_tests = dependency.name == FOR_TESTS && dependency.kind.as_deref() == Some("dev");
        if is_ours && !is_itself && !is_for_tests && !allowed.contains(&dependency.name.as_str()) {
            violations.push(violation(format!(
                "{} must not depend on {}: move shared code into core, or connect them in the binary",
                package.name, dependency.name
            )));
        }
        violations.extend(misplaced_driver(package, dependency).map(violation));
        let plants = dependency.features.iter().any(|feature| feature == DEFECTS_FEATURE);
        if plants && !MAY_PLANT_DEFECTS.contains(&package.name.as_str()) {
            violations.push(violation(format!(
                "{} must not enable {DEFECTS_FEATURE}: it would get into the binary that users run",
                package.name
            )));
        }
    }
    violations
}

fn misplaced_driver(package: &Package, dependency: &CrateDependency) -> Option<String> {
    let name = dependency.name.as_str();
    let is_misplaced =
        dependency.kind.is_none() && DRIVERS.contains(&name) && package.name != KNOWS_DATABASES;
    is_misplaced.then(|| {
        format!("{} must not depend on {name}: only {KNOWS_DATABASES} accesses databases", package.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(packages: &str) -> Vec<String> {
        check_edges(&metadata(packages)).into_iter().map(|violation| violation.to_string()).collect()
    }

    fn metadata(packages: &str) -> CargoMetadata {
        serde_json::from_str(&format!("{{\"packages\": [{packages}]}}")).unwrap()
    }

    fn package(name: &str, dependencies: &str) -> String {
        format!("{{\"name\": \"{name}\", \"dependencies\": [{dependencies}]}}")
    }

    fn dependency(name: &str, features: &str) -> String {
        format!("{{\"name\": \"{name}\", \"features\": [{features}]}}")
    }

    #[test]
    fn allowed_dependencies_pass() {
        let core = package("punctual-core", &dependency("punctual-core", "\"planted-defects\""));
        let store =
            package("punctual-store", &[dependency("punctual-core", ""), dependency("serde", "")].join(","));
        let sim = package("punctual-sim", &dependency("punctual-store", ""));
        assert_eq!(advice(&[core, store, sim].join(",")), [""; 0]);
    }

    #[test]
    fn any_other_dependency_is_reported() {
        let packages =
            [package("punctual-worker", &dependency("punctual-engine", "")), package("punctual-engine", "")];
        let advice = advice(&packages.join(","));
        assert_eq!(advice.len(), 1);
        assert!(advice[0].starts_with(
            "crates/worker/Cargo.toml:1: crate edges: punctual-worker must not depend on punctual-engine"
        ));
    }

    #[test]
    fn servers_for_tests_are_for_tests_only() {
        let store = |kind: &str| {
            let dependency = format!("{{\"name\": \"{FOR_TESTS}\", \"features\": [], \"kind\": {kind}}}");
            advice(&[package("punctual-store", &dependency), package(FOR_TESTS, "")].join(","))
        };
        assert_eq!(store("\"dev\""), [""; 0]);
        assert!(store("null")[0].contains("punctual-store must not depend on punctual-test-servers"));
    }

    #[test]
    fn the_binary_does_not_know_the_simulator() {
        let packages = [package("punctual", &dependency("punctual-sim", "")), package("punctual-sim", "")];
        assert!(advice(&packages.join(","))[0].contains("punctual must not depend on punctual-sim"));
    }

    #[test]
    fn only_the_simulator_breaks_rules_on_purpose() {
        let packages = [
            package("punctual", &dependency("punctual-core", "\"planted-defects\"")),
            package("punctual-core", ""),
        ];
        assert!(advice(&packages.join(","))[0].contains("must not enable planted-defects"));
    }

    #[test]
    fn only_the_store_depends_on_database_drivers() {
        let of_kind = |name, kind| format!("{{\"name\": \"{name}\", \"features\": [], \"kind\": {kind}}}");
        let dependencies = [of_kind("rusqlite", "null"), of_kind("tokio-postgres", "null")];
        assert_eq!(advice(&package("punctual-store", &dependencies.join(","))), [""; 0]);
        let elsewhere = of_kind("tokio-postgres", "null");
        assert!(
            advice(&package("punctual", &elsewhere))[0]
                .contains("punctual must not depend on tokio-postgres")
        );
        let in_tests = of_kind("tokio-postgres", "\"dev\"");
        assert_eq!(advice(&package("punctual", &in_tests)), [""; 0]);
    }

    #[test]
    fn a_name_in_the_table_is_that_of_a_crate() {
        let packages: Vec<String> = ALLOWED.iter().map(|(name, _)| package(name, "")).collect();
        assert_eq!(unknown_crates(&metadata(&packages.join(","))), []);
        let without_core = unknown_crates(&metadata(&packages[1..].join(",")));
        assert_eq!(without_core.len(), 1);
        assert!(without_core[0].to_string().contains("remove punctual-core: there is no such crate"));
    }

    #[test]
    fn a_new_crate_needs_a_line_in_the_table() {
        assert!(advice(&package("punctual-extra", ""))[0].contains("to xtask/src/check/edges.rs"));
    }
}
