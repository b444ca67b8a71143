//! Makes output comparable: whatever differs between runs is replaced by its kind.

use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::time::Timestamp;
use std::process::Output;

/// Standard output, standard error and the exit code, in comparable form.
pub fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| redacted(&String::from_utf8_lossy(bytes));
    let mut shown = format!("exit {}\n{}", output.status.code().unwrap_or(-1), text(&output.stdout));
    if !output.stderr.is_empty() {
        shown += &format!("\n--- stderr\n{}", text(&output.stderr));
    }
    shown
}

/// Ids, times, durations and addresses replaced by names; columns one or two spaces apart.
pub fn redacted(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let mut words = Vec::new();
        for column in line.trim_end().split("  ").map(str::trim).filter(|column| !column.is_empty()) {
            words.push(match column {
                span if is_short(span) => "[short]".to_owned(),
                column => column.split(' ').map(redacted_word).collect::<Vec<_>>().join(" "),
            });
        }
        words.join("  ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A run without work takes almost no time; on a busy machine some milliseconds, rarely seconds.
fn is_short(column: &str) -> bool {
    column == "<1ms"
        || column
            .strip_suffix("ms")
            .or(column.strip_suffix('s'))
            .is_some_and(|number| number.parse::<f64>().is_ok())
}

fn redacted_word(word: &str) -> String {
    let bare = word.trim_matches(['"', ',', ':', ';', '(', ')', '`', '.']);
    let kind = if bare.parse::<JobId>().is_ok() {
        "[job]"
    } else if bare.parse::<OccurrenceId>().is_ok() {
        "[occurrence]"
    } else if bare.parse::<ExecutionId>().is_ok() {
        "[execution]"
    } else if bare.parse::<Timestamp>().is_ok() {
        "[time]"
    } else if bare.starts_with("http://127.0.0.1:") {
        "[server]"
    } else {
        return word.to_owned();
    };
    word.replace(bare, kind)
}
