//! The list of metrics follows its own rules and matches the reference page, and values are in Prometheus
//! syntax. The binary's tests run `promtool` on a real server's response.

use super::catalog::FAMILIES;
use super::*;
use punctual_core::trace_context::TraceContext;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const PAGE_HEAD: &str = "\
# Metrics

What `GET /metrics` answers, in the text format of Prometheus. How to scrape them and what to watch:
[Metrics and alerts](../guides/metrics-and-alerts.md).

Counters and histograms begin at zero when the server starts. Gauges show what is in the store, whichever process wrote it.
Durations are in seconds and sizes in bytes, as the names say. Of queues and job types at most 200 pairs are shown apart;
what is in others is added up under `(other)`.

| metric | type | labels | what it says |
|---|---|---|---|
";

fn page() -> String {
    let mut page = PAGE_HEAD.to_owned();
    for family in FAMILIES {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let kind = family.kind.word();
        let _ = writeln!(page, "| `{}` | {kind} | {} | {} |", family.name, labels.join(", "), family.help);
    }
    page
}

#[test]
fn the_reference_page_shows_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    let first_difference = documented.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        documented == page,
        "docs/reference/metrics.md is not up to date; generate it with \
         `UPDATE_DOCS=1 cargo nextest run -p punctual-api`. First difference: {first_difference:#?}"
    );
}

#[test]
fn the_page_names_the_bound_on_lanes() {
    assert!(PAGE_HEAD.contains(&format!("at most {} pairs", punctual_core::limits::METRIC_LANES_MAX)));
}

#[test]
fn names_are_our_own_and_end_as_their_type_demands() {
    let mut names = BTreeSet::new();
    for family in FAMILIES {
        let name = family.name;
        assert!(name.starts_with("punctual_") && names.insert(name), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == MetricKind::Counter, "{name}");
        for reserved in ["_count", "_sum", "_bucket", "_created", "_info"] {
            assert!(!name.ends_with(reserved) || name == "punctual_build_info", "{name}");
        }
        assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{name}: {}", family.help);
    }
}

fn lines(family: &MetricFamily, write: impl FnOnce(&mut Samples<'_>)) -> String {
    let mut text = String::new();
    write(&mut Samples { family, text: &mut text, format: MetricsFormat::Text });
    text
}

fn family_of(name: &'static str, labels: &'static [&'static str]) -> MetricFamily {
    MetricFamily { name, kind: MetricKind::Gauge, labels, help: "", read: SampleSource::Snapshot(|_, _| {}) }
}

#[test]
fn labels_are_escaped_and_values_are_plain_numbers() {
    let family = family_of("depth", &["queue", "state"]);
    let text = lines(&family, |out| out.value(&["a\"b\\c\nd", "queued"], 2));
    assert_eq!(text, "depth{queue=\"a\\\"b\\\\c\\nd\",state=\"queued\"} 2\n");
    let text = lines(&family_of("age_seconds", &[]), |out| out.seconds(&[], 1_500_000));
    assert_eq!(text, "age_seconds 1.5\n");
}

#[test]
fn a_histogram_counts_all_that_lie_below_each_bound() {
    let snapshot = HistogramSnapshot { bounds: &[100, 1_000_000], counts: vec![2, 0, 1], sum: 2_500_000 };
    let text = lines(&family_of("wait_seconds", &[]), |out| out.histogram(&[], &snapshot));
    let expected = "wait_seconds_bucket{le=\"0.0001\"} 2\nwait_seconds_bucket{le=\"1\"} 2\n\
         wait_seconds_bucket{le=\"+Inf\"} 3\nwait_seconds_sum 2.5\nwait_seconds_count 3\n";
    assert_eq!(text, expected);
}

#[test]
fn an_exemplar_follows_the_bucket_of_its_value_in_openmetrics_alone() {
    let snapshot = HistogramSnapshot { bounds: &[100, 1_000_000], counts: vec![2, 1, 0], sum: 500_200 };
    let family = family_of("run_seconds", &[]);
    let trace = TraceContext::of_headers("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "");
    let (duration, at) = (Duration::from_millis(500), Timestamp::from_micros(1_500_000));
    let exemplar = Exemplar { trace: trace.unwrap().trace, duration, at };
    let write = |format| {
        let mut text = String::new();
        let mut samples = Samples { family: &family, text: &mut text, format };
        samples.histogram_with(&[], &snapshot, |bucket| (bucket == 1).then_some(exemplar));
        text
    };
    let line = "run_seconds_bucket{le=\"1\"} 3";
    assert!(write(MetricsFormat::Text).contains(&format!("{line}\n")));
    let text = write(MetricsFormat::OpenMetrics);
    let example = " # {trace_id=\"0af7651916cd43dd8448eb211c80319c\"} 0.5 1.5\n";
    assert!(text.contains(&format!("{line}{example}")), "{text}");
    assert_eq!(text.matches("trace_id").count(), 1, "{text}");
}
