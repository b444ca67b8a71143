//! Notifications: turns history and the state of jobs and queues into deliveries, and sends them. Both are duties of
//! the leader, and correct with two of them: each step stores deliveries, alerts and the place up to which history
//! was read in one transaction that compares versions.
//!
//! [`reconciler`] holds what a leader remembers and commits its findings; [`history`], [`missed`], [`watch`] and
//! [`members`] find events, [`reasons`] explains them, and [`ending`] ends alerts; [`targets`] chooses channels;
//! [`deliver`] sends. The rules about channels and selectors are in core.

mod channels;
mod deliver;
mod ending;
mod facts;
mod history;
mod members;
mod missed;
mod reasons;
mod reconciler;
mod stored;
mod targets;
mod watch;

pub(crate) use channels::{NOT_FOR_CHANNELS, bound_to, is_usable, read_channel, resolved};
pub(crate) use deliver::{DONE, PENDING, ack_key, message_of, read_delivery};
pub(crate) use facts::{KnownJobs, cut_error, next_attempt};
pub(crate) use stored::{
    InDocument, STOPPED, StoredAs, add, all, begun, commit, moved, read, remove, replace,
};

use crate::{Duties, EngineContext};
use futures_util::future::join;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use punctual_core::limits;
use punctual_core::notify::NotifySettings;
use punctual_core::ports::{Notifier, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use reconciler::Reconciler;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stored::{HISTORY, NotifyCursor, Used};

/// What a node needs to send notifications.
#[derive(Debug, Clone)]
pub struct NotificationConfig {
    pub notifier: Arc<dyn Notifier>,
    /// How long events of one group are collected before they are sent together.
    pub window: Duration,
    /// How often a notification about a lasting problem is repeated.
    pub repeat: Duration,
    /// Called every minute, so that a monitor elsewhere notices when no process is left.
    pub heartbeat_url: Option<String>,
    /// The address of the API in messages.
    pub public_url: Option<String>,
}

impl NotificationConfig {
    /// The address of a page of the dashboard, in messages.
    fn page(&self, path: &str) -> Option<String> {
        let url = self.public_url.as_ref()?;
        Some(format!("{}/ui/{path}", url.trim_end_matches('/')))
    }

    /// The page of a queue.
    fn queue_page(&self, queue: &str) -> Option<String> {
        self.page(&format!("queues/{}", in_url(queue)))
    }
}

/// A name as a part of a URL.
fn in_url(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, NON_ALPHANUMERIC)
}

/// What the use cases of this node tell the loop.
#[derive(Debug, Default)]
pub(crate) struct NotifySignals {
    /// Rules, silences, channels or the `notify` of a job have changed.
    changed: AtomicBool,
    /// Uses that are known to be stored.
    used: [AtomicBool; Used::ALL.len()],
}

impl NotifySignals {
    pub fn changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }
}

pub(crate) async fn notify(context: &EngineContext) {
    let Some(config) = &context.config.notifications else { return };
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    join(find(context, config), send(context, config)).await;
}

/// Finds events, and stores their deliveries.
async fn find(context: &EngineContext, config: &NotificationConfig) {
    let mut reconciler: Option<Reconciler> = None;
    loop {
        context.host.clock.sleep(limits::NOTIFY_INTERVAL).await;
        if !context.leads() {
            reconciler = None;
            continue;
        }
        if let Err(error) = find_once(context, config, &mut reconciler).await {
            reconciler = None;
            tracing::warn!(%error, "events could not be looked for; retrying");
        }
    }
}

async fn find_once(
    context: &EngineContext,
    config: &NotificationConfig,
    kept: &mut Option<Reconciler>,
) -> Result<(), StoreError> {
    let store = &*context.store;
    if is_stopped(context).await? {
        *kept = None;
        return Ok(());
    }
    let Some(cursor) = read::<NotifyCursor>(store, HISTORY).await? else { return Ok(()) };
    let reconciler = match kept {
        Some(reconciler) => reconciler,
        None => kept.insert(Reconciler::load(context, config).await?),
    };
    reconciler.step(context, cursor).await
}

/// A copy of a store must not notify the people of the original.
pub(crate) async fn is_stopped(context: &EngineContext) -> Result<bool, StoreError> {
    Ok(read::<serde_json::Value>(&*context.store, STOPPED).await?.is_some())
}

/// Sends deliveries, and deletes old ones.
async fn send(context: &EngineContext, config: &NotificationConfig) {
    let (mut pinged_at, mut retained_at): (Option<Monotonic>, Option<Monotonic>) = (None, None);
    loop {
        context.host.clock.sleep(limits::NOTIFY_INTERVAL).await;
        if !context.leads() {
            continue;
        }
        let is_stopped = match is_stopped(context).await {
            Ok(is_stopped) => is_stopped,
            Err(error) => {
                tracing::warn!(%error, "notifications could not be sent; retrying");
                continue;
            }
        };
        let now = context.host.clock.monotonic();
        let is_over = |at: Option<Monotonic>, span| at.is_none_or(|at| now.since(at) >= span);
        // A copy of a store must not report the health of the original, nor a server whose store does not answer.
        if let Some(url) = &config.heartbeat_url
            && !is_stopped
            && is_over(pinged_at, limits::HEARTBEAT_URL_INTERVAL)
        {
            pinged_at = Some(now);
            if let Err(error) = config.notifier.ping(url).await {
                tracing::warn!(%error, "the heartbeat URL could not be called; trying again in a minute");
            }
        }
        if !is_stopped && let Err(error) = deliver::send_due(context, config).await {
            tracing::warn!(%error, "notifications could not be sent; retrying");
        }
        if is_over(retained_at, context.config.retain_interval) {
            retained_at = Some(now);
            if let Err(error) = deliver::retain(context).await {
                tracing::warn!(%error, "old deliveries could not be deleted; retrying later");
            }
        }
    }
}

impl EngineContext {
    /// The time by which messages are sent: that of the store, but of the machine if schedules follow a driven clock.
    pub(crate) fn delivery_now(&self) -> Timestamp {
        let is_driven = !Arc::ptr_eq(&self.host.clock, &self.host.calendar);
        if is_driven { self.host.clock.wall() } else { self.time.now() }
    }

    /// Stores, before a job or rule exists that may cause notifications, from where on history is read. So the first
    /// event is found, and older history is not.
    pub(crate) async fn begin_notifying(&self) -> Result<(), StoreError> {
        self.mark_used(Used::History).await
    }

    /// The same for a job with these settings, and what they need to be looked for.
    pub(crate) async fn begin_notifying_of(&self, notify: &NotifySettings) -> Result<(), StoreError> {
        if notify.is_empty() {
            return Ok(());
        }
        self.mark_used(Used::History).await?;
        if !notify.on_success.is_empty() {
            self.mark_used(Used::Successes).await?;
        }
        if !notify.on_late.is_empty() {
            self.mark_used(Used::Late).await?;
        }
        if !notify.on_missed.is_empty() {
            self.mark_used(Used::Missed).await?;
        }
        self.notify.changed();
        Ok(())
    }

    async fn mark_used(&self, used: Used) -> Result<(), StoreError> {
        let known = &self.notify.used[used as usize];
        if !known.load(Ordering::Relaxed) {
            stored::mark_used(&*self.store, self.time.now(), used).await?;
            known.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
