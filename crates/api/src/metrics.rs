//! The Prometheus text format, written by hand: a dozen counters and three gauges need no library.

use punctual_client::{CountersBody, LaneBody, StatsBody};
use std::fmt::Write;

/// A counter: its name without prefix and suffix, what it counts, where it is read.
type CounterRow = (&'static str, &'static str, fn(&CountersBody) -> u64);

const COUNTERS: [CounterRow; 16] = [
    ("jobs_submitted", "Jobs submitted.", |c| c.submitted),
    ("occurrences_fired", "Occurrences fired by schedules.", |c| c.fired),
    ("occurrences_skipped", "Occurrences that did not run, for a recorded reason.", |c| c.skipped),
    ("fire_conflicts", "Fires that found the schedule already fired or changed.", |c| c.fire_conflicts),
    ("executions_claimed", "Executions leased to workers.", |c| c.claimed),
    ("executions_succeeded", "Executions that succeeded.", |c| c.succeeded),
    ("executions_failed", "Executions that failed.", |c| c.failed),
    ("executions_timed_out", "Executions that ran out of time.", |c| c.timed_out),
    ("executions_cancelled", "Executions that were cancelled.", |c| c.cancelled),
    ("executions_expired", "Executions that expired before they could start.", |c| c.expired),
    ("executions_lost", "Executions whose worker session fell silent.", |c| c.lost),
    ("executions_retried", "Attempts that follow a failed one.", |c| c.retried),
    ("executions_given_back", "Executions returned unstarted.", |c| c.given_back),
    ("stale_reports", "Reports refused because their lease was gone.", |c| c.stale_reports),
    ("sessions_lost", "Worker sessions declared lost.", |c| c.sessions_lost),
    ("store_errors", "Calls to the store that failed.", |c| c.store_errors),
];

pub fn exposition(stats: &StatsBody) -> String {
    let mut text = String::with_capacity(4_096);
    for (name, help, value) in COUNTERS {
        header(&mut text, &format!("punctual_{name}_total"), help, "counter");
        line(&mut text, &format!("punctual_{name}_total"), &[], value(&stats.counters) as f64);
    }
    header(&mut text, "punctual_executions", "Live executions by state.", "gauge");
    for lane in &stats.queues {
        for (state, count) in [("waiting", lane.waiting), ("queued", lane.queued), ("running", lane.running)]
        {
            let labels = [("queue", lane.queue.as_str()), ("job_type", &lane.job_type), ("state", state)];
            line(&mut text, "punctual_executions", &labels, count as f64);
        }
    }
    let help = "How long the oldest queued execution has been claimable.";
    header(&mut text, "punctual_oldest_queued_seconds", help, "gauge");
    for lane in &stats.queues {
        let labels = [("queue", lane.queue.as_str()), ("job_type", &lane.job_type)];
        line(&mut text, "punctual_oldest_queued_seconds", &labels, oldest_seconds(lane, stats));
    }
    header(&mut text, "punctual_workers", "Live worker sessions.", "gauge");
    line(&mut text, "punctual_workers", &[], stats.workers.len() as f64);
    text
}

fn oldest_seconds(lane: &LaneBody, stats: &StatsBody) -> f64 {
    lane.oldest_queued_at.map_or(0.0, |since| stats.now.since(since).as_secs_f64())
}

fn header(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    text.push_str(name);
    for (place, (label, content)) in labels.iter().enumerate() {
        let _ = write!(text, "{}{label}=\"{}\"", if place == 0 { '{' } else { ',' }, escaped(content));
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

fn escaped(content: &str) -> String {
    content.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::time::Timestamp;

    #[test]
    fn labels_are_escaped_and_values_are_plain_numbers() {
        let stats = StatsBody {
            now: Timestamp::from_micros(2_500_000),
            queues: vec![LaneBody {
                queue: "a\"b\\c\nd".to_owned(),
                job_type: "noop".to_owned(),
                waiting: 1,
                queued: 2,
                running: 3,
                oldest_queued_at: Some(Timestamp::from_micros(1_000_000)),
            }],
            workers: vec![],
            counters: CountersBody { submitted: 7, ..CountersBody::default() },
        };
        let text = exposition(&stats);
        assert!(text.contains("\npunctual_jobs_submitted_total 7\n"), "{text}");
        let labels = r#"{queue="a\"b\\c\nd",job_type="noop""#;
        assert!(text.contains(&format!("\npunctual_executions{labels},state=\"queued\"}} 2\n")), "{text}");
        assert!(text.contains(&format!("\npunctual_oldest_queued_seconds{labels}}} 1.5\n")), "{text}");
    }
}
