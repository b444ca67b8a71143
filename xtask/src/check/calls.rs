//! Which APIs code may use. Core, engine, worker and the store's unit of work run under the simulator, so
//! they get time, randomness and concurrency only through ports. SQL stays in the store and HTTP at the
//! edge, so that either can be replaced; `api` reaches data through use cases only, so that no route
//! bypasses their checks.

use super::Violation;
use super::source::{RustSource, find_words, used_paths};

/// Crates whose runs the simulator must be able to reproduce.
const SIMULATED: [&str; 3] = ["core", "engine", "worker"];
/// The part of the store that the simulator runs, without what only adapters of real servers use.
const SIMULATED_STORE: &str = "crates/store/src/unit_of_work/";
const ADAPTERS_CACHE: &str = "crates/store/src/unit_of_work/lane_cache.rs";
/// Crates that may use HTTP.
const SPEAK_HTTP: [&str; 7] = ["api", "blobs", "chaos", "client", "node", "outbound", "punctual"];
/// The only executor that uses HTTP; it is not part of the simulation.
const HTTP_EXECUTOR: &str = "crates/worker/src/http/";
/// etcd is reached through its HTTP gateway.
const ETCD_GATEWAY: &str = "crates/coordination/src/etcd/";

/// A word or path that simulated crates must not use, and the alternative.
struct ForbiddenWord {
    path: &'static str,
    instead: &'static str,
}

const FORBIDDEN: [ForbiddenWord; 17] = [
    ForbiddenWord { path: "std::time::Instant", instead: "take `Monotonic` from the Clock port" },
    ForbiddenWord { path: "std::time::SystemTime", instead: "take the store's clock or the Clock port" },
    ForbiddenWord { path: "Timestamp::now", instead: "take the store's clock or the Clock port" },
    ForbiddenWord { path: "Zoned::now", instead: "take the store's clock or the Clock port" },
    ForbiddenWord { path: "TimeZone::system", instead: "take the zone as a parameter: machines differ" },
    ForbiddenWord { path: "tokio::time", instead: "sleep through the Clock port" },
    ForbiddenWord { path: "tokio::spawn", instead: "spawn through the Spawn port" },
    ForbiddenWord { path: "tokio::task::spawn", instead: "spawn through the Spawn port" },
    ForbiddenWord { path: "tokio::task::spawn_blocking", instead: "spawn through the Spawn port" },
    ForbiddenWord { path: "std::thread", instead: "spawn through the Spawn port" },
    ForbiddenWord { path: "rand", instead: "draw from the Random port" },
    ForbiddenWord { path: "getrandom", instead: "draw from the Random port" },
    ForbiddenWord { path: "HashMap", instead: "use BTreeMap: its iteration order is the same in every run" },
    ForbiddenWord { path: "HashSet", instead: "use BTreeSet: its iteration order is the same in every run" },
    ForbiddenWord { path: "println!", instead: "use tracing; only the binary prints" },
    ForbiddenWord { path: "print!", instead: "use tracing; only the binary prints" },
    ForbiddenWord { path: "eprintln!", instead: "use tracing; only the binary prints" },
];
/// Begins like a forbidden path, but only reads the state of the current thread.
const HARMLESS: &str = "std::thread::panicking";

pub fn check(source: &RustSource) -> Vec<Violation> {
    if !source.path.starts_with("crates/") {
        return vec![];
    }
    let mut violations = Vec::new();
    let is_unit_of_work = source.path.starts_with(SIMULATED_STORE) && source.path != ADAPTERS_CACHE;
    if SIMULATED.contains(&source.crate_name()) || is_unit_of_work {
        violations.extend(unsimulable_calls(source));
        violations.extend(unfair_selects(source));
    }
    if source.crate_name() == "api" {
        violations.extend(store_in_api(source));
    }
    if source.crate_name() != "store" {
        violations.extend(sql_outside_the_store(source));
    }
    let is_adapter = [HTTP_EXECUTOR, ETCD_GATEWAY].iter().any(|folder| source.path.starts_with(folder));
    if !SPEAK_HTTP.contains(&source.crate_name()) && !is_adapter {
        violations.extend(http_inside(source));
    }
    violations
}

fn unsimulable_calls(source: &RustSource) -> Vec<Violation> {
    let code = &source.product_code;
    let used = used_paths(code);
    let mut violations = Vec::new();
    for ForbiddenWord { path, instead } in &FORBIDDEN {
        let mut places = find_words(code, path);
        // A crate's name is also an ordinary word; it counts only at the start of a path.
        if matches!(*path, "rand" | "getrandom") {
            places.retain(|at| code[at + path.len()..].starts_with("::"));
        }
        places.retain(|at| !code[*at..].starts_with(HARMLESS));
        let grouped = used.iter().filter(|used| names(&used.path, path) && used.path != HARMLESS);
        places.extend(grouped.map(|used| used.at));
        violations.extend(lines_once(source, places, "simulable", |_| format!("`{path}`: {instead}")));
    }
    violations
}

/// Whether a path in a `use` is this one, is below it, or renames it.
fn names(used: &str, path: &str) -> bool {
    used.strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with(" as "))
}

/// `select!` picks a random branch first unless it is `biased`.
fn unfair_selects(source: &RustSource) -> Vec<Violation> {
    let code = &source.product_code;
    let random = find_words(code, "select!").into_iter().filter(|at| {
        let body = code[at + "select!".len()..].trim_start().trim_start_matches(['{', '(']).trim_start();
        !body.starts_with("biased;")
    });
    let advice = "start the `select!` with `biased;`: a random order is not reproducible";
    random.map(|at| source.violation(at, "simulable", advice)).collect()
}

fn sql_outside_the_store(source: &RustSource) -> Vec<Violation> {
    let literals = &source.product_literals;
    let words = ["SELECT ", "INSERT INTO ", "DELETE FROM ", "CREATE TABLE ", "CREATE INDEX ", "PRAGMA "];
    let mut places: Vec<usize> = words.iter().flat_map(|word| find_words(literals, word)).collect();
    places.extend(find_words(literals, "UPDATE ").into_iter().filter(|at| {
        let statement = literals[*at..].split('\n').next().unwrap_or("");
        statement.contains(" SET ")
    }));
    lines_once(source, places, "sql", |_| {
        "SQL belongs in crates/store only: add a verb to the Store port".to_owned()
    })
}

/// Use cases check what their caller may do; a call of the store would bypass them.
fn store_in_api(source: &RustSource) -> Vec<Violation> {
    let code = &source.product_code;
    let words = ["Store", ".store()"];
    let places = words.iter().flat_map(|word| find_words(code, word)).collect();
    lines_once(source, places, "use cases", |_| {
        "api has no store: add a use case in crates/engine/src/use_cases".to_owned()
    })
}

fn http_inside(source: &RustSource) -> Vec<Violation> {
    let code = &source.product_code;
    let words = ["axum::", "hyper::", "hyper_util::", "reqwest::"];
    let places = words.iter().flat_map(|word| find_words(code, word)).collect();
    lines_once(source, places, "http", |_| {
        format!("HTTP belongs in {} only: pass plain types across the port", SPEAK_HTTP.join(", "))
    })
}

/// One violation per line, however often the line breaks the rule.
fn lines_once(
    source: &RustSource,
    places: Vec<usize>,
    rule: &'static str,
    advice: impl Fn(usize) -> String,
) -> Vec<Violation> {
    let mut violations: Vec<_> =
        places.into_iter().map(|at| source.violation(at, rule, advice(at))).collect();
    violations.sort();
    violations.dedup();
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that break a rule in this text at this path.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&RustSource::new(path, text)).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn simulated_crates_use_ports_for_all_side_effects() {
        for text in [
            "let t = std::time::Instant::now();",
            "use std::time::{Duration, SystemTime};",
            "use std::time::{Duration, Instant as Clock};",
            "let t = jiff::Timestamp::now();",
            "tokio::time::sleep(d).await;",
            "use tokio::{sync, time};",
            "tokio::spawn(f);",
            "use std::{fmt, thread};",
            "let x: u64 = rand::random();",
            "use rand::Rng;",
            "getrandom::fill(&mut bytes);",
            "let m: HashMap<u8, u8> = x;",
            "use std::collections::{BTreeMap, HashSet};",
            "println!(\"x\");",
        ] {
            assert_eq!(lines("crates/engine/src/a.rs", text), [1], "{text}");
            assert_eq!(lines("crates/punctual/src/a.rs", text), [0; 0], "{text}");
        }
    }

    #[test]
    fn comments_literals_tests_and_longer_words_pass() {
        for text in [
            "// Instant",
            "let t = \"println!\";",
            "#[cfg(test)]\nmod tests { use std::collections::HashMap; }",
            "let operand = MyHashMap::new(random);",
            "use tokio::sync::mpsc;",
            "use std::time::Duration;",
            "use jiff::Timestamp as Instant;",
            "if std::thread::panicking() {}",
            "let rand = 1;",
        ] {
            assert_eq!(lines("crates/worker/src/a.rs", text), [0; 0], "{text}");
        }
        assert_eq!(lines("crates/worker/tests/a.rs", "use std::thread;"), [0; 0]);
    }

    #[test]
    fn a_select_says_its_order() {
        let text = "tokio::select! {\n    biased;\n    x = a => {}\n}\ntokio::select! { x = a => {} }";
        assert_eq!(lines("crates/engine/src/a.rs", text), [5]);
        assert_eq!(lines("crates/punctual/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn sql_stays_in_the_store() {
        for text in ["q(\"SELECT 1\");", "q(r#\"INSERT INTO a VALUES (1)\"#);", "q(\"UPDATE a SET b = 1\");"]
        {
            assert_eq!(lines("crates/api/src/a.rs", text), [1], "{text}");
            assert_eq!(lines("crates/store/src/a.rs", text), [0; 0], "{text}");
        }
        assert_eq!(lines("crates/api/src/a.rs", "q(\"please select one\", \"UPDATE your client\");"), [0; 0]);
    }

    #[test]
    fn api_reaches_data_through_use_cases_only() {
        for text in ["use punctual_core::ports::Store;", "fn f(s: &dyn Store) {}", "engine.store().job(id);"]
        {
            assert_eq!(lines("crates/api/src/a.rs", text), [1], "{text}");
            assert_eq!(lines("crates/engine/src/a.rs", text), [0; 0], "{text}");
        }
        assert_eq!(
            lines("crates/api/src/a.rs", "fn f(e: StoreError, s: StoreFigures) { now.store; }"),
            [0; 0]
        );
    }

    #[test]
    fn http_stays_at_the_edge() {
        assert_eq!(lines("crates/engine/src/a.rs", "fn f(r: axum::Router) {}"), [1]);
        assert_eq!(lines("crates/store/src/a.rs", "use reqwest::Client;"), [1]);
        assert_eq!(lines("crates/worker/src/run.rs", "use hyper::Request;"), [1]);
        assert_eq!(lines("crates/api/src/a.rs", "use axum::Router;"), [0; 0]);
        assert_eq!(lines("crates/worker/src/http/connect.rs", "use hyper::Request;"), [0; 0]);
        assert_eq!(lines("crates/coordination/src/etcd/gateway.rs", "use hyper::Request;"), [0; 0]);
        assert_eq!(lines("crates/coordination/src/redis.rs", "use hyper::Request;"), [1]);
    }
}
