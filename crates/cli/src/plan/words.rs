//! A plan for people.

use super::diff::FieldChange;
use super::{Plan, PlannedAction, PlannedJob, PlannedNotification, Summary};
use crate::schedule::occurrence_rows;
use punctual_client::OccurrencePreview;
use punctual_config::output::one_line;
use punctual_core::job::JobStatus;

/// All changes, and how many there are.
pub fn told(plan: &Plan) -> String {
    let notifications = plan.notifications.iter().filter(|one| one.action != PlannedAction::None);
    let jobs = plan.jobs.iter().filter(|job| job.action != PlannedAction::None);
    let mut text: String = notifications.map(told_notification).chain(jobs.map(told_job)).collect();
    text.extend(plan.jobs.iter().filter_map(ended_line));
    if !text.is_empty() {
        text += "\n";
    }
    let Summary { create, update, delete, unchanged } = plan.summary;
    text + &format!("{create} to create, {update} to update, {delete} to delete, {unchanged} unchanged")
}

fn heading(action: PlannedAction, name: &str) -> String {
    let (mark, action) = match action {
        PlannedAction::Create => ("+", "create"),
        PlannedAction::Update => ("~", "update"),
        PlannedAction::Delete => ("-", "delete, --prune"),
        PlannedAction::None => (" ", "unchanged"),
    };
    format!("{mark} {} ({action})", one_line(name))
}

fn change_lines(changes: &[FieldChange]) -> impl Iterator<Item = String> {
    changes.iter().map(FieldChange::told).map(|change| format!("    {change}"))
}

fn told_notification(one: &PlannedNotification) -> String {
    let heading = heading(one.action, &format!("{} {}", one.kind.word(), one.name));
    let lines: Vec<String> = [heading].into_iter().chain(change_lines(&one.changes)).collect();
    lines.join("\n") + "\n"
}

fn told_job(job: &PlannedJob) -> String {
    let mut lines = vec![heading(job.action, &job.name)];
    lines.extend(change_lines(&job.changes));
    lines.extend(job.note.map(|note| format!("    {note}")));
    if let Some(runs) = &job.next_runs {
        // A new job has no runs before.
        if job.action == PlannedAction::Update {
            lines.extend(told_runs("next runs before", runs.before.as_deref()));
            lines.extend(told_runs("next runs after", runs.after.as_deref()));
        } else {
            lines.extend(told_runs("next runs", runs.after.as_deref()));
        }
    }
    lines.join("\n") + "\n"
}

/// A line about an unchanged job that will not run, although a file has it.
fn ended_line(job: &PlannedJob) -> Option<String> {
    let advice = match (job.action, job.status?) {
        (PlannedAction::None, JobStatus::Cancelled) => "it will not run; delete it and apply again",
        (PlannedAction::None, JobStatus::Failed) => {
            "it will not run again by itself; retry it with `punctual job retry`"
        }
        _ => return None,
    };
    Some(format!("{}: unchanged, but {}: {advice}\n", one_line(&job.name), job.status?.as_str()))
}

fn told_runs(heading: &str, runs: Option<&[OccurrencePreview]>) -> Vec<String> {
    let runs = match runs {
        None => return vec![format!("    {heading}: not recurring")],
        Some([]) => return vec![format!("    {heading}: none")],
        Some(runs) => occurrence_rows(runs),
    };
    let rows = runs.iter().map(|row| format!("      {}", row.join("  ")).trim_end().to_owned());
    [format!("    {heading}:")].into_iter().chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::next_runs::NextRuns;
    use punctual_core::recurrence::DstEffect;
    use serde_json::json;

    #[test]
    fn a_plan_shows_each_change_and_the_runs_around_it() {
        let run = |utc: &str, local: &str, dst| OccurrencePreview {
            scheduled_time: utc.parse().unwrap(),
            local_time: local.to_owned(),
            dst,
            due_at: None,
            schedule: None,
            excluded_by: None,
        };
        let job = |name: &str, action, next_runs| PlannedJob {
            owner_id: "me".to_owned(),
            name: name.to_owned(),
            action,
            job_id: None,
            status: None,
            changes: vec![],
            note: None,
            next_runs,
        };
        let before =
            vec![run("2026-10-25T01:00:00Z", "2026-10-25T02:00:00+01:00", Some(DstEffect::OverlapSecond))];
        let after = vec![run("2026-10-25T08:00:00Z", "2026-10-25T09:00:00+01:00", None)];
        let change = FieldChange {
            field: "cron_expression".to_owned(),
            before: json!("0 2 * * *"),
            after: json!("0 9 * * *"),
        };
        let runs = NextRuns { before: Some(before), after: Some(after.clone()) };
        let channel = PlannedNotification {
            kind: crate::manifest::NotificationType::Channel,
            name: "ops".to_owned(),
            action: PlannedAction::Create,
            changes: vec![],
        };
        let plan = Plan::new(
            vec![channel],
            vec![
                job("new", PlannedAction::Create, Some(NextRuns { before: None, after: Some(after) })),
                PlannedJob { changes: vec![change], ..job("changed", PlannedAction::Update, Some(runs)) },
                job("same", PlannedAction::None, None),
                PlannedJob {
                    status: Some(JobStatus::Cancelled),
                    ..job("stopped", PlannedAction::None, None)
                },
                PlannedJob { status: Some(JobStatus::Failed), ..job("once", PlannedAction::None, None) },
                PlannedJob { status: Some(JobStatus::Active), ..job("well", PlannedAction::None, None) },
                job("old", PlannedAction::Delete, None),
            ],
        );
        insta::assert_snapshot!(told(&plan));
    }
}
