//! The threads of the store: one that takes all waiting requests of its channel at once, and a pool that takes one
//! request at a time. A request must not kill them: a panic becomes the reply and does not affect the next caller.

use crate::failures::{self, FailureKind};
use punctual_core::ports::StoreError;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for a thread; further callers wait until there is room.
const WAITING_MAX: usize = 4_096;

/// A thread that handles all waiting requests together. When this value is dropped, the thread completes all requests
/// that were sent before and ends.
#[derive(Debug)]
pub(crate) struct BatchThread<T> {
    sender: Option<mpsc::Sender<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> BatchThread<T> {
    /// `weight` is the part of `weight_max` that a request takes up; requests that do not fit wait for the
    /// next batch.
    pub fn spawn(
        name: &str,
        weight_max: usize,
        weight: fn(&T) -> usize,
        mut handle: impl FnMut(Vec<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Some(first) = receiver.blocking_recv() {
                let mut total = weight(&first);
                let mut batch = vec![first];
                while total < weight_max
                    && let Ok(next) = receiver.try_recv()
                {
                    total = total.saturating_add(weight(&next));
                    batch.push(next);
                }
                handle(batch);
            }
        })?;
        Ok(BatchThread { sender: Some(sender), thread: Some(thread) })
    }

    pub async fn send(&self, request: T) -> Result<(), StoreError> {
        let sender = self.sender.as_ref().ok_or_else(gone)?;
        sender.send(request).await.map_err(|_| gone())
    }
}

impl<T> Drop for BatchThread<T> {
    fn drop(&mut self) {
        self.sender = None;
        join(self.thread.take());
    }
}

/// Work for a thread of the pool.
type Errand<R> = Box<dyn FnOnce(&mut R) + Send>;

/// Threads that each own an `R` and run the requests they are sent, one at a time.
pub(crate) struct Pool<R> {
    sender: Option<mpsc::Sender<Errand<R>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<R: Send + 'static> Pool<R> {
    pub fn spawn(name: &str, owned: Vec<R>) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<Errand<R>>(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut pool = Pool { sender: Some(sender), threads: Vec::new() };
        for mut resource in owned {
            let receiver = receiver.clone();
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
                loop {
                    let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                    let Some(errand) = next else { break };
                    errand(&mut resource);
                }
            })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub async fn run<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut R) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let errand: Errand<R> = Box::new(move |resource| {
            let result = catch_unwind(AssertUnwindSafe(|| errand(resource)));
            // The receiver is gone if the caller was cancelled.
            let _ = answer.send(result.unwrap_or_else(|panic| Err(panicked(&*panic))));
        });
        let sender = self.sender.as_ref().ok_or_else(gone)?;
        sender.send(errand).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

impl<R> Drop for Pool<R> {
    fn drop(&mut self) {
        self.sender = None;
        for thread in self.threads.drain(..) {
            join(Some(thread));
        }
    }
}

/// The error for callers whose request panicked: a bug that a retry does not fix.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> StoreError {
    failures::count(FailureKind::Panic);
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    StoreError::Broken(format!("panicked: {}", text.unwrap_or("without a message")))
}

/// The error for callers whose thread has ended.
pub(crate) fn gone() -> StoreError {
    StoreError::Unavailable("it is closed".to_owned())
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && thread.join().is_err()
    {
        tracing::error!("a thread of the store has panicked");
    }
}
