//! Sends due deliveries. A delivery is claimed by a change of its document, sent, and then stored as sent: a crash
//! in between sends it again, with the same id.

use super::NotificationConfig;
use super::channels::{ReadyChannel, read_channel, resolved};
use super::stored::{StoredAs, add, all, commit, read, remove, replace};
use crate::{EngineContext, cluster_key};
use futures_util::future::join_all;
use punctual_core::limits;
use punctual_core::notify::{
    AckClaim, AckKey, Channel, Delivery, DeliveryState, EventKind, NotificationEvent, OutgoingMessage,
    Silence, delivery_id, retry_after,
};
use punctual_core::ports::{DocumentChange, DocumentKind, SendError, StoreError};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The first part of the names of deliveries that wait, and of those that are over. The latter come first in the
/// order of names.
pub(crate) const PENDING: &str = "p~";
pub(crate) const DONE: &str = "d~";

pub(super) async fn send_due(context: &EngineContext, config: &NotificationConfig) -> Result<(), StoreError> {
    let channels = due_by_channel(context).await?;
    let first = channels.into_values().take(limits::DELIVERIES_SENT_AT_ONCE);
    let sent = join_all(first.map(|deliveries| async {
        for delivery in deliveries {
            // A receiver that does not answer must not delay the others, so its other messages wait.
            if !send(context, config, delivery).await? {
                break;
            }
        }
        Ok(())
    }));
    sent.await.into_iter().collect()
}

/// The first due deliveries of each channel, as many as one step sends.
async fn due_by_channel(
    context: &EngineContext,
) -> Result<BTreeMap<String, Vec<StoredAs<Delivery>>>, StoreError> {
    let now = context.delivery_now();
    let mut due = all::<Delivery>(&*context.store, Some(PENDING), usize::MAX).await?;
    let mut groups: BTreeMap<(String, String), Vec<DeliveryOrder>> = BTreeMap::new();
    let group_of = |delivery: &Delivery| (delivery.channel.clone(), delivery.group.clone());
    for delivery in due.iter().map(|delivery| &delivery.value) {
        groups.entry(group_of(delivery)).or_default().push(DeliveryOrder::of(delivery));
    }
    // A message that closes an incident must not overtake the one that opens it, nor the one that opens it again.
    let is_next = |delivery: &Delivery| {
        let own = DeliveryOrder::of(delivery);
        let mut others = groups.get(&group_of(delivery)).into_iter().flatten();
        !others.any(|other| other.kind != own.kind && other.place < own.place)
    };
    due.retain(|delivery| delivery.value.due_at <= now && is_next(&delivery.value));
    let calendars: BTreeSet<String> = due.iter().flat_map(|one| one.value.held_by.iter().cloned()).collect();
    if !calendars.is_empty() {
        let calendars = context.calendars_named(&calendars.into_iter().collect::<Vec<_>>()).await?;
        let at = context.time.now();
        let excludes = |name: &String| calendars.get(name).is_some_and(|calendar| calendar.excludes(at));
        due.retain(|delivery| !delivery.value.held_by.iter().any(excludes));
    }
    let mut channels: BTreeMap<String, Vec<StoredAs<Delivery>>> = BTreeMap::new();
    for delivery in due {
        channels.entry(delivery.value.channel.clone()).or_default().push(delivery);
    }
    for deliveries in channels.values_mut() {
        // The order of one channel is the order of its events.
        deliveries
            .sort_by(|one, other| (one.value.due_at, &other.name).cmp(&(other.value.due_at, &one.name)));
        deliveries.truncate(limits::DELIVERIES_SENT_AT_ONCE);
    }
    Ok(channels)
}

/// Where a delivery comes among those of its group.
struct DeliveryOrder {
    kind: EventKind,
    /// When it was made, the time of its last event, and whether it ends an alert.
    place: (Timestamp, Option<Timestamp>, bool),
}

impl DeliveryOrder {
    fn of(delivery: &Delivery) -> Self {
        let kind = delivery.kind();
        let last = delivery.events.last().map(|event| event.at);
        DeliveryOrder { kind, place: (delivery.created_at, last, kind.is_resolution()) }
    }
}

/// Returns whether it arrived, or another leader sends it.
async fn send(
    context: &EngineContext,
    config: &NotificationConfig,
    mut delivery: StoredAs<Delivery>,
) -> Result<bool, StoreError> {
    let store = &*context.store;
    let now = context.delivery_now();
    let age = delivery.value.tried_for(now);
    if delivery.value.unfinished >= limits::DELIVERY_UNFINISHED_MAX {
        give_up(context, delivery).await?;
        return Ok(true);
    }
    delivery.value.first_attempt_at.get_or_insert(now);
    delivery.value.attempts += 1;
    delivery.value.unfinished += 1;
    delivery.value.last_attempt_at = Some(now);
    // Until then, no other leader tries it.
    let next = retry_after(delivery.value.attempts, age).map(|pause| pause.max(limits::DELIVERY_TIMEOUT * 2));
    delivery.value.due_at = now.plus(next.unwrap_or(limits::DELIVERY_TIMEOUT * 2));
    if !commit(store, vec![replace(&delivery)?]).await? {
        return Ok(true);
    }
    delivery.version += 1;
    let result = attempt(context, config, &delivery).await?;
    delivery.value.unfinished = 0;
    let now = context.delivery_now();
    let finished = match result {
        Ok(()) => Some(DeliveryState::Sent),
        Err(error) => {
            let (channel, id) = (&delivery.value.channel, id_of(&delivery.name));
            tracing::warn!(channel, delivery = id, %error, "a notification was not delivered");
            let is_final = matches!(error, SendError::Gone(_));
            delivery.value.last_error = Some(error.to_string());
            match retry_after(delivery.value.attempts, age) {
                Some(pause) if !is_final => {
                    delivery.value.due_at = now.plus(pause);
                    None
                }
                _ => Some(DeliveryState::Failed),
            }
        }
    };
    let changes = match finished {
        None => vec![replace(&delivery)?],
        Some(state) => {
            delivery.value.state = state;
            delivery.value.finished_at = Some(now);
            if state == DeliveryState::Sent {
                delivery.value.last_error = None;
            }
            vec![remove(&delivery), add(&format!("{DONE}{}", id_of(&delivery.name)), &delivery.value)?]
        }
    };
    // If another leader was faster, it has sent the message as well, with the same id.
    commit(store, changes).await?;
    Ok(finished == Some(DeliveryState::Sent))
}

/// Ends a delivery without an attempt: the process has ended during each of the last ones.
async fn give_up(context: &EngineContext, mut delivery: StoredAs<Delivery>) -> Result<(), StoreError> {
    let (channel, id) = (&delivery.value.channel, id_of(&delivery.name));
    tracing::error!(
        channel,
        delivery = id,
        "a notification is given up: the process ended whenever it was sent"
    );
    delivery.value.state = DeliveryState::Failed;
    delivery.value.finished_at = Some(context.delivery_now());
    delivery.value.last_error =
        Some(format!("the process ended during {} attempts in a row", delivery.value.unfinished));
    let done = add(&format!("{DONE}{}", id_of(&delivery.name)), &delivery.value)?;
    commit(&*context.store, vec![remove(&delivery), done]).await.map(drop)
}

async fn attempt(
    context: &EngineContext,
    config: &NotificationConfig,
    delivery: &StoredAs<Delivery>,
) -> Result<Result<(), SendError>, StoreError> {
    let name = &delivery.value.channel;
    let Some(stored) = read_channel(context, name).await? else {
        return Ok(Err(SendError::Gone(format!("there is no channel {name}"))));
    };
    if let Some(reason) = &stored.value.disabled {
        return Ok(Err(SendError::Gone(format!("the channel {name} is disabled: {reason}"))));
    }
    let mut channel = match resolved(context, &stored).await? {
        Ok(channel) => channel,
        Err(error) => return Ok(Err(SendError::Failed(error))),
    };
    if let Some(to) = &delivery.value.to {
        channel.channel.to = vec![to.clone()];
    }
    let message = message_of(context, id_of(&delivery.name), &delivery.value, channel).await?;
    let sent = config.notifier.send(message).await;
    if let Err(SendError::Gone(reason)) = &sent {
        disable(context, stored, reason).await?;
    }
    Ok(sent)
}

/// The message of a delivery, with lines of the log if the channel includes them.
pub(crate) async fn message_of(
    context: &EngineContext,
    id: &str,
    delivery: &Delivery,
    ReadyChannel { channel, is_configured }: ReadyChannel,
) -> Result<OutgoingMessage, StoreError> {
    let execution = delivery.events.first().and_then(|event| event.execution_id);
    let logs = match execution {
        Some(execution) if channel.include_logs && delivery.count == 1 => {
            let lines = context.store.last_logs(execution, None, limits::MESSAGE_LOG_LINES).await?;
            lines.into_iter().map(|line| line.message).collect()
        }
        _ => vec![],
    };
    Ok(OutgoingMessage {
        id: format!("msg_{id}"),
        sent_at: context.host.clock.wall(),
        channel,
        is_trusted: is_configured,
        dedup_key: format!("punctual/{}", delivery.group),
        events: with_links(context, delivery).await?,
        count: delivery.count,
        logs,
    })
}

/// The events, with links that acknowledge their alerts.
async fn with_links(
    context: &EngineContext,
    delivery: &Delivery,
) -> Result<Vec<NotificationEvent>, StoreError> {
    let mut events = delivery.events.clone();
    let url = context.config.notifications.as_ref().and_then(|config| config.public_url.as_ref());
    let has_alert = events.iter().any(|event| event.alert_id.is_some() && !event.kind.is_good());
    let Some(url) = url.filter(|_| has_alert) else { return Ok(events) };
    let key = ack_key(context).await?;
    for event in events.iter_mut().filter(|event| !event.kind.is_good()) {
        let (Some(alert), Some(since)) = (&event.alert_id, event.since) else { continue };
        let claim = AckClaim {
            alert: alert.clone(),
            since,
            channel: delivery.channel.clone(),
            expires_at: context.time.now().plus(limits::ACK_LINK_VALID),
        };
        event.ack_url = Some(format!("{}/acknowledge?t={}", url.trim_end_matches('/'), key.token(&claim)));
    }
    Ok(events)
}

/// The key of links that acknowledge alerts.
pub(crate) async fn ack_key(context: &EngineContext) -> Result<AckKey, StoreError> {
    let mut fresh = [0; 32];
    for part in fresh.chunks_exact_mut(8) {
        part.copy_from_slice(&context.host.random.next_u64().to_le_bytes());
    }
    Ok(AckKey::of(cluster_key(&*context.store, context.time.now(), fresh).await?))
}

/// The receiver has answered 410: nothing is sent until the channel is set again.
async fn disable(
    context: &EngineContext,
    mut channel: StoredAs<Channel>,
    reason: &str,
) -> Result<(), StoreError> {
    if channel.version == 0 {
        return Ok(());
    }
    tracing::warn!(channel = channel.name, reason, "a channel was disabled; set it again to use it");
    channel.value.disabled = Some(reason.to_owned());
    context.notify.changed();
    commit(&*context.store, vec![replace(&channel)?]).await.map(drop)
}

/// Deletes old deliveries, silences that have ended, and test events.
pub(super) async fn retain(context: &EngineContext) -> Result<(), StoreError> {
    let store = &*context.store;
    let now = context.delivery_now();
    // Names of older ones follow.
    let after = format!("{DONE}{}", delivery_id(now.minus(limits::DELIVERIES_KEPT), 0));
    loop {
        let page = store.documents(DocumentKind::Delivery, Some(&after), limits::NOTIFY_CHANGES_MAX).await?;
        let old = page.items.into_iter().filter(|document| document.name.starts_with(DONE));
        let removed: Vec<DocumentChange> = old
            .map(|old| DocumentChange::Remove { kind: old.kind, name: old.name, version: old.version })
            .collect();
        if removed.is_empty() || !commit(store, removed).await? {
            break;
        }
    }
    let ended = |silence: &StoredAs<Silence>| now.since(silence.value.ends_at) > Duration::from_secs(86_400);
    let silences = all::<Silence>(store, None, limits::SILENCES_MAX).await?;
    let removed: Vec<DocumentChange> = silences.iter().filter(|one| ended(one)).map(remove).collect();
    if !removed.is_empty() {
        commit(store, removed).await?;
    }
    Ok(())
}

fn id_of(name: &str) -> &str {
    name.strip_prefix(PENDING).or_else(|| name.strip_prefix(DONE)).unwrap_or(name)
}

/// The delivery with this id, wherever it is in its life.
pub(crate) async fn read_delivery(
    context: &EngineContext,
    id: &str,
) -> Result<Option<StoredAs<Delivery>>, StoreError> {
    for place in [PENDING, DONE] {
        let found = read(&*context.store, (DocumentKind::Delivery, &format!("{place}{id}"))).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// How events join one message: incidents by their alert, webhooks by event and job name, texts for people by event.
pub(super) fn group_of(kind: EventKind, channel: Option<&Channel>, alert: &str, name: &str) -> String {
    use punctual_core::notify::ChannelType::{Command, Webhook};
    match channel.map(|channel| channel.kind) {
        Some(kind) if kind.has_incidents() => alert.to_owned(),
        Some(Webhook | Command) | None => format!("{kind}/{name}"),
        Some(_) => kind.to_string(),
    }
}
