//! Nodes of the cluster, and the authenticated caller.

use crate::auth::Call;
use crate::error::ApiError;
use crate::query::QueryParams;
use crate::routes::tokens::texts;
use crate::{Api, NodeInfo};
use axum::Json;
use punctual_client::{MeBody, NodeBody, Page};
use punctual_core::access::Grant;
use punctual_core::cluster::Card;
use punctual_core::recurrence::tzdb_version;
use punctual_engine::{NodeSeen, NodeState};
use std::collections::BTreeSet;
use std::time::Duration;

/// The smallest difference between a node's clock and the cluster's time that is reported.
const OFFSET_NOTICED: Duration = Duration::from_secs(1);

pub async fn list(call: Call, query: QueryParams) -> Result<Json<Page<NodeBody>>, ApiError> {
    query.finish()?;
    Ok(Json(Page { items: read(&call).await?, next_cursor: None }))
}

/// All nodes of the cluster, the answering one first; only that one where there is no cluster.
async fn read(call: &Call) -> Result<Vec<NodeBody>, ApiError> {
    let Some(own) = call.api.node.as_deref() else { return Ok(Vec::new()) };
    let state = call.cases.node_state()?;
    let mut nodes = match call.cases.nodes().await? {
        None => vec![answering(&call.api, own, state)],
        Some(Ok(seen)) => {
            let others = seen.iter().filter(|node| !node.is_self).map(|node| shown(node, own));
            std::iter::once(answering(&call.api, own, state)).chain(others).collect()
        }
        Some(Err(error)) => {
            let mut node = answering(&call.api, own, state);
            node.others_unknown = true;
            node.warnings.push(format!("the other processes are currently unknown: {error}"));
            vec![node]
        }
    };
    nodes[1..].sort_by(|a, b| a.node_id.cmp(&b.node_id));
    warn_of_time_zones(&mut nodes);
    Ok(nodes)
}

fn answering(api: &Api, node: &NodeInfo, state: NodeState) -> NodeBody {
    let NodeState { cluster, ready_queue, warnings, .. } = state;
    let offset_us = -state.clock_offset_us;
    let apart = api.apart.as_ref().map(|apart| apart.borrow().clone()).unwrap_or_default();
    NodeBody {
        node_id: node.id.clone(),
        version: node.version.clone(),
        started_at: node.started_at,
        roles: node.roles.clone(),
        address: node.address.clone(),
        tzdb_version: tzdb_version().to_owned(),
        clock_offset_ms: offset_us / 1_000,
        store: node.store.clone(),
        schema_version: node.schema_version,
        embedded_store: node.embedded_store,
        host: node.host.clone(),
        pid: node.pid,
        leader: cluster.leads,
        segments: cluster.segments as u32,
        answering: true,
        others_unknown: false,
        coordination: node.coordination.clone(),
        ready_queue: ready_queue.as_ref().map_or_else(String::new, |queue| queue.kind.to_owned()),
        ready_queue_connected: ready_queue.is_some_and(|queue| queue.is_receiving),
        warnings: clock_warning(offset_us, cluster.is_off)
            .into_iter()
            .chain(warnings)
            .chain(apart)
            .chain(api.warnings())
            .collect(),
    }
}

/// Another node, as it describes itself. A description that this version cannot read is shown by its id only.
fn shown(seen: &NodeSeen, own: &NodeInfo) -> NodeBody {
    let card = seen.card.clone().unwrap_or_else(|| Card {
        node_id: seen.member.to_string(),
        store: own.store.clone(),
        ..Card::default()
    });
    let is_scheduler = card.roles.iter().any(|role| role == "scheduler");
    let mut warnings: Vec<String> =
        clock_warning(card.clock_offset_us, false).into_iter().chain(card.warnings).collect();
    // A node with another coordination backend is visible here, but takes its segments there.
    let is_apart = !card.coordination.is_empty() && card.coordination != own.coordination;
    if is_scheduler && !card.stands && !is_apart {
        warnings.push(
            "it takes no segments: it is stopping, its clock is too far off, or it cannot reach the store"
                .to_owned(),
        );
    }
    if seen.card.is_none() {
        warnings.push("this version cannot read the entry of this process".to_owned());
    }
    NodeBody {
        node_id: card.node_id,
        version: card.version,
        started_at: card.started_at,
        roles: card.roles,
        address: card.address,
        tzdb_version: card.tzdb_version,
        clock_offset_ms: card.clock_offset_us / 1_000,
        store: card.store,
        schema_version: card.schema_version as usize,
        embedded_store: false,
        host: card.host,
        pid: card.pid,
        leader: seen.holdings.leads,
        segments: seen.holdings.segments.len() as u32,
        answering: false,
        others_unknown: false,
        coordination: card.coordination,
        ready_queue: card.ready_queue,
        ready_queue_connected: card.is_receiving,
        warnings,
    }
}

fn clock_warning(offset_us: i64, is_off: bool) -> Option<String> {
    let offset = Duration::from_micros(offset_us.unsigned_abs());
    let direction = if offset_us > 0 { "ahead of" } else { "behind" };
    (offset >= OFFSET_NOTICED).then(|| {
        let consequence = if is_off { ", too far to fire anything" } else { "" };
        format!(
            "its clock is {:.1} s {direction} the store's{consequence}: synchronize both with NTP",
            offset.as_secs_f64()
        )
    })
}

/// Nodes with different time zone data may disagree on when a job is due.
fn warn_of_time_zones(nodes: &mut [NodeBody]) {
    let known = nodes.iter().map(|node| node.tzdb_version.clone()).filter(|version| !version.is_empty());
    let versions: BTreeSet<String> = known.collect();
    if versions.len() < 2 {
        return;
    }
    let all: Vec<String> = versions.into_iter().collect();
    for node in nodes {
        let others: Vec<&str> =
            all.iter().map(String::as_str).filter(|version| *version != node.tzdb_version).collect();
        node.warnings.push(format!(
            "its time zone data is {}, others have {}: use the same release everywhere",
            node.tzdb_version,
            others.join(", ")
        ));
    }
}

pub async fn me(call: Call, query: QueryParams) -> Result<Json<MeBody>, ApiError> {
    query.finish()?;
    let caller = call.cases.caller();
    let Grant { role, permissions, owner, scope } = &caller.grant;
    Ok(Json(MeBody {
        token_id: caller.token_id.clone(),
        name: caller.name.clone(),
        role: role.word().to_owned(),
        user_id: caller.user.clone(),
        owner_id: owner.clone(),
        all_owners: scope.owner.is_none(),
        queues: texts(&scope.queues),
        job_types: texts(&scope.job_types),
        permissions: permissions.iter().map(|permission| permission.word().to_owned()).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::cluster::Holdings;
    use punctual_core::ports::MemberId;
    use punctual_core::time::Timestamp;

    fn own() -> NodeInfo {
        NodeInfo {
            id: "a-1".to_owned(),
            version: "1.0.0".to_owned(),
            started_at: Timestamp::EPOCH,
            roles: vec!["api".to_owned()],
            address: String::new(),
            store: "postgres".to_owned(),
            schema_version: 2,
            embedded_store: false,
            coordination: "store".to_owned(),
            host: "a".to_owned(),
            pid: 1,
        }
    }

    fn node(card: Option<Card>) -> NodeBody {
        let member = MemberId::new("0f").unwrap();
        shown(&NodeSeen { member, card, holdings: Holdings::EVERYTHING, is_self: false }, &own())
    }

    fn scheduler() -> Card {
        Card {
            node_id: "b-2".to_owned(),
            roles: vec!["scheduler".to_owned()],
            tzdb_version: "2025b".to_owned(),
            stands: true,
            ..Card::default()
        }
    }

    #[test]
    fn another_process_is_shown_as_it_describes_itself() {
        let shown = node(Some(scheduler()));
        assert_eq!((shown.node_id.as_str(), shown.leader, shown.segments), ("b-2", true, 64));
        assert!(!shown.answering && shown.warnings.is_empty(), "{:?}", shown.warnings);
    }

    #[test]
    fn what_somebody_should_look_into_is_said() {
        let off = Card { clock_offset_us: -45_000_000, stands: false, ..scheduler() };
        let warnings = node(Some(off)).warnings;
        assert!(warnings[0].contains("45.0 s behind the store's"), "{warnings:?}");
        assert!(warnings[1].starts_with("it takes no segments"), "{warnings:?}");
        let apart = node(Some(Card { coordination: "etcd".to_owned(), stands: false, ..scheduler() }));
        assert_eq!((apart.coordination.as_str(), apart.warnings.len()), ("etcd", 0), "{:?}", apart.warnings);
        let unreadable = node(None);
        assert_eq!(unreadable.node_id, "0f");
        assert!(unreadable.warnings[0].contains("cannot read the entry"));
    }

    #[test]
    fn different_time_zone_data_is_told_of_every_process() {
        let older = Card { tzdb_version: "2024a".to_owned(), ..scheduler() };
        let mut nodes = [node(Some(scheduler())), node(Some(older))];
        warn_of_time_zones(&mut nodes);
        assert!(nodes[0].warnings[0].contains("is 2025b, others have 2024a"), "{:?}", nodes[0].warnings);
        assert!(nodes[1].warnings[0].contains("is 2024a, others have 2025b"), "{:?}", nodes[1].warnings);
        let mut alike = [node(Some(scheduler())), node(Some(scheduler()))];
        warn_of_time_zones(&mut alike);
        assert!(alike.iter().all(|node| node.warnings.is_empty()));
    }
}
