//! Nodes that fire nothing, and workers that stop sending heartbeats.

use super::ending::EndAudience;
use super::reconciler::{NotifyFindings, RaisedAlert, Reconciler, cut_name};
use super::targets::Targets;
use crate::EngineContext;
use punctual_core::cluster::Card;
use punctual_core::limits;
use punctual_core::notify::{EventKind, NotificationEvent, NotificationRule, RuleEvent};
use punctual_core::ports::{SessionRow, StoreError};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

impl Reconciler {
    /// Schedulers that fire nothing, because their clock is off or they do not reach the store; and too few nodes.
    pub(super) async fn nodes(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        let rules = self.rules_with(RuleEvent::NodeNotReady);
        let participation = context.cluster.participation.as_ref().filter(|_| !rules.is_empty());
        let Some(participation) = participation else {
            self.end_unfounded("node~", &BTreeSet::new(), now, findings);
            return Ok(());
        };
        let roster = match context.ask(participation.coordination.look()).await {
            Ok(roster) => roster,
            Err(error) => {
                tracing::debug!(%error, "nodes could not be checked");
                return Ok(());
            }
        };
        let cards: Vec<Card> = roster.members.iter().filter_map(|member| Card::read(&member.card)).collect();
        let is_ready = |card: &&Card| card.stands || !card.roles.iter().any(|role| role == "scheduler");
        let ready = cards.iter().filter(is_ready).count();
        let unready: BTreeSet<&str> =
            cards.iter().filter(|card| !is_ready(card)).map(|card| card.node_id.as_str()).collect();
        let mut founded = BTreeSet::new();
        for (rule_name, rule) in &rules {
            let nodes = unready.iter().map(|node| {
                let text =
                    "It fires nothing: its clock is off, it does not reach the store, or it shuts down.";
                (*node, *node, text.to_owned())
            });
            let least = rule.ready_nodes_below.filter(|least| ready < *least as usize);
            let cluster = least.map(|least| {
                let nodes = if ready == 1 { "node is" } else { "nodes are" };
                ("", "cluster", format!("{ready} {nodes} ready, fewer than {least}."))
            });
            for (node, called, text) in nodes.chain(cluster) {
                let name = cut_name(&format!("node~{rule_name}~{node}")).into_owned();
                let event = NotificationEvent {
                    command: Some("punctual nodes".to_owned()),
                    url: self.config.page("workers"),
                    ..NotificationEvent::new(
                        format!("{name}:{now}"),
                        EventKind::NodeNotReady,
                        now,
                        called,
                        text,
                    )
                };
                founded.insert(name.clone());
                let since = self.pend(&name, event.clone(), findings);
                if now.since(since) >= limits::NODE_NOT_READY_AFTER {
                    self.raise_of_rule(&name, (rule_name, rule), event, now, findings);
                }
            }
        }
        self.end_unfounded("node~", &founded, now, findings);
        Ok(())
    }

    /// Sessions that have disappeared after a silence. One that was closed was not silent before. The silence is stored
    /// as an alert that is pending, so that another leader knows of it when the session is gone.
    pub(super) async fn workers(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let now = context.time.now();
        let rules = self.rules_with(RuleEvent::WorkerLost);
        if rules.is_empty() {
            self.end_unfounded("worker~", &BTreeSet::new(), now, findings);
            return Ok(());
        }
        let rows = context.store.sessions().await?;
        let mut open = BTreeSet::new();
        for row in &rows {
            let name = alert_of(row);
            open.insert(name.clone());
            let is_silent = now.since(row.beaten_at) * 2 >= row.pulse.lease;
            if is_silent {
                let text = format!(
                    "Session {} of the worker {} stopped sending heartbeats.",
                    row.pulse.session, row.worker
                );
                let event = NotificationEvent {
                    command: Some("punctual workers list".to_owned()),
                    url: self.config.page("workers"),
                    ..NotificationEvent::new(
                        format!("silent:{}", row.pulse.session),
                        EventKind::WorkerLost,
                        now,
                        &row.worker,
                        text,
                    )
                };
                self.pend(&name, event, findings);
            } else if self.alerts.get(&name).is_some_and(|stored| stored.alert.count == 0) {
                self.end_alert(&name, findings);
            }
        }
        let names = self.alerts.range("worker~".to_owned().."worker~~".to_owned()).map(|(name, _)| name);
        let gone: Vec<String> = names.filter(|name| !open.contains(*name)).cloned().collect();
        for name in gone {
            self.worker_gone(&name, &rules, &rows, now, findings);
        }
        Ok(())
    }

    /// A session that was silent is gone. The alert ends when the worker is back, or after a day.
    fn worker_gone(
        &mut self,
        name: &str,
        rules: &[(String, NotificationRule)],
        rows: &[SessionRow],
        now: Timestamp,
        findings: &mut NotifyFindings,
    ) {
        let Some(alert) = self.alerts.get(name).map(|stored| stored.alert.clone()) else { return };
        if alert.count == 0 {
            let event =
                NotificationEvent { event_id: name.replacen('~', ".lost:", 1), at: now, ..alert.event };
            let raised = RaisedAlert { name, event, occurrences: 1, rule: None, now };
            let targets_at = |known: &Self, _| {
                let mut targets = Targets::default();
                rules.iter().for_each(|(_, rule)| known.add_rule(&mut targets, rule, None, now));
                targets
            };
            self.raise(raised, targets_at, findings);
            return;
        }
        let is_back = rows.iter().any(|row| row.worker == alert.event.name && row.opened_at > alert.since);
        let end = match is_back {
            true => (EndAudience::Notified, "The worker has connected again.".to_owned()),
            false if now.since(alert.since) < limits::WORKER_LOST_KEPT => return,
            false => (EndAudience::Incidents, "The worker has not connected again within a day.".to_owned()),
        };
        self.end_alert(name, findings);
        self.send_end(name, alert, end, now, findings);
    }
}

/// The alert about one session.
fn alert_of(row: &SessionRow) -> String {
    cut_name(&format!("worker~{}~{}", row.pulse.session, row.worker)).into_owned()
}
