//! Why an execution is on the wait list of a limit, and which executions count against that limit.

use super::{ExplainedFacts, TOLD_MAX, listed, when};
use crate::reasons;
use punctual_core::limiter::LimiterId;
use punctual_core::occurrence::Live;
use punctual_engine::LimitHolder;

/// What an execution behind the concurrency gate waits for; the most important sentence first.
pub(super) fn sentences(live: &Live, facts: &ExplainedFacts) -> Vec<String> {
    let spec = &facts.view.job.spec;
    let key = spec.settings.concurrency_key.as_deref().filter(|_| live.line == live.limiter);
    let (limit, whose) = match key {
        Some(key) => (facts.limits.of_key(), format!("with the key {key:?} in queue {}", spec.queue)),
        None => (facts.limits.of_queue(), format!("of queue {}", spec.queue)),
    };
    let line = live.line.and_then(|line| Some((line, facts.lines.get(&line)?)));
    let Some((line, used)) = line else {
        return vec!["It waits because a concurrency limit is reached.".to_owned()];
    };
    let others = match used.waiting {
        0 | 1 => String::new(),
        waiting => format!(" {waiting} executions wait for this limit in total."),
    };
    match (limit.concurrency.map(u64::from), limit.opens_at(used)) {
        (Some(most), _) if used.in_use >= most => {
            let full = full(used.in_use, most, &whose);
            let mut said = vec![format!("It waits because {full}.{others}")];
            said.extend(holders(line, used.in_use, facts));
            said.extend(stuck(line, facts));
            said
        }
        _ if facts.cluster_pause.is_some() => {
            vec![format!("It is on the wait list until the cluster is resumed.{others}")]
        }
        _ if facts.queue_paused_at.is_some() => {
            vec![format!("It is on the wait list until queue {} is resumed.{others}", spec.queue)]
        }
        (_, Some(next_at)) if next_at > facts.now => {
            let rate = limit.rate.map(|rate| rate.to_string()).unwrap_or_default();
            let next = when(next_at, facts.now);
            vec![format!(
                "It waits for the rate limit of executions {whose}, {rate}: the next one starts at \
                 {next}.{others}"
            )]
        }
        _ => vec![format!(
            "It waits behind other executions {whose}; the limit has room, so they continue \
             shortly.{others}"
        )],
    }
}

/// How many are in use, of how many. After a limit was lowered, more may be in use than it allows.
fn full(in_use: u64, most: u64, whose: &str) -> String {
    if in_use > most {
        let over = in_use - most + 1;
        return format!(
            "{in_use} executions {whose} are queued or running, and the limit is now {most}: {over} of \
             them must end first"
        );
    }
    match most {
        1 => format!("one execution {whose} is queued or running, and the limit is 1"),
        _ => format!("{in_use} of {most} executions {whose} are queued or running"),
    }
}

/// The executions that count against the limit, as many as fit into a sentence.
fn holders(line: LimiterId, in_use: u64, facts: &ExplainedFacts) -> Option<String> {
    let known = facts.holders.get(&line).filter(|known| !known.is_empty())?;
    let one = |holder: &LimitHolder| match &holder.runs {
        Some((worker, since)) => {
            let (execution, name) = (holder.execution, &holder.job_name);
            format!("{execution} ({name}), running on worker {worker} since {}", when(*since, facts.now))
        }
        None => format!("{} ({}), which is queued", holder.execution, holder.job_name),
    };
    let count = usize::try_from(in_use).unwrap_or(usize::MAX).max(known.len());
    let which = listed(known.iter().map(one).collect(), count);
    Some(match count {
        1 => format!("The execution that counts against the limit is {which}."),
        _ => format!("The executions that count against the limit are {which}."),
    })
}

/// Reports holders that cannot run: executions behind them wait until that is fixed, however long it takes.
fn stuck(line: LimiterId, facts: &ExplainedFacts) -> Vec<String> {
    let known = facts.holders.get(&line).into_iter().flatten();
    let stuck = known.filter_map(|holder| Some((holder, why_stuck(holder, facts)?)));
    let said = stuck.map(|(holder, why)| {
        let LimitHolder { execution, job_name, .. } = holder;
        format!("{execution} ({job_name}) counts against the limit and cannot run, as it {why}.")
    });
    said.take(TOLD_MAX).collect()
}

/// Why a holder cannot run; `None` if it can.
fn why_stuck(holder: &LimitHolder, facts: &ExplainedFacts) -> Option<String> {
    if holder.runs.is_some() {
        return None;
    }
    reasons::of_queueing(&holder.lane, &facts.sessions)
}
