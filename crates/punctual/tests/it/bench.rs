//! The benchmarks run in a small form, count exactly, and leave nothing behind.

use crate::server::{BINARY, Server, eventually};
use crate::small_disk::{SmallDisk, is_root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// How long the whole command took, beside what it reports.
const COMMAND_SECONDS: &str = "command_seconds";
/// Less than any server needs.
const SERVER_MEMORY_BYTES_MIN: f64 = 2e6;

fn command(arguments: &[&str], directory: &TempDir) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("bench").args(arguments).arg("--dir").arg(directory.path());
    command
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().count() == 0
}

/// The report of a benchmark.
fn bench(arguments: &[&str]) -> Value {
    bench_on(None, arguments)
}

/// The report of a benchmark of this database server, or of the embedded store. The URL is passed by flag:
/// the tests' servers have no secrets.
fn bench_on(store: Option<&str>, arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command(arguments, &directory);
    if let Some(url) = store {
        command.args(["--store", url]);
    }
    let start = Instant::now();
    let output = command.args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_empty(directory.path()), "something was left behind");
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report[COMMAND_SECONDS] = start.elapsed().as_secs_f64().into();
    for fact in ["cores", "memory_bytes"] {
        assert!(report["machine"][fact].as_u64().unwrap() > 0, "{report}");
    }
    for fact in ["date", "version", "build", "file_system", "kernel"] {
        assert!(!report["machine"][fact].as_str().unwrap().is_empty(), "{report}");
    }
    report
}

fn figure(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}: {report}"))
}

fn is_at_least(report: &Value, path: &str, least: f64) {
    let value = figure(report, path);
    assert!(value >= least, "{path} is {value}, but at least {least}: {report}");
}

/// A rate of a part of the run: no part took longer than the whole command.
fn is_rate(report: &Value, path: &str, jobs: u32) {
    is_at_least(report, path, f64::from(jobs) / figure(report, &format!("/{COMMAND_SECONDS}")));
}

/// A share is the quotient of two other figures.
fn is_share(report: &Value, path: &str, [part, whole]: [&str; 2]) {
    let (share, expected) = (figure(report, path), figure(report, part) / figure(report, whole));
    assert!(
        (share / expected - 1.0).abs() < 1e-6,
        "{path} is {share}, but {part} of {whole} is {expected}: {report}"
    );
}

fn is_ordered(percentiles: &Value) {
    let at = |name: &str| percentiles[name].as_u64().unwrap();
    assert!(0 < at("max") && at("p50") <= at("p90") && at("p90") <= at("p99") && at("p99") <= at("max"));
}

fn is_exact(fires: &Value, expected: u64) {
    assert_eq!(fires["exact"], true, "{fires}");
    for (field, count) in
        [("expected", expected), ("started", expected), ("missing", 0), ("extra", 0), ("early", 0)]
    {
        assert_eq!(fires[field], count, "{field}: {fires}");
    }
    let binned = fires["late_histogram"].as_array().unwrap().iter();
    assert_eq!(binned.map(|bin| bin["count"].as_u64().unwrap()).sum::<u64>(), expected, "{fires}");
    is_ordered(&fires["late_us"]);
}

#[test]
fn throughput_is_measured_beside_its_baseline() {
    let report = bench(&["throughput", "--jobs", "3000", "--batch", "500", "--payload-bytes", "100"]);
    for rate in [
        "/submit_per_second",
        "/drain/per_second",
        "/together/per_second",
        "/baseline/insert_per_second",
        "/baseline/claim_complete_per_second",
    ] {
        is_rate(&report, rate, 3_000);
    }
    is_share(&report, "/submit_of_baseline", ["/submit_per_second", "/baseline/insert_per_second"]);
    is_share(&report, "/drain_of_baseline", ["/drain/per_second", "/baseline/claim_complete_per_second"]);
    // Both at once are slower than either alone.
    is_at_least(
        &report,
        "/together_of_baseline",
        figure(&report, "/together/per_second") / figure(&report, "/baseline/insert_per_second"),
    );
    // The client waits for every answer: a thousand jobs in two batches cost it more than a microsecond.
    is_at_least(&report, "/drain_cost/client_cpu_ms_per_1000_jobs", 0.001);
    is_at_least(&report, "/together_cost/server_peak_memory_bytes", SERVER_MEMORY_BYTES_MIN);
    // The payload alone.
    is_at_least(&report, "/disk_bytes_per_job", 100.0);
    is_ordered(&report["baseline"]["fdatasync_us"]);
    assert_eq!((&report["jobs"], &report["batch"]), (&3_000.into(), &500.into()));
    let tenths = report["drain"]["per_second_by_tenth"].as_array().unwrap().len();
    assert!(tenths == 10 || tenths == 0, "{report}");
}

/// Two rounds of a drain and a run of both at once, without limits and with them: every execution is counted,
/// and exactly those for which the queue's limit has no room are on the wait list.
fn are_limits_weighed(store: Option<&str>) {
    let small = ["throughput", "--with-limits", "--jobs", "1000", "--batch", "250", "--payload-bytes", "100"];
    let report = bench_on(store, &[&small[..], &["--slots", "8", "--prefetch", "32"]].concat());
    let limits = &report["limits"];
    assert_eq!((&limits["rounds"], &limits["keys"]), (&2.into(), &100.into()), "{report}");
    for (name, in_line) in [("without", 0), ("room", 0), ("line", 800)] {
        let side = &limits[name];
        assert_eq!((&side["succeeded"], &side["in_line"]), (&4_000.into(), &in_line.into()), "{report}");
        for rate in ["submit_per_second", "drain_per_second", "together_per_second"] {
            is_rate(&report, &format!("/limits/{name}/{rate}"), 1_000);
        }
    }
    for (side, concurrency) in [("room", 1_000_000), ("line", 200)] {
        let settings = &limits[side]["settings"];
        for limit in ["concurrency", "key_concurrency"] {
            assert_eq!(settings[limit], concurrency, "{report}");
        }
        assert_eq!(settings["key_rate"], "10000/1s", "{report}");
        for what in ["submit", "drain", "together"] {
            let rates = ["without", side].map(|side| format!("/{side}/{what}_per_second"));
            is_share(limits, &format!("/{side}/of_without/{what}"), [&rates[1], &rates[0]]);
        }
    }
}

#[test]
fn limits_are_weighed_against_the_same_without() {
    are_limits_weighed(None);
}

#[test]
fn limits_are_weighed_on_servers() {
    for variable in ["PUNCTUAL_TEST_POSTGRES", "PUNCTUAL_TEST_MARIADB"] {
        are_limits_weighed(Some(&given(variable)));
    }
}

/// Roll-ups, failures and rules are weighed in one run: every job is executed, and every failure is notified if there are rules.
fn is_overhead_weighed(store: Option<&str>) {
    let small = ["overhead", "--jobs", "1000", "--batch", "250", "--payload-bytes", "100", "--rounds", "2"];
    let report = bench_on(store, &[&small[..], &["--rules", "20", "--failures-per-minute", "6000"]].concat());
    for side in ["without", "series", "failures", "rules"] {
        assert_eq!(report[side]["succeeded"], 2_000, "{side}: {report}");
        assert_eq!(
            report[side]["drain_per_second_by_round"].as_array().unwrap().len(),
            2,
            "{side}: {report}"
        );
        is_rate(&report, &format!("/{side}/drain_per_second"), 2_000);
        let fails = matches!(side, "failures" | "rules");
        assert_eq!(report[side]["failed"].as_u64().unwrap() >= 2, fails, "{side}: {report}");
        let notified = if side == "rules" { &report[side]["failed"] } else { &Value::from(0) };
        assert_eq!(&report[side]["notified"], notified, "{side}: {report}");
    }
    for (part, whole) in [("series", "without"), ("rules", "failures"), ("rules", "series")] {
        let rates = [part, whole].map(|side| format!("/{side}/drain_per_second"));
        is_share(&report, &format!("/shares/{part}_of_{whole}"), [&rates[0], &rates[1]]);
    }
}

#[test]
fn roll_ups_and_rules_are_weighed_against_the_same_without() {
    is_overhead_weighed(None);
}

#[test]
fn roll_ups_and_rules_are_weighed_on_a_server() {
    is_overhead_weighed(Some(&given("PUNCTUAL_TEST_POSTGRES")));
}

#[test]
fn schedulers_on_servers_fire_every_due_time_once_however_many_they_are() {
    let small =
        ["schedulers", "--jobs", "500", "--schedulers", "1,3", "--round-trip", "0ms,2ms", "--lead", "8s"];
    for variable in ["PUNCTUAL_TEST_POSTGRES", "PUNCTUAL_TEST_MARIADB"] {
        let report = bench_on(Some(&given(variable)), &small);
        let ways = report["ways"].as_array().unwrap();
        assert_eq!(
            ways.iter().map(|way| way["round_trip_ms"].as_f64()).collect::<Vec<_>>(),
            [Some(0.0), Some(2.0)]
        );
        for (way, run) in
            ways.iter().flat_map(|way| way["runs"].as_array().unwrap().iter().map(move |run| (way, run)))
        {
            is_exact(&run["due_times"], 500);
            let fired_by: Vec<u64> =
                run["fired_by"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
            assert_eq!(fired_by.len() as u64, run["schedulers"].as_u64().unwrap(), "{report}");
            assert_eq!(fired_by.iter().sum::<u64>(), 500, "{report}");
            assert!(fired_by.iter().all(|count| *count > 0), "one of them had nothing to fire: {report}");
            let first = figure(way, "/runs/0/fires/per_second");
            let (rate, of_first) = (figure(run, "/fires/per_second"), figure(run, "/of_first"));
            assert!(rate >= 500.0 / figure(&report, &format!("/{COMMAND_SECONDS}")), "{report}");
            assert!((of_first / (rate / first) - 1.0).abs() < 1e-6, "{report}");
            is_ordered(&way["commit_us"]);
        }
    }
}

#[test]
fn workers_execute_every_job_once_however_many_they_are() {
    let small = ["workers", "--jobs", "600", "--batch", "200", "--workers", "1,3", "--round-trip", "0ms,2ms"];
    for (variable, broker) in [
        ("PUNCTUAL_TEST_POSTGRES", "none".to_owned()),
        ("PUNCTUAL_TEST_POSTGRES", given("PUNCTUAL_TEST_NATS")),
        ("PUNCTUAL_TEST_MARIADB", given("PUNCTUAL_TEST_REDIS")),
    ] {
        let report = bench_on(Some(&given(variable)), &[&small[..], &["--broker", &broker]].concat());
        assert_eq!(report["broker"], broker.split("://").next().unwrap(), "{report}");
        let latencies = report["latencies"].as_array().unwrap();
        assert_eq!(
            latencies.iter().map(|latency| latency["round_trip_ms"].as_f64()).collect::<Vec<_>>(),
            [Some(0.0), Some(2.0)]
        );
        for latency in latencies {
            is_ordered(&latency["commit_us"]);
            for (run, workers) in latency["runs"].as_array().unwrap().iter().zip([1, 3]) {
                let executed_by = run["executed_by"].as_array().unwrap();
                assert_eq!((run["workers"].as_u64(), executed_by.len()), (Some(workers), workers as usize));
                let executed = executed_by.iter().map(|count| count.as_u64().unwrap()).sum::<u64>();
                assert_eq!((&run["exact"], executed), (&true.into(), 600), "{report}");
                is_at_least(
                    run,
                    "/drain/per_second",
                    600.0 / figure(&report, &format!("/{COMMAND_SECONDS}")),
                );
            }
        }
    }
}

#[test]
fn submits_are_measured_in_batches_and_one_by_one() {
    let report = bench(&["submit", "--jobs", "1500", "--singles", "200", "--connections", "8"]);
    is_rate(&report, "/bulk_per_second", 1_500);
    is_rate(&report, "/singles_per_second", 200);
    is_share(&report, "/bulk_of_baseline", ["/bulk_per_second", "/baseline/insert_per_second"]);
    let per_write =
        figure(&report, "/singles_per_second") * figure(&report, "/baseline/fdatasync_us/p50") / 1e6;
    assert!((figure(&report, "/singles_per_durable_write") / per_write - 1.0).abs() < 1e-6, "{report}");
    is_ordered(&report["acknowledged_us"]);
    let binned = report["acknowledged_histogram"].as_array().unwrap().iter();
    assert_eq!(binned.map(|bin| bin["count"].as_u64().unwrap()).sum::<u64>(), 200, "{report}");
}

#[test]
fn latency_is_measured_beside_its_baseline() {
    let report = bench(&["latency", "--jobs", "30", "--pause", "1ms"]);
    for series in ["start_us", "acknowledged_us", "fdatasync_us"] {
        is_ordered(&report[series]);
    }
    is_share(&report, "/start_of_baseline_p50", ["/start_us/p50", "/fdatasync_us/p50"]);
    is_at_least(&report, "/server_peak_memory_bytes", SERVER_MEMORY_BYTES_MIN);
}

#[test]
fn accuracy_matches_every_due_time_to_one_start() {
    let one_time = ["accuracy", "--jobs", "50,20", "--over", "500ms", "--lead", "5s"];
    let recurring = ["--recurring", "30", "--every", "200ms", "--for", "600ms"];
    let report = bench(&[&one_time[..], &recurring].concat());
    let rounds = report["rounds"].as_array().unwrap();
    let kinds: Vec<&str> = rounds.iter().map(|round| round["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["one-time", "one-time", "recurring"]);
    for (round, expected) in rounds.iter().zip([50, 20, 90]) {
        is_exact(round, expected);
    }
    is_ordered(&report["fdatasync_us"]);
}

#[test]
fn held_jobs_are_measured_against_an_empty_store() {
    let small =
        ["hold", "--jobs", "2000", "--samples", "10", "--due", "20", "--over", "300ms", "--lead", "5s"];
    let report = bench(&small);
    for when in ["before", "beside"] {
        is_exact(&report[when]["accuracy"], 20);
        is_ordered(&report[when]["latency"]["start_us"]);
        is_at_least(&report[when], "/server_memory_bytes", SERVER_MEMORY_BYTES_MIN);
    }
    is_rate(&report, "/load_per_second", 2_000);
    is_share(&report, "/load_of_baseline", ["/load_per_second", "/baseline/hold_per_second"]);
    is_share(
        &report,
        "/ratios/latency_p50",
        ["/beside/latency/start_us/p50", "/before/latency/start_us/p50"],
    );
    // A job has an id, a name of its queue, a due time and its payload.
    is_at_least(&report, "/disk_bytes_per_future_job", 100.0);
}

/// Everything was executed once, and the report contains nothing that so short a run cannot determine.
fn is_whole_soak(report: &Value) {
    // A fifth recurs for three seconds, the rest is submitted.
    assert_eq!(report["expected"], 10 * 3 + 40 * 3, "{report}");
    assert_eq!(report["succeeded"], report["expected"], "{report}");
    assert_eq!((&report["exact"], &report["otherwise"]), (&true.into(), &0.into()), "{report}");
    for what in ["server_memory_bytes", "disk_bytes", "done_per_second", "late_p99_us"] {
        assert_eq!(report["trends"][what]["verdict"], "too short to tell", "{report}");
    }
    assert_eq!(report["reached"]["overloaded"], false, "{report}");
    let samples = report["samples"].as_array().unwrap();
    assert!(samples.len() >= 2, "{report}");
    for sample in samples {
        is_at_least(sample, "/disk_bytes", 4_096.0);
        is_at_least(sample, "/server_memory_bytes", SERVER_MEMORY_BYTES_MIN);
    }
}

const SMALL_SOAK: [&str; 9] =
    ["soak", "--for", "3s", "--rate", "50", "--sample-every", "250ms", "--keep", "1s"];

#[test]
fn a_soak_executes_everything_once_and_keeps_its_samples_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("samples.jsonl");
    let report = bench(&[&SMALL_SOAK[..], &["--samples", file.to_str().unwrap()]].concat());
    is_whole_soak(&report);
    let lines = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(&kept, report["samples"].as_array().unwrap());
}

#[test]
fn a_soak_at_full_rate_executes_everything_once() {
    let report = bench(&["soak", "--for", "1s", "--rate", "full", "--keep", "1m"]);
    assert_eq!((&report["rate"], &report["reached"]), (&Value::Null, &Value::Null), "{report}");
    assert_eq!((&report["exact"], &report["succeeded"]), (&true.into(), &report["expected"]), "{report}");
    assert!(report["succeeded"].as_u64().unwrap() > 100, "more than those that recur: {report}");
}

/// The report about a database server, besides its baseline.
fn is_measured_on_a_server(url: &str) {
    let throughput = ["throughput", "--jobs", "2000", "--batch", "500", "--payload-bytes", "100"];
    let report = bench_on(Some(url), &throughput);
    for rate in ["insert_per_second", "claim_complete_per_second", "hold_per_second"] {
        is_rate(&report, &format!("/baseline/{rate}"), 2_000);
    }
    is_share(&report, "/submit_of_baseline", ["/submit_per_second", "/baseline/insert_per_second"]);
    is_share(&report, "/drain_of_baseline", ["/drain/per_second", "/baseline/claim_complete_per_second"]);
    is_rate(&report, "/together/per_second", 2_000);
    is_at_least(&report, "/disk/bytes", 2_000.0 * 100.0);
    is_ordered(&report["baseline"]["commit_us"]);
    assert_eq!(
        (&report["baseline"]["jobs"], &report["baseline"]["writers"]),
        (&2_000.into(), &4.into()),
        "{report}"
    );
    let report = bench_on(Some(url), &["latency", "--jobs", "10", "--pause", "1ms"]);
    is_ordered(&report["commit_us"]);
    is_share(&report, "/start_of_baseline_p50", ["/start_us/p50", "/commit_us/p50"]);
}

/// Benchmarks that take longer or cause more load, on a database server.
fn is_held_and_soaked_on_a_server(url: &str) {
    let hold = ["hold", "--jobs", "3000", "--samples", "5", "--due", "10", "--over", "300ms", "--lead", "5s"];
    is_at_least(&bench_on(Some(url), &hold), "/disk_bytes_per_future_job", 100.0);
    is_whole_soak(&bench_on(Some(url), &SMALL_SOAK));
}

fn given(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which starts servers for the tests")
    })
}

#[test]
fn claims_on_servers_are_compared_with_those_from_an_empty_database() {
    for variable in ["PUNCTUAL_TEST_POSTGRES", "PUNCTUAL_TEST_MARIADB"] {
        are_claims_compared(&bench_on(Some(&given(variable)), &SMALL_CLAIMS));
    }
}

#[test]
fn postgres_holds_jobs_and_bears_a_soak() {
    is_held_and_soaked_on_a_server(&given("PUNCTUAL_TEST_POSTGRES"));
}

#[test]
fn mariadb_holds_jobs_and_bears_a_soak() {
    is_held_and_soaked_on_a_server(&given("PUNCTUAL_TEST_MARIADB"));
}

#[test]
fn postgres_is_measured_beside_its_baseline() {
    is_measured_on_a_server(&given("PUNCTUAL_TEST_POSTGRES"));
}

#[test]
fn mariadb_is_measured_beside_its_baseline() {
    is_measured_on_a_server(&given("PUNCTUAL_TEST_MARIADB"));
}

const SMALL_CLAIMS: [&str; 9] =
    ["claims", "--queued", "3000", "--historic", "5005", "--jobs", "1000", "--payload-bytes", "100"];

fn are_claims_compared(report: &Value) {
    for (name, queued, historic) in [("empty", 2_000, 0), ("full", 3_000, 5_005)] {
        let side = &report[name];
        assert_eq!((&side["queued"], &side["historic"]), (&queued.into(), &historic.into()), "{report}");
        is_rate(report, &format!("/{name}/first_per_second"), 1_000);
        is_rate(report, &format!("/{name}/again_per_second"), 1_000);
        is_at_least(side, "/transaction_p50_us", 1.0);
    }
    is_rate(report, "/historic_per_second", 5_005);
    for turn in ["first", "again"] {
        let rates = ["full", "empty"].map(|side| format!("/{side}/{turn}_per_second"));
        is_share(report, &format!("/ratios/{turn}"), [&rates[0], &rates[1]]);
    }
    is_share(
        report,
        "/empty_of_baseline",
        ["/empty/drain/per_second", "/baseline/claim_complete_per_second"],
    );
    let bytes = |side: &str| report[side]["disk"]["bytes"].as_u64().unwrap();
    assert!(bytes("full") > bytes("empty"), "the past takes up room: {report}");
}

#[test]
fn claims_from_a_full_database_are_compared_with_those_from_an_empty_one() {
    are_claims_compared(&bench(&SMALL_CLAIMS));
}

#[tokio::test]
async fn a_data_directory_is_filled_once_and_served() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("filled");
    let fill = || {
        let arguments = ["bench", "fill", "--executions", "2503", "-o", "json", "--data-dir"];
        Command::new(BINARY).args(arguments).arg(&place).output().unwrap()
    };
    let report: Value = serde_json::from_slice(&fill().stdout).unwrap();
    assert_eq!((&report["jobs"], &report["executions"]), (&251.into(), &2_503.into()), "{report}");
    let again = fill();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains("contains jobs already"), "{said}");
    let server = Server::start_in(&place, &[]);
    assert!(!fill().status.success(), "a server has it open");
    assert_eq!(server.get("/api/v1/stats").await.1["jobs"]["completed"], 251);
}

#[test]
fn a_disk_that_gets_full_is_named() {
    if !is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a file system");
        eprintln!("only root can mount a file system: not tested");
        return;
    }
    let disk = SmallDisk::mount();
    let mut command = Command::new(BINARY);
    command.args(["bench", "submit", "--payload-bytes", "5000", "--dir"]).arg(disk.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("the disk of --dir {} is full", disk.path().display())), "{said}");
}

#[test]
fn a_past_that_no_disk_holds_is_refused_before_it_begins() {
    let directory = tempfile::tempdir().unwrap();
    let too_many = ["claims", "--historic", "1000000000", "--queued", "1000000000"];
    let output = command(&too_many, &directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("--historic 1,000,000,000") && said.contains("left: reduce the number"), "{said}");
    assert!(is_empty(directory.path()), "something was left behind");
}

#[test]
fn people_get_a_summary_with_a_plot_in_plain_letters() {
    let directory = tempfile::tempdir().unwrap();
    let output = command(&["latency", "--jobs", "5", "--pause", "1ms"], &directory).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for word in
        ["Submit to start", "fdatasync alone", "CPU per 1,000 jobs", "Peak memory", "Machine", "up to"]
    {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(shown.contains("##") && !shown.contains('█'), "{shown}");
    let small = ["hold", "--jobs", "100", "--samples", "3", "--due", "3", "--over", "100ms", "--lead", "3s"];
    let shown = String::from_utf8(command(&small, &directory).output().unwrap().stdout).unwrap();
    let plots = ["Submit to start, before\n", "Submit to start, with the future jobs\n"];
    assert!(plots.iter().all(|plot| shown.contains(plot)) && shown.contains("up to"), "{shown}");
}

#[test]
fn options_that_make_no_sense_are_named() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, named) in [
        (&["throughput", "--payload-bytes", "200000"][..], "--batch"),
        (&["throughput", "--jobs", "0"], "--jobs"),
        (&["submit", "--connections", "100000"], "--connections"),
        (&["accuracy", "--every", "10ms"], "--every"),
        (&["accuracy", "--for", "100ms"], "--for"),
        (&["accuracy", "--jobs", "0", "--recurring", "0"], "--jobs"),
        (
            &["accuracy", "--jobs", "0", "--recurring", "100", "--every", "100ms", "--for", "3d"],
            "--recurring",
        ),
        (&["accuracy", "--jobs", "18446744073709551614", "--recurring", "0"], "--jobs"),
        (&["hold", "--due", "18446744073709551614"], "--due"),
        (&["throughput", "--jobs", "18446744073709551614"], "--jobs"),
        (&["claims", "--queued", "1000", "--jobs", "501"], "--queued"),
        (&["schedulers"], "--store"),
        (&["schedulers", "--schedulers", "0"], "--schedulers"),
        (&["schedulers", "--store", "postgres://u@h/d", "--round-trip", "1m"], "--round-trip"),
        (&["schedulers", "--store", "postgres://u@one,two/d"], "--round-trip"),
        (&["workers"], "--store"),
        (&["workers", "--workers", "65"], "--workers"),
        (&["workers", "--store", "postgres://u@one,two/d"], "--round-trip"),
        (&["throughput", "--broker", "redis://127.0.0.1"], "--broker"),
        (&["throughput", "--store", "postgres://u@h/d", "--broker", "zeromq://h"], "--broker"),
        (&["soak", "--rate", "fast"], "--rate"),
        (&["soak", "--for", "10ms"], "--for"),
        (&["soak", "--sample-every", "3h"], "--sample-every"),
        (&["soak", "--for", "30d", "--sample-every", "100ms"], "--sample-every"),
    ] {
        let output = command(arguments, &directory).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
    let samples = ["soak", "--samples", "/nowhere/at/all/samples"];
    let output = command(&samples, &directory).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--samples /nowhere/at/all/samples"));
    let nowhere =
        Command::new(BINARY).args(["bench", "latency", "--dir", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("--dir /nowhere/at/all"));
}

/// A soak that would take long, and the pid of its server.
async fn long_soak(arguments: &[&str], directory: &TempDir) -> (Child, u32) {
    let mut command = command(&[&["soak", "--for", "10m", "--rate", "20"], arguments].concat(), directory);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let mut server = String::new();
    eventually("the server is there and writes", async || {
        server = std::fs::read_to_string(&children).unwrap().trim().to_owned();
        let mut places = std::fs::read_dir(directory.path()).unwrap();
        !server.is_empty() && places.any(|place| !is_empty(&place.unwrap().path()))
    })
    .await;
    (running, server.parse().unwrap())
}

fn is_there(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

/// A soak that has already taken some samples.
async fn sampled_soak(directory: &TempDir, kept: &TempDir) -> (Child, u32) {
    let file = kept.path().join("samples.jsonl");
    let sampled = ["--sample-every", "100ms", "--samples", file.to_str().unwrap(), "-o", "json"];
    let soak = long_soak(&sampled, directory).await;
    let lines = || std::fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    eventually("samples are taken", async || lines() >= 3).await;
    soak
}

#[tokio::test]
async fn an_interrupted_soak_tells_what_it_has_so_far() {
    let (directory, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (running, server) = sampled_soak(&directory, &kept).await;
    send(running.id(), Signal::INT);
    let output = running.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["samples"].as_array().unwrap().len() >= 3, "{report}");
    assert_eq!(report["broken_off"], "interrupted: what was measured so far", "{report}");
    assert_eq!((output.status.code(), is_there(server)), (Some(1), false));
    assert!(is_empty(directory.path()), "something was left behind");
}

#[tokio::test]
async fn a_server_that_is_killed_while_it_is_measured_is_told_as_that() {
    let (directory, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (running, server) = sampled_soak(&directory, &kept).await;
    send(server, Signal::KILL);
    let output = running.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = report["broken_off"].as_str().unwrap();
    assert!(told.starts_with("the measured server exited during the measurement (signal: 9"), "{told}");
    assert!(report["samples"].as_array().unwrap().len() >= 3, "{report}");
    assert_eq!(output.status.code(), Some(1));

    let mut command = command(&["throughput", "--jobs", "1000000"], &directory);
    let running = command.stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let mut server = String::new();
    eventually("a database is there", async || {
        server = std::fs::read_to_string(&children).unwrap().trim().to_owned();
        let mut places = std::fs::read_dir(directory.path()).unwrap();
        !server.is_empty() && places.any(|place| place.unwrap().path().join("punctual.db-wal").exists())
    })
    .await;
    send(server.parse().unwrap(), Signal::KILL);
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("exited during the measurement") || said.contains("did not start"), "{said}");
    assert!(!said.contains("punctual serve"), "{said}");
}

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn an_interrupted_benchmark_ends_its_server_and_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let directory = tempfile::tempdir().unwrap();
        let (running, server) = long_soak(&[], &directory).await;
        send(running.id(), signal);
        let output = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert!(is_empty(directory.path()), "something was left behind");
        assert!(!is_there(server), "the server outlived its benchmark");
    }
}

#[tokio::test]
async fn a_server_does_not_outlive_a_benchmark_that_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut running, server) = long_soak(&[], &directory).await;
    send(running.id(), Signal::KILL);
    running.wait().unwrap();
    eventually("the server is gone", async || !is_there(server)).await;
}
