//! The behaviour of every membership table. A case gets several connections to the same empty database, as
//! several nodes have.

use futures_util::future::join_all;
use punctual_core::ids::SegmentSet;
use punctual_core::ports::{
    Entries, HeldLease, Joining, LeaseEpoch, LeaseName, MemberId, MemberPulse, MembershipTable, Standing,
    Take,
};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Connections to one database, at least one.
pub type TableConnections = Vec<Arc<dyn MembershipTable>>;

/// Passes the list of all cases to another macro.
#[macro_export]
macro_rules! each_membership_case {
    ($then:ident) => {
        $then! {
            a_member_is_listed_with_its_card_until_it_is_removed,
            entering_again_is_a_beat_with_a_new_card,
            a_beat_raises_the_counter_by_one,
            who_is_not_there_can_neither_beat_nor_take,
            a_member_that_has_beaten_since_is_not_given_up,
            a_member_is_given_up_once_and_all_it_held_is_free,
            taking_counts_as_a_beat,
            a_holder_keeps_its_epoch_and_the_next_one_has_a_higher,
            epochs_go_on_when_all_members_are_gone,
            only_the_holder_in_its_epoch_lets_go,
            a_removed_member_holds_nothing,
            a_card_of_some_kilobytes_reads_back,
            contenders_hold_each_lease_once,
            a_take_against_the_loss_of_its_member,
        }
    };
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
}

fn id(number: usize) -> MemberId {
    MemberId::new(format!("node-{number}")).unwrap()
}

fn joining(number: usize) -> Joining {
    Joining { member: id(number), card: format!("card of {number}"), ttl: Duration::from_millis(1_500) }
}

fn all_names() -> Vec<LeaseName> {
    let segments = SegmentSet::ALL.iter().map(LeaseName::Segment);
    segments.chain([LeaseName::Leader]).collect()
}

fn segments(count: usize) -> Vec<LeaseName> {
    all_names().into_iter().take(count).collect()
}

async fn enter(membership: &dyn MembershipTable, number: usize) {
    membership.enter_member(at(0), joining(number)).await.unwrap();
}

async fn take(membership: &dyn MembershipTable, number: usize, names: &[LeaseName]) -> Vec<Take> {
    membership.take_leases(&id(number), names.to_vec()).await.unwrap()
}

async fn pulse(membership: &dyn MembershipTable, number: usize) -> MemberPulse {
    let entries = membership.entries().await.unwrap();
    let row = entries.members.into_iter().find(|row| row.id == id(number)).expect("the member exists");
    MemberPulse { member: row.id, beat: row.beat }
}

async fn give_up(membership: &dyn MembershipTable, pulse: MemberPulse) -> bool {
    membership.give_up_members(vec![pulse]).await.unwrap()[0]
}

fn held(epoch: u64) -> Take {
    Take::Held(LeaseEpoch(epoch))
}

pub async fn a_member_is_listed_with_its_card_until_it_is_removed(connections: TableConnections) {
    let membership = &*connections[0];
    assert_eq!(membership.entries().await.unwrap(), Entries::default());
    enter(membership, 2).await;
    enter(membership, 1).await;
    let rows = connections[connections.len() - 1].entries().await.unwrap().members;
    let shown: Vec<_> = rows.iter().map(|row| (row.id.clone(), row.card.as_str(), row.ttl)).collect();
    let ttl = Duration::from_millis(1_500);
    assert_eq!(shown, [(id(1), "card of 1", ttl), (id(2), "card of 2", ttl)]);
    membership.remove_member(&id(1)).await.unwrap();
    membership.remove_member(&id(1)).await.unwrap();
    let left: Vec<MemberId> =
        membership.entries().await.unwrap().members.into_iter().map(|row| row.id).collect();
    assert_eq!(left, [id(2)]);
}

pub async fn entering_again_is_a_beat_with_a_new_card(connections: TableConnections) {
    let membership = &*connections[0];
    enter(membership, 1).await;
    let before = pulse(membership, 1).await;
    let again = Joining { card: "another".to_owned(), ttl: Duration::from_secs(9), ..joining(1) };
    membership.enter_member(at(1), again).await.unwrap();
    let row = membership.entries().await.unwrap().members.remove(0);
    assert_eq!((row.card.as_str(), row.ttl), ("another", Duration::from_secs(9)));
    assert!(row.beat > before.beat);
}

pub async fn a_beat_raises_the_counter_by_one(connections: TableConnections) {
    let membership = &*connections[0];
    enter(membership, 1).await;
    let before = pulse(membership, 1).await;
    for beat in 1..=3 {
        let card = format!("beat {beat}");
        assert_eq!(membership.beat_member(at(beat), &id(1), card.clone()).await, Ok(Standing::Alive));
        let row = membership.entries().await.unwrap().members.remove(0);
        assert_eq!((row.beat, row.card), (before.beat + beat.unsigned_abs(), card));
    }
}

pub async fn who_is_not_there_can_neither_beat_nor_take(connections: TableConnections) {
    let membership = &*connections[0];
    enter(membership, 1).await;
    let beaten = membership.beat_member(at(1), &id(2), String::new()).await;
    assert_eq!(beaten, Ok(Standing::GivenUp));
    assert_eq!(take(membership, 2, &segments(2)).await, [Take::GivenUp, Take::GivenUp]);
    let held = HeldLease { name: LeaseName::Leader, epoch: LeaseEpoch(1) };
    assert_eq!(membership.release_leases(&id(2), vec![held]).await, Ok(vec![false]));
    let entries = membership.entries().await.unwrap();
    assert_eq!((entries.members.len(), entries.held.len()), (1, 0));
}

pub async fn a_member_that_has_beaten_since_is_not_given_up(connections: TableConnections) {
    let membership = &*connections[0];
    enter(membership, 1).await;
    let seen = pulse(membership, 1).await;
    membership.beat_member(at(1), &id(1), String::new()).await.unwrap();
    assert!(!give_up(membership, seen).await);
    assert_eq!(membership.beat_member(at(2), &id(1), String::new()).await, Ok(Standing::Alive));
}

pub async fn a_member_is_given_up_once_and_all_it_held_is_free(connections: TableConnections) {
    let membership = &*connections[0];
    for number in [1, 2] {
        enter(membership, number).await;
    }
    take(membership, 1, &segments(3)).await;
    take(membership, 2, &[LeaseName::Leader]).await;
    let seen = pulse(membership, 1).await;
    let outcomes =
        join_all(connections.iter().chain(&connections).map(|door| give_up(&**door, seen.clone()))).await;
    assert_eq!(outcomes.iter().filter(|given_up| **given_up).count(), 1, "{outcomes:?}");
    let entries = membership.entries().await.unwrap();
    assert_eq!(entries.members.len(), 1);
    assert_eq!(entries.held, [(HeldLease { name: LeaseName::Leader, epoch: LeaseEpoch(1) }, id(2))]);
    assert_eq!(membership.beat_member(at(1), &id(1), String::new()).await, Ok(Standing::GivenUp));
    assert_eq!(take(membership, 2, &segments(3)).await, [held(2), held(2), held(2)]);
}

pub async fn taking_counts_as_a_beat(connections: TableConnections) {
    let membership = &*connections[0];
    enter(membership, 1).await;
    let seen = pulse(membership, 1).await;
    take(membership, 1, &[LeaseName::Leader]).await;
    assert!(!give_up(membership, seen).await, "it was alive when it took something");
}

pub async fn a_holder_keeps_its_epoch_and_the_next_one_has_a_higher(connections: TableConnections) {
    let membership = &*connections[0];
    for number in [1, 2] {
        enter(membership, number).await;
    }
    for epoch in 1..=3 {
        let (holder, other) = if epoch % 2 == 0 { (1, 2) } else { (2, 1) };
        for _ in 0..2 {
            assert_eq!(take(membership, holder, &segments(2)).await, [held(epoch), held(epoch)]);
        }
        let refused = Take::HeldBy(id(holder));
        assert_eq!(take(membership, other, &segments(2)).await, [refused.clone(), refused]);
        let leases = segments(2).into_iter().map(|name| HeldLease { name, epoch: LeaseEpoch(epoch) });
        let released = membership.release_leases(&id(holder), leases.collect()).await;
        assert_eq!(released, Ok(vec![true, true]));
    }
}

pub async fn epochs_go_on_when_all_members_are_gone(connections: TableConnections) {
    let membership = &*connections[0];
    for start in 1..=4 {
        enter(membership, start).await;
        assert_eq!(take(membership, start, &segments(1)).await, [held(start as u64)]);
        match start % 2 {
            0 => membership.remove_member(&id(start)).await.unwrap(),
            _ => assert!(give_up(membership, pulse(membership, start).await).await),
        }
    }
}

pub async fn only_the_holder_in_its_epoch_lets_go(connections: TableConnections) {
    let membership = &*connections[0];
    for number in [1, 2] {
        enter(membership, number).await;
    }
    take(membership, 1, &segments(1)).await;
    let stale = HeldLease { name: segments(1)[0], epoch: LeaseEpoch(1) };
    membership.release_leases(&id(1), vec![stale]).await.unwrap();
    take(membership, 1, &segments(1)).await;
    for (number, lease) in [(1, stale), (2, HeldLease { epoch: LeaseEpoch(2), ..stale })] {
        assert_eq!(membership.release_leases(&id(number), vec![lease]).await, Ok(vec![false]));
    }
    assert_eq!(take(membership, 2, &segments(1)).await, [Take::HeldBy(id(1))]);
}

pub async fn a_removed_member_holds_nothing(connections: TableConnections) {
    let membership = &*connections[0];
    for number in [1, 2] {
        enter(membership, number).await;
    }
    take(membership, 1, &all_names()).await;
    membership.remove_member(&id(1)).await.unwrap();
    assert_eq!(membership.entries().await.unwrap().held, []);
    assert_eq!(take(membership, 2, &all_names()).await, vec![held(2); all_names().len()]);
}

pub async fn a_card_of_some_kilobytes_reads_back(connections: TableConnections) {
    let membership = &*connections[0];
    let card = "{\"name\": \"ä🦀 'quoted' \\\\ %\"}".repeat(400);
    membership.enter_member(at(0), Joining { card: card.clone(), ..joining(1) }).await.unwrap();
    assert_eq!(membership.entries().await.unwrap().members[0].card, card);
    let longer = format!("{card}more");
    membership.beat_member(at(1), &id(1), longer.clone()).await.unwrap();
    assert_eq!(membership.entries().await.unwrap().members[0].card, longer);
}

pub async fn contenders_hold_each_lease_once(connections: TableConnections) {
    const CONTENDERS: usize = 6;
    for number in 0..CONTENDERS {
        enter(&*connections[0], number).await;
    }
    let mut epochs: BTreeMap<LeaseName, u64> = BTreeMap::new();
    for round in 0..4 {
        let contend = |number: usize| {
            // Each starts at a different position, so that they meet in the middle.
            let mut names = all_names();
            names.rotate_left((number * 11 + round) % 65);
            let door = connections[number % connections.len()].clone();
            async move {
                let answers = door.take_leases(&id(number), names.clone()).await.unwrap();
                names.into_iter().zip(answers).collect::<Vec<_>>()
            }
        };
        let answers = join_all((0..CONTENDERS).map(contend)).await;
        let mut holders: BTreeMap<LeaseName, (usize, u64)> = BTreeMap::new();
        for (number, answers) in answers.iter().enumerate() {
            for (name, answer) in answers {
                if let Take::Held(LeaseEpoch(epoch)) = answer {
                    assert_eq!(holders.insert(*name, (number, *epoch)), None, "{name} has two holders");
                }
            }
        }
        assert_eq!(holders.len(), all_names().len(), "each lease has one holder");
        let mut shown = connections[connections.len() - 1].entries().await.unwrap().held;
        shown.retain(|(lease, holder)| holders.get(&lease.name) != Some(&(number_of(holder), lease.epoch.0)));
        assert_eq!(shown, [], "the table matches the answers");
        for (name, (number, epoch)) in holders {
            assert!(epochs.insert(name, epoch).is_none_or(|before| before < epoch), "{name}: {epoch}");
            let lease = HeldLease { name, epoch: LeaseEpoch(epoch) };
            let released = connections[0].release_leases(&id(number), vec![lease]).await;
            assert_eq!(released, Ok(vec![true]));
        }
    }
}

fn number_of(member: &MemberId) -> usize {
    member.as_str().trim_start_matches("node-").parse().unwrap()
}

/// Whichever comes first: either the member exists and holds everything it was granted, or it is gone and
/// holds nothing.
pub async fn a_take_against_the_loss_of_its_member(connections: TableConnections) {
    for round in 0..20 {
        enter(&*connections[0], round).await;
        let seen = pulse(&*connections[0], round).await;
        let other = connections[round % connections.len()].clone();
        let (member, names) = (id(round), segments(8));
        let (taken, given_up) =
            tokio::join!(connections[0].take_leases(&member, names), give_up(&*other, seen));
        let taken = taken.unwrap();
        let entries = connections[0].entries().await.unwrap();
        let is_there = entries.members.iter().any(|row| row.id == id(round));
        let holds = entries.held.iter().filter(|(_, holder)| *holder == id(round)).count();
        assert_eq!(given_up, !is_there);
        if given_up {
            assert_eq!(holds, 0, "a removed member holds a lease");
            assert_eq!(taken, vec![Take::GivenUp; 8], "the count was the one from before the take");
        } else {
            assert_eq!(holds, 8);
            assert!(taken.iter().all(|take| matches!(take, Take::Held(_))), "{taken:?}");
            connections[0].remove_member(&id(round)).await.unwrap();
        }
    }
}

#[cfg(test)]
pub(crate) mod moved {
    //! The membership table of a store that is migrated or forked.

    use super::{all_names, enter, take};
    use punctual_core::ports::{Entries, MembershipTable};

    /// A member that holds a lease.
    pub async fn be_in_a_cluster(membership: &dyn MembershipTable) {
        enter(membership, 1).await;
        take(membership, 1, &all_names()).await;
    }

    pub async fn is_forgotten(membership: &dyn MembershipTable) {
        assert_eq!(membership.entries().await.unwrap(), Entries::default());
    }
}

#[cfg(test)]
pub(crate) mod malformed {
    //! Rows that Punctual cannot have written.

    use super::{TableConnections, all_names, at, enter, held, id, segments, take};
    use punctual_core::ports::{LeaseName, MalformedRow, MembershipTableName, Standing, Take};

    /// Each with the expected message.
    const SPOILED: [(&str, &str); 7] = [
        ("UPDATE cluster_members SET ttl_us = -5 WHERE id = 'node-2'", "its ttl_us is -5"),
        (
            "UPDATE cluster_members SET ttl_us = 9223372036854775807 WHERE id = 'node-3'",
            "its ttl_us is 9223372036854775807",
        ),
        ("UPDATE cluster_members SET beat = -1 WHERE id = 'node-4'", "its beat is -1"),
        (
            "INSERT INTO cluster_members (id, beat, ttl_us, entered_at, beaten_at, card) \
             VALUES ('no id', 1, 3000000, 0, 0, 'x')",
            "its id is \"no id\"",
        ),
        (
            "INSERT INTO cluster_leases (name, epoch, holder) VALUES ('tail', 3, 'node-1')",
            "its name is \"tail\"",
        ),
        ("UPDATE cluster_leases SET holder = 'no id' WHERE name = 'segment-00'", "its holder is \"no id\""),
        ("UPDATE cluster_leases SET epoch = -7 WHERE name = 'segment-01'", "its epoch is -7"),
    ];

    /// One member holds all leases; other rows are damaged.
    async fn spoil(connections: &TableConnections, run: impl AsyncFn(&'static str)) {
        for number in 1..=4 {
            enter(&*connections[0], number).await;
        }
        take(&*connections[0], 1, &all_names()).await;
        for (sql, _) in SPOILED {
            run(sql).await;
        }
    }

    pub async fn rows_that_cannot_be_read_are_named_and_the_others_go_on(
        connections: TableConnections,
        run: impl AsyncFn(&'static str),
    ) {
        spoil(&connections, run).await;
        let membership = &*connections[connections.len() - 1];
        let entries = membership.entries().await.unwrap();
        assert_eq!(entries.members.iter().map(|row| row.id.clone()).collect::<Vec<_>>(), [id(1)]);
        assert_eq!(entries.held.len(), all_names().len() - 2);
        let mut said: Vec<&str> = entries.malformed.iter().map(|row| row.why.as_str()).collect();
        let mut expected = SPOILED.map(|(_, why)| why);
        said.sort_unstable();
        expected.sort_unstable();
        assert_eq!(said, expected);

        let (clear, left): (Vec<MalformedRow>, Vec<MalformedRow>) =
            entries.malformed.into_iter().partition(MalformedRow::is_in_the_way);
        assert_eq!(left.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["tail"]);
        for _ in 0..2 {
            membership.clear_rows(clear.clone()).await.unwrap();
        }
        let entries = membership.entries().await.unwrap();
        assert_eq!(
            (entries.members.len(), entries.malformed),
            (1, left),
            "an unknown lease name is left unchanged"
        );
        assert_eq!(membership.beat_member(at(1), &id(1), String::new()).await, Ok(Standing::Alive));
        for number in [2, 3, 4] {
            let beaten = membership.beat_member(at(1), &id(number), String::new()).await;
            assert_eq!(
                beaten,
                Ok(Standing::GivenUp),
                "it learns that it was evicted, and joins again with another id"
            );
        }
        let taken = take(membership, 1, &segments(3)).await;
        assert_eq!(
            taken,
            [held(2), held(1), held(1)],
            "an epoch continues from the stored value if that is readable"
        );
    }

    pub async fn a_lease_whose_row_cannot_be_read_is_taken_and_is_in_nobodys_way(
        connections: TableConnections,
        run: impl AsyncFn(&'static str),
    ) {
        spoil(&connections, run).await;
        let membership = &*connections[0];
        enter(membership, 5).await;
        let taken = take(membership, 5, &segments(3)).await;
        assert_eq!(taken, [held(2), held(1), Take::HeldBy(id(1))]);
        assert_eq!(take(membership, 5, &segments(2)).await, [held(2), held(1)]);
        membership.remove_member(&id(1)).await.unwrap();
        let entries = membership.entries().await.unwrap();
        assert_eq!(entries.held.len(), 2);
        let left = entries.malformed.iter().filter(|row| row.table == MembershipTableName::Leases);
        assert!(left.clone().all(|row| LeaseName::parse(&row.key).is_none()), "{:?}", entries.malformed);
    }
}
