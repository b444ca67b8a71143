//! Queues: their depth, their limits, and whether they are paused.

use super::audit::described;
use super::{UseCase, UseCaseError, UseCases};
use punctual_core::limiter::WaitList;
use punctual_core::names::queue_name_problem;
use punctual_core::ports::{Depth, Page, Pausing, QueueRow, StoreError};
use punctual_core::queue::QueueChange;
use punctual_core::time::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

/// A queue: its settings, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueView {
    pub row: QueueRow,
    pub waiting: u64,
    pub queued: u64,
    pub running: u64,
    pub oldest_queued: Option<Timestamp>,
    /// Executions on the queue's own wait list.
    pub in_line: u64,
}

impl QueueView {
    /// A queue without live work.
    fn idle(row: QueueRow) -> Self {
        QueueView { row, waiting: 0, queued: 0, running: 0, oldest_queued: None, in_line: 0 }
    }

    fn add(&mut self, depth: &Depth) {
        // Counters of a damaged row may be of any size.
        self.waiting = self.waiting.saturating_add(depth.waiting);
        self.queued = self.queued.saturating_add(depth.queued);
        self.running = self.running.saturating_add(depth.running);
        self.oldest_queued = self.oldest_queued.into_iter().chain(depth.oldest_queued).min();
    }
}

impl UseCases {
    /// The queues that have live work, are paused or have settings, by name. A caller that sees only some jobs in
    /// them sees those in which it has live work, with its own figures.
    pub async fn queues(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueView, String>, UseCaseError> {
        self.permit(UseCase::ReadQueues)?;
        let sees_all = self.caller.check_all_jobs_of_queues().is_ok();
        let views = if sees_all {
            by_name(&self.overview().await?.depths, self.store().queues().await?)
        } else {
            self.own_queues().await?
        };
        let mut rest = views
            .into_iter()
            .filter(|(name, _)| after.is_none_or(|after| name.as_str() > after))
            .filter(|(name, _)| self.caller.grant.scope.has_queue(name));
        let mut items: Vec<QueueView> = rest.by_ref().map(|(_, view)| view).take(limit).collect();
        let next = items.last().map(|view| view.row.queue.clone()).filter(|_| rest.next().is_some());
        if sees_all {
            self.read_wait_lists(&mut items).await?;
        }
        Ok(Page { items, next })
    }

    /// Any valid name: an unused queue is empty and not paused.
    pub async fn queue(&self, queue: &str) -> Result<QueueView, UseCaseError> {
        let object = format!("queue {queue}");
        self.permit_on(UseCase::ReadQueues, &object)?;
        self.noted(UseCase::ReadQueues, object, self.caller.check_queue_name(queue))?;
        self.check_name(queue).await?;
        if self.caller.check_all_jobs_of_queues().is_ok() {
            return self.queue_view(queue).await;
        }
        let own = self.own_queues().await?.remove(queue);
        Ok(own.unwrap_or_else(|| QueueView::idle(QueueRow::unset(queue))))
    }

    /// Stores all settings of a queue, or changes some of them. Of two changes at the same time, both take effect.
    pub async fn set_queue(&self, queue: &str, change: QueueChange) -> Result<QueueView, UseCaseError> {
        self.check_queue(UseCase::SetQueue, queue).await?;
        let before = self.store().queues().await?.into_iter().find(|row| row.queue == queue);
        let stored = before.as_ref().map(|row| row.settings.clone()).unwrap_or_default();
        let settings = change.applied_to(&stored);
        let problems = settings.problems();
        if !problems.is_empty() {
            return Err(UseCaseError::Invalid(problems));
        }
        let changes = json!({
            "before": before.map(|row| described(&row.settings)),
            "after": described(&settings),
        });
        let audit = self.audited_with(UseCase::SetQueue, format_args!("queue {queue}"), &changes);
        self.engine.set_queue(queue.to_owned(), change, audit).await?;
        self.queue_view(queue).await
    }

    pub async fn pause_queue(&self, queue: &str, pausing: Pausing) -> Result<QueueView, UseCaseError> {
        let case = match pausing {
            Pausing::Pause => UseCase::PauseQueue,
            Pausing::Resume => UseCase::ResumeQueue,
        };
        self.check_queue(case, queue).await?;
        let found = self.store().queues().await?.into_iter().find(|row| row.queue == queue);
        if let Some(reason) = found.and_then(|row| row.unreadable) {
            return Err(UseCaseError::QueueUnreadable { queue: queue.to_owned(), reason });
        }
        let audit = self.audited(case, format_args!("queue {queue}"));
        self.engine.pause_queue(queue.to_owned(), pausing, audit).await?;
        self.queue_view(queue).await
    }

    /// Whether the caller may change a queue of this name.
    pub async fn check_queue_name(&self, queue: &str) -> Result<(), UseCaseError> {
        self.check_queue(UseCase::SetQueue, queue).await
    }

    async fn check_queue(&self, case: UseCase, queue: &str) -> Result<(), UseCaseError> {
        let object = format!("queue {queue}");
        self.permit_on(case, &object)?;
        self.noted(case, object, self.caller.check_queue(queue))?;
        self.check_name(queue).await
    }

    /// A queue that existed before a rule about names was added stays usable.
    async fn check_name(&self, queue: &str) -> Result<(), UseCaseError> {
        let Some(problem) = queue_name_problem(queue) else { return Ok(()) };
        let is_set = self.store().queues().await?.iter().any(|row| row.queue == queue);
        let is_used = || async {
            Ok::<_, StoreError>(self.overview().await?.depths.iter().any(|depth| depth.lane.queue() == queue))
        };
        if is_set || is_used().await? {
            return Ok(());
        }
        Err(UseCaseError::InvalidQueueName { queue: queue.to_owned(), problem })
    }

    async fn queue_view(&self, queue: &str) -> Result<QueueView, UseCaseError> {
        let overview = self.overview().await?;
        // The settings may have been stored a moment ago.
        let row = self.store().queues().await?.into_iter().find(|row| row.queue == queue);
        let mut view = [QueueView::idle(row.unwrap_or_else(|| QueueRow::unset(queue)))];
        overview
            .depths
            .iter()
            .filter(|depth| depth.lane.queue() == queue)
            .for_each(|depth| view[0].add(depth));
        self.read_wait_lists(&mut view).await?;
        let [view] = view;
        Ok(view)
    }

    async fn read_wait_lists(&self, views: &mut [QueueView]) -> Result<(), StoreError> {
        let is_limited = |view: &&mut QueueView| !view.row.settings.limits.of_queue().is_none();
        let limited: Vec<&mut QueueView> = views.iter_mut().filter(is_limited).collect();
        if limited.is_empty() {
            return Ok(());
        }
        let lines = limited.iter().map(|view| WaitList::of_queue(&view.row.queue)).collect();
        let used = self.store().limiters(lines).await?;
        limited.into_iter().zip(used).for_each(|(view, used)| view.in_line = used.waiting);
        Ok(())
    }
}

pub(super) fn by_name(depths: &[Depth], rows: Vec<QueueRow>) -> BTreeMap<String, QueueView> {
    let mut views: BTreeMap<String, QueueView> =
        rows.into_iter().map(|row| (row.queue.clone(), QueueView::idle(row))).collect();
    for depth in depths {
        let queue = depth.lane.queue();
        match views.get_mut(queue) {
            Some(view) => view.add(depth),
            None => {
                let mut view = QueueView::idle(QueueRow::unset(queue));
                view.add(depth);
                views.insert(queue.to_owned(), view);
            }
        }
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::Lane;

    #[test]
    fn a_queue_adds_up_its_lanes_and_may_have_settings_or_work_alone() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let depth = |queue: &str, job_type: &str, oldest_queued| Depth {
            lane: Lane::new(queue, job_type),
            waiting: 1,
            queued: 2,
            running: 3,
            oldest_queued,
        };
        let depths =
            [depth("mail", "a", Some(at(7))), depth("mail", "b", Some(at(3))), depth("work", "a", None)];
        let paused = QueueRow { paused_at: Some(at(1)), ..QueueRow::unset("idle") };
        let views = by_name(&depths, vec![QueueRow::unset("mail"), paused]);
        let names: Vec<&str> = views.keys().map(String::as_str).collect();
        assert_eq!(names, ["idle", "mail", "work"]);
        let mail = &views["mail"];
        assert_eq!((mail.waiting, mail.queued, mail.running, mail.oldest_queued), (2, 4, 6, Some(at(3))));
        assert!(views["idle"].row.is_held() && views["idle"].queued == 0);
    }
}
