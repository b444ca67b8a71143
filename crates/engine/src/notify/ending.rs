//! The ends of alerts: conditions that no longer hold, and jobs that will not run again.

use super::reconciler::{NotifyFindings, Reconciler};
use super::targets::{MessageTarget, Targets};
use crate::EngineContext;
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::notify::{Alert, EventKind, NotificationEvent};
use punctual_core::ports::StoreError;
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

/// Alerts about jobs that their runs end.
const OF_JOBS: [&str; 3] = ["failed~", "late~", "missed~"];

/// Who gets a message about the end of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndAudience {
    /// All channels that were notified.
    Notified,
    /// Those of services that close an incident.
    Incidents,
}

/// The places of the walk through alerts about jobs.
#[derive(Default)]
pub(super) struct OverWalk {
    after: Option<String>,
    /// Alerts whose job will not run again. History that was not read then may still show a success.
    seen: BTreeSet<String>,
}

impl Reconciler {
    /// Ends the alerts of this kind whose condition no longer holds.
    pub(super) fn end_unfounded(
        &mut self,
        prefix: &str,
        founded: &BTreeSet<String>,
        now: Timestamp,
        findings: &mut NotifyFindings,
    ) {
        let unfounded: Vec<String> = self
            .alerts
            .keys()
            .filter(|name| name.starts_with(prefix) && !founded.contains(*name))
            .cloned()
            .collect();
        for name in unfounded {
            let Some(alert) = self.end_alert(&name, findings) else { continue };
            let text = format!("The alert {} has ended.", alert.kind);
            self.send_end(&name, alert, (EndAudience::Notified, text), now, findings);
        }
    }

    /// Sends the end of an alert. Incidents are closed even during silences and quiet times.
    pub(super) fn send_end(
        &self,
        name: &str,
        alert: Alert,
        (audience, explanation): (EndAudience, String),
        now: Timestamp,
        findings: &mut NotifyFindings,
    ) {
        let event = NotificationEvent {
            event_id: format!("{name}:resolved:{now}"),
            kind: EventKind::Resolved,
            at: now,
            explanation,
            since: Some(alert.since),
            command: None,
            ..alert.event
        };
        let rule = self.rules.iter().find(|(rule, _)| alert.rule.as_ref() == Some(rule));
        let mute = rule.and_then(|(_, rule)| rule.mute.as_ref());
        let is_for_all = audience == EndAudience::Notified && !self.is_silenced(event.subject(), now);
        let mut targets = Targets::default();
        for label in alert.channels.iter().filter(|label| is_for_all && !self.has_incidents(label)) {
            self.add_label(&mut targets, label, mute, now);
        }
        self.add_incidents(&mut targets, &alert.channels);
        self.send(now, targets.channels.into_values(), name, &event, findings);
    }

    /// Adds the channels of services that close their incident when the alert is resolved.
    pub(super) fn add_incidents<'a>(
        &self,
        targets: &mut Targets,
        named: impl IntoIterator<Item = &'a String>,
    ) {
        for channel in named.into_iter().filter(|channel| self.has_incidents(channel)) {
            let target = MessageTarget { channel: channel.clone(), to: None, held_by: vec![] };
            targets.channels.insert(channel.clone(), target);
        }
    }

    /// Ends alerts about jobs that will not run again. Needs history that was read to its end.
    pub(super) async fn end_of_over_jobs(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        if !self.watch.is_due(context.host.clock.monotonic()) {
            return Ok(());
        }
        let after = self.watch.over.after.take().unwrap_or_default();
        let mut names: Vec<(String, JobId)> = vec![];
        for (name, stored) in self.alerts.range(after..) {
            if names.len() == limits::NOTIFY_OVER_MAX {
                self.watch.over.after = Some(name.clone());
                break;
            }
            if let (true, Some(job)) =
                (OF_JOBS.iter().any(|of| name.starts_with(of)), stored.alert.event.job_id)
            {
                names.push((name.clone(), job));
            }
        }
        let now = context.time.now();
        for (name, job) in names {
            let Some(why) = self.why_over(context, (&name, job), now).await? else {
                self.watch.over.seen.remove(&name);
                continue;
            };
            if self.watch.over.seen.insert(name.clone()) {
                continue;
            }
            self.watch.over.seen.remove(&name);
            let Some(alert) = self.end_alert(&name, findings) else { continue };
            let text = format!("The alert {} has ended: {why}.", alert.kind);
            self.send_end(&name, alert, (EndAudience::Notified, text), now, findings);
        }
        Ok(())
    }

    /// Why the job of an alert will not run again. If its schedule has ended, somebody must have had the time to
    /// see the alert.
    async fn why_over(
        &self,
        context: &EngineContext,
        (name, job): (&str, JobId),
        now: Timestamp,
    ) -> Result<Option<&'static str>, StoreError> {
        let Some(view) = context.store.job(job).await? else { return Ok(Some("the job was deleted")) };
        let is_seen = || {
            self.alerts.get(name).is_some_and(|stored| {
                let alert = &stored.alert;
                alert.acknowledged.is_some() || now.since(alert.event.at) >= self.config.repeat
            })
        };
        Ok(match view.status() {
            JobStatus::Cancelled => Some("the job was cancelled"),
            JobStatus::Completed | JobStatus::Failed if is_seen() => Some("the job has no further runs"),
            _ => None,
        })
    }
}
