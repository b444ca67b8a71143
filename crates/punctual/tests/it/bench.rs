//! The benchmarks run, say something plausible and leave nothing behind.

use crate::server::BINARY;
use serde_json::Value;
use std::process::Command;

fn bench(arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY)
        .arg("bench")
        .args(arguments)
        .args(["-o", "json", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn throughput_is_measured_beside_its_floor() {
    for way in [&["throughput", "--jobs", "3000"][..], &["throughput", "--jobs", "3000", "--http"][..]] {
        let report = bench(way);
        for field in ["submit_per_second", "drain_per_second", "submit_of_floor", "cpu_ms_per_1000_jobs"] {
            assert!(report[field].as_f64().unwrap() > 0.0, "{field}: {report}");
        }
        assert!(report["floor"]["drain_per_second"].as_f64().unwrap() > 0.0, "{report}");
        assert!(report["peak_memory_bytes"].as_u64().unwrap() > 1_000_000, "{report}");
    }
}

#[test]
fn latency_is_measured_beside_its_floor() {
    let report = bench(&["latency", "--count", "30", "--pause", "1ms"]);
    for series in ["start_us", "acknowledged_us", "fdatasync_us"] {
        let at = |name: &str| report[series][name].as_u64().unwrap();
        assert!(0 < at("p50") && at("p50") <= at("p90") && at("p99") <= at("max"), "{report}");
    }
    assert!(report["load_before"].as_f64().unwrap() >= 0.0, "{report}");
}

#[test]
fn lateness_counts_every_fire_once() {
    for way in [&["--over", "1s"][..], &["--every", "200ms", "--runs", "3", "--held", "500"][..]] {
        let report = bench(&[&["lateness", "--jobs", "50"], way].concat());
        assert_eq!(report["started"], report["expected"], "{report}");
        assert!(report["late_us"]["p50"].as_u64().unwrap() > 0, "{report}");
    }
}
