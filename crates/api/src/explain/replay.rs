//! Reports that a job replays missed occurrences, how many are left, and what the next one waits for.

use super::{ExplainedFacts, when};
use punctual_core::schedule::{OverlapPolicy, ScheduleState};

pub fn sentence(state: &ScheduleState, facts: &ExplainedFacts) -> Option<String> {
    let replay = state.replay.as_ref()?;
    let left = match state.replays_left() {
        1 => format!("1 missed occurrence is left to replay, of {}", replay.next),
        left => format!("{left} missed occurrences are left to replay, the next one of {}", replay.next),
    };
    let waits_for = match state.due_at {
        None => "the job to be resumed".to_owned(),
        Some(_) if replay.waits => room(state, facts),
        Some(_) => return Some(format!("{left}, at {}.", when(replay.due_at, facts.now))),
    };
    Some(format!("{left}; it waits for {waits_for}."))
}

/// What must change before the next one is opened. The number of open occurrences is left out: a view
/// contains only the latest ones.
fn room(state: &ScheduleState, facts: &ExplainedFacts) -> String {
    let overlap = state.overlap;
    let (max_open, limit) = (overlap.max_open, overlap.limit);
    let end = "all open occurrences of the job to end, because its overlap policy is";
    match overlap.policy {
        _ if facts.view.open.is_empty() => "its turn, which comes shortly".to_owned(),
        OverlapPolicy::Allow => {
            format!("room under max_open ({max_open}), of which one is reserved for regular occurrences")
        }
        OverlapPolicy::Queue => format!(
            "room under overlap_limit ({limit}) and max_open ({max_open}), of each of which one is \
             reserved for regular occurrences"
        ),
        OverlapPolicy::Skip => format!("{end} SKIP"),
        OverlapPolicy::Replace => format!("{end} REPLACE"),
    }
}
