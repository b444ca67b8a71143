//! Detects a config mismatch: processes on one store that use different coordination backends.
//!
//! Such processes never see each other: each part believes to be the whole cluster, and all of them do all
//! the work. They have only the store in common. So a process with another backend also enters the store's
//! membership table, where it takes no segments, and every process looks there for processes that its own
//! coordination does not know.

use crate::coordination::card;
use crate::store::OpenStore;
use punctual_api::NodeInfo;
use punctual_config::COORDINATION_BY_STORE;
use punctual_coordination::StoreCoordination;
use punctual_core::cluster::Card;
use punctual_core::ports::{Coordination, CoordinationError, Host, Joining, MemberId, Standing};
use punctual_engine::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// About half the time until a process is noticed; an operator has to fix the mismatch.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A process that was silent for this long is removed from the membership table.
const TTL: Duration = Duration::from_secs(20);
/// Scans that must find a process before it is reported: one that has just started may not be visible everywhere
/// yet.
const CERTAIN_SCANS: u32 = 2;
/// The same for a process that only our coordination does not know. It forgets a process that was killed sooner than
/// the membership table does: only one that is still there after [`TTL`] is alive.
const CERTAIN_ALIVE_SCANS: u32 = (TTL.as_secs() / LOOK_INTERVAL.as_secs()) as u32 + CERTAIN_SCANS;

/// Scans periodically until the process ends. Warnings go to the receiver and to the log.
pub fn watch(
    open: &OpenStore,
    host: &Host,
    engine: &Arc<Engine>,
    info: &NodeInfo,
    ending: watch::Receiver<bool>,
) -> watch::Receiver<Vec<String>> {
    let (tell, told) = watch::channel(Vec::new());
    if let Some(shared) = &open.shared {
        let config_mismatch = MismatchWatch {
            engine: engine.clone(),
            host: host.clone(),
            info: info.clone(),
            membership_table: StoreCoordination::new(shared.membership_table.clone(), host.clock.clone()),
            member: new_member(host),
            seen: BTreeMap::new(),
        };
        tokio::spawn(config_mismatch.run(tell, ending));
    }
    told
}

struct MismatchWatch {
    engine: Arc<Engine>,
    host: Host,
    info: NodeInfo,
    membership_table: StoreCoordination,
    member: MemberId,
    /// The processes that the last scan found, and how many scans in a row have found each.
    seen: BTreeMap<ForeignProcess, u32>,
}

/// A process on the same store with another coordination backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ForeignProcess {
    node_id: String,
    coordination: String,
}

impl MismatchWatch {
    async fn run(mut self, tell: watch::Sender<Vec<String>>, mut ending: watch::Receiver<bool>) {
        loop {
            match self.look().await {
                Ok(found) => self.found(found, &tell),
                Err(error) => tracing::debug!(%error, "cannot read the other processes on the store"),
            }
            tokio::select! {
                biased;
                _ = ending.wait_for(|is_ending| *is_ending) => break,
                () = self.host.clock.sleep(LOOK_INTERVAL) => {}
            }
        }
        if self.info.coordination != COORDINATION_BY_STORE
            && let Err(error) = self.membership_table.leave(&self.member).await
        {
            tracing::debug!(%error, "cannot remove this process from the store's membership table; its entry expires");
        }
    }

    async fn look(&mut self) -> Result<BTreeSet<ForeignProcess>, CoordinationError> {
        let Some(known) = self.engine.nodes().await else { return Ok(BTreeSet::new()) };
        let own = &self.info.coordination;
        if own == COORDINATION_BY_STORE {
            let cards = known?.into_iter().filter_map(|node| node.card);
            return Ok(strangers(cards, |card| !coordinates_through_store(card)));
        }
        // Even if its own coordination is unavailable: processes that coordinate through the store still see
        // it.
        self.enter().await?;
        let roster = self.membership_table.look().await?;
        let known = known?.into_iter().filter_map(|node| node.card).map(|card| card.node_id);
        let known: BTreeSet<String> = known.chain([self.info.id.clone()]).collect();
        let cards = roster.members.iter().filter_map(|member| Card::read(&member.card));
        Ok(strangers(cards, |card| !known.contains(&card.node_id)))
    }

    async fn enter(&mut self) -> Result<(), CoordinationError> {
        let card = Card { stands: false, ..card(&self.info) }.written();
        let joining = Joining { member: self.member.clone(), card, ttl: TTL };
        if self.membership_table.join(joining).await? == Standing::GivenUp {
            self.member = new_member(&self.host);
        }
        Ok(())
    }

    fn found(&mut self, found: BTreeSet<ForeignProcess>, tell: &watch::Sender<Vec<String>>) {
        self.seen = counted(&self.seen, found);
        let own = &self.info.coordination;
        let certain_scans = if own == COORDINATION_BY_STORE { CERTAIN_SCANS } else { CERTAIN_ALIVE_SCANS };
        let certain = self.seen.iter().filter(|(_, scans)| **scans >= certain_scans);
        let warnings: Vec<String> = certain.map(|(stranger, _)| stranger.told(own)).collect();
        tell.send_if_modified(|told| {
            let is_news = *told != warnings;
            for warning in warnings.iter().filter(|warning| !told.contains(warning)) {
                tracing::warn!("{warning}");
            }
            if is_news && warnings.is_empty() {
                tracing::info!("all processes on the store coordinate through the same service again");
            }
            *told = warnings;
            is_news
        });
    }
}

/// How many scans in a row have found each process.
fn counted(
    before: &BTreeMap<ForeignProcess, u32>,
    found: BTreeSet<ForeignProcess>,
) -> BTreeMap<ForeignProcess, u32> {
    let count = |stranger: &ForeignProcess| before.get(stranger).map_or(1, |scans| scans.saturating_add(1));
    found.into_iter().map(|stranger| (stranger.clone(), count(&stranger))).collect()
}

fn new_member(host: &Host) -> MemberId {
    MemberId::new(format!("apart-{:016x}", host.random.next_u64())).expect("hexadecimal digits are plain")
}

/// Processes of versions that do not publish it may use another backend, but then they are not in the
/// membership table.
fn coordinates_through_store(card: &Card) -> bool {
    card.coordination.is_empty() || card.coordination == COORDINATION_BY_STORE
}

fn strangers(
    cards: impl Iterator<Item = Card>,
    is_stranger: impl Fn(&Card) -> bool,
) -> BTreeSet<ForeignProcess> {
    let found = cards.filter(|card| is_stranger(card));
    found
        .map(|card| {
            let coordination = if coordinates_through_store(&card) {
                COORDINATION_BY_STORE.to_owned()
            } else {
                card.coordination
            };
            ForeignProcess { node_id: card.node_id, coordination }
        })
        .collect()
}

impl ForeignProcess {
    fn told(&self, own: &str) -> String {
        let ForeignProcess { node_id, coordination } = self;
        let named =
            |kind: &str| if kind == COORDINATION_BY_STORE { "the store".to_owned() } else { kind.to_owned() };
        let how = if coordination == own {
            format!("through a different {coordination} than this process")
        } else {
            format!("through {}, but this process through {}", named(coordination), named(own))
        };
        format!(
            "{node_id} uses the same store and coordinates {how}: the two do not see each other, and both do all the work; \
             set the same coordination.url for all processes"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(node_id: &str, coordination: &str) -> Card {
        Card { node_id: node_id.to_owned(), coordination: coordination.to_owned(), ..Card::default() }
    }

    #[test]
    fn those_that_coordinate_through_something_else_are_told() {
        let cards = [of("a-1", "store"), of("b-2", ""), of("c-3", "redis")];
        let found = strangers(cards.into_iter(), |card| !coordinates_through_store(card));
        let told: Vec<String> = found.iter().map(|stranger| stranger.told(COORDINATION_BY_STORE)).collect();
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with(
            "c-3 uses the same store and coordinates through redis, but this process through the store: "
        ));
    }

    #[test]
    fn a_killed_process_is_forgotten_everywhere_before_it_is_reported() {
        let killed = || strangers([of("c-3", "etcd")].into_iter(), |_| true);
        // Its entry in the membership table outlives it by the TTL and at most one scan.
        let scans_until_forgotten = TTL.as_secs() / LOOK_INTERVAL.as_secs() + 1;
        let mut seen = BTreeMap::new();
        for _ in 0..scans_until_forgotten {
            seen = counted(&seen, killed());
        }
        assert!(seen.values().all(|scans| *scans < CERTAIN_ALIVE_SCANS), "{seen:?}");
        seen = counted(&seen, killed());
        assert!(seen.values().all(|scans| *scans >= CERTAIN_ALIVE_SCANS), "it is alive: {seen:?}");
        seen = counted(&seen, BTreeSet::new());
        assert_eq!(counted(&seen, killed()).into_values().collect::<Vec<_>>(), [1], "not in a row");
    }

    #[test]
    fn to_one_that_goes_by_another_service_older_processes_go_by_the_store() {
        let cards = [of("b-2", ""), of("c-3", "etcd")];
        let told: Vec<String> =
            strangers(cards.into_iter(), |_| true).iter().map(|stranger| stranger.told("etcd")).collect();
        assert!(told[0].contains("through the store, but this process through etcd: "), "{told:?}");
        assert!(told[1].contains("through a different etcd than this process: "), "{told:?}");
    }
}
