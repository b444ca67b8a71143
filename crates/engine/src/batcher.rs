//! Natural batching: items that arrive during a call go into the next one. An idle system adds no latency, a
//! busy one forms large batches, and there is no window to tune.

use punctual_core::ports::{Spawn, StoreError, Task};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

type Flush<I, O> = dyn Fn(Vec<I>) -> Task<Result<Vec<O>, StoreError>> + Send + Sync;

pub(crate) struct Batcher<I, O> {
    shared: Arc<SharedBatches<I, O>>,
    spawn: Arc<dyn Spawn>,
}

struct SharedBatches<I, O> {
    queue: Mutex<Queue<I, O>>,
    flush: Box<Flush<I, O>>,
    /// Items after which a batch is closed; a single larger group is not split.
    batch_max: usize,
}

struct Queue<I, O> {
    groups: VecDeque<CallerGroup<I, O>>,
    flushing: bool,
}

/// The items of one caller, kept together.
struct CallerGroup<I, O> {
    items: Vec<I>,
    reply: oneshot::Sender<Result<Vec<O>, StoreError>>,
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    pub(crate) fn new(
        spawn: Arc<dyn Spawn>,
        batch_max: usize,
        flush: impl Fn(Vec<I>) -> Task<Result<Vec<O>, StoreError>> + Send + Sync + 'static,
    ) -> Self {
        let queue = Mutex::new(Queue { groups: VecDeque::new(), flushing: false });
        Batcher { shared: Arc::new(SharedBatches { queue, flush: Box::new(flush), batch_max }), spawn }
    }

    /// Processes the items together with other waiting ones; returns outcomes in their order.
    ///
    /// The work continues if the caller stops waiting, because other callers may share the batch.
    pub(crate) async fn call(&self, items: Vec<I>) -> Result<Vec<O>, StoreError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let start = {
            let mut queue = self.shared.lock();
            queue.groups.push_back(CallerGroup { items, reply });
            !std::mem::replace(&mut queue.flushing, true)
        };
        if start {
            self.spawn.spawn(Box::pin(self.shared.clone().flush_all()));
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the node is shutting down".to_owned())))
    }
}

impl<I: Send + 'static, O: Send + 'static> SharedBatches<I, O> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue<I, O>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn flush_all(self: Arc<Self>) {
        let _guard = Reopen(&self);
        while let Some(groups) = self.next_batch() {
            let mut items = Vec::with_capacity(groups.iter().map(|group| group.items.len()).sum());
            let mut replies = Vec::with_capacity(groups.len());
            for group in groups {
                replies.push((group.items.len(), group.reply));
                items.extend(group.items);
            }
            let answers = (self.flush)(items).await;
            answer_each(replies, answers);
        }
    }

    /// The groups of the next batch, or `None` when there is nothing to do and the flush ends.
    fn next_batch(&self) -> Option<Vec<CallerGroup<I, O>>> {
        let mut queue = self.lock();
        let mut batch = Vec::new();
        let mut count = 0;
        while let Some(group) = queue.groups.front() {
            count += group.items.len();
            if count > self.batch_max && !batch.is_empty() {
                break;
            }
            batch.extend(queue.groups.pop_front());
        }
        queue.flushing = !batch.is_empty();
        queue.flushing.then_some(batch)
    }
}

/// Lets the next caller start a flush even if this one ends with a panic.
struct Reopen<'a, I: Send + 'static, O: Send + 'static>(&'a SharedBatches<I, O>);

impl<I: Send + 'static, O: Send + 'static> Drop for Reopen<'_, I, O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().flushing = false;
        }
    }
}

type BatchReply<O> = (usize, oneshot::Sender<Result<Vec<O>, StoreError>>);

/// Sends each caller its part. A caller that has stopped waiting is ignored.
fn answer_each<O>(replies: Vec<BatchReply<O>>, answers: Result<Vec<O>, StoreError>) {
    match answers {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for (count, reply) in replies {
                let part: Vec<O> = answers.by_ref().take(count).collect();
                assert_eq!(part.len(), count, "a store verb answers once per item");
                let _ = reply.send(Ok(part));
            }
        }
        Err(error) => {
            for (_, reply) in replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}
