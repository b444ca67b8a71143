//! The benchmarks run in a small form, count exactly, and leave nothing behind.

use crate::server::{BINARY, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

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
    let directory = tempfile::tempdir().unwrap();
    let output = command(arguments, &directory).args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_empty(directory.path()), "something was left behind");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for fact in ["cores", "memory_bytes"] {
        assert!(report["machine"][fact].as_u64().unwrap() > 0, "{report}");
    }
    for fact in ["date", "version", "build", "file_system", "kernel"] {
        assert!(!report["machine"][fact].as_str().unwrap().is_empty(), "{report}");
    }
    report
}

fn is_positive(report: &Value, path: &str) {
    let value = report.pointer(path).and_then(Value::as_f64);
    assert!(value.is_some_and(|value| value > 0.0), "{path}: {report}");
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
fn throughput_is_measured_beside_its_floor() {
    let report = bench(&["throughput", "--jobs", "3000", "--batch", "500", "--payload-bytes", "100"]);
    for path in [
        "/submit_per_second",
        "/submit_of_floor",
        "/drain/per_second",
        "/drain_of_floor",
        "/drain_cost/client_cpu_ms_per_1000_jobs",
        "/together/per_second",
        "/together_of_floor",
        "/together_cost/server_peak_memory_bytes",
        "/disk_bytes_per_job",
        "/floor/insert_per_second",
        "/floor/claim_complete_per_second",
        "/floor/fdatasync_us/max",
    ] {
        is_positive(&report, path);
    }
    assert_eq!((&report["jobs"], &report["batch"]), (&3_000.into(), &500.into()));
    let tenths = report["drain"]["per_second_by_tenth"].as_array().unwrap().len();
    assert!(tenths == 10 || tenths == 0, "{report}");
}

#[test]
fn submits_are_measured_in_batches_and_one_by_one() {
    let report = bench(&["submit", "--jobs", "1500", "--singles", "200", "--connections", "8"]);
    for path in ["/bulk_per_second", "/bulk_of_floor", "/singles_per_second", "/singles_per_fdatasync"] {
        is_positive(&report, path);
    }
    is_ordered(&report["acknowledged_us"]);
    let binned = report["acknowledged_histogram"].as_array().unwrap().iter();
    assert_eq!(binned.map(|bin| bin["count"].as_u64().unwrap()).sum::<u64>(), 200, "{report}");
}

#[test]
fn latency_is_measured_beside_its_floor() {
    let report = bench(&["latency", "--jobs", "30", "--pause", "1ms"]);
    for series in ["start_us", "acknowledged_us", "fdatasync_us"] {
        is_ordered(&report[series]);
    }
    is_positive(&report, "/start_of_fdatasync_p50");
    is_positive(&report, "/server_peak_memory_bytes");
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
        is_positive(&report[when], "/server_memory_bytes");
    }
    for path in ["/disk_bytes_per_future_job", "/load_per_second", "/load_of_floor", "/ratios/latency_p50"] {
        is_positive(&report, path);
    }
}

#[test]
fn a_soak_executes_everything_once_and_stops_by_itself() {
    let small = ["soak", "--for", "3s", "--rate", "50", "--sample-every", "250ms", "--keep", "1s"];
    let report = bench(&small);
    // A fifth recurs for three seconds, the rest is submitted.
    assert_eq!(report["expected"], 10 * 3 + 40 * 3, "{report}");
    assert_eq!(report["succeeded"], report["expected"], "{report}");
    assert_eq!((&report["exact"], &report["otherwise"]), (&true.into(), &0.into()), "{report}");
    assert!(report["samples"].as_array().unwrap().len() >= 2, "{report}");
    for what in ["server_memory_bytes", "disk_bytes", "done_per_second", "late_p99_us"] {
        assert!(!report["trends"][what]["verdict"].as_str().unwrap().is_empty(), "{report}");
    }
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
        (&["soak", "--for", "10ms"], "--for"),
        (&["soak", "--sample-every", "3h"], "--sample-every"),
        (&["soak", "--for", "30d", "--sample-every", "100ms"], "--sample-every"),
    ] {
        let output = command(arguments, &directory).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
    let nowhere =
        Command::new(BINARY).args(["bench", "latency", "--dir", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("--dir /nowhere/at/all"));
}

/// A soak that would take long, and the process of its server.
async fn long_soak(directory: &TempDir) -> (Child, PathBuf) {
    let mut command = command(&["soak", "--for", "10m", "--rate", "20"], directory);
    let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let mut server = String::new();
    eventually("the server is there and writes", async || {
        server = std::fs::read_to_string(&children).unwrap().trim().to_owned();
        let mut places = std::fs::read_dir(directory.path()).unwrap();
        !server.is_empty() && places.any(|place| !is_empty(&place.unwrap().path()))
    })
    .await;
    (running, Path::new("/proc").join(server))
}

fn send(running: &Child, signal: Signal) {
    kill_process(Pid::from_raw(running.id() as i32).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn an_interrupted_benchmark_ends_its_server_and_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let directory = tempfile::tempdir().unwrap();
        let (running, server) = long_soak(&directory).await;
        send(&running, signal);
        let output = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("broken off"), "{said}");
        assert!(is_empty(directory.path()), "something was left behind");
        assert!(!server.exists(), "the server outlived its benchmark");
    }
}

#[tokio::test]
async fn a_server_does_not_outlive_a_benchmark_that_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut running, server) = long_soak(&directory).await;
    send(&running, Signal::KILL);
    running.wait().unwrap();
    eventually("the server is gone", async || !server.exists()).await;
}
