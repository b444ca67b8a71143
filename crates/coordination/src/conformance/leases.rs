//! Cases about leases.

use super::stage::{Stage, all_names, epoch_of, id, names};
use futures_util::future::join_all;
use punctual_core::ports::{HeldLease, LeaseEpoch, LeaseName, Standing, Take};
use std::collections::BTreeMap;

pub async fn one_of_many_contenders_holds_each_lease(stage: Stage) {
    const CONTENDERS: usize = 6;
    let stage = &stage;
    for number in 0..CONTENDERS {
        stage.join(number).await;
    }
    let mut epochs: BTreeMap<LeaseName, LeaseEpoch> = BTreeMap::new();
    for round in 0..3 {
        let contend = async |number: usize| {
            // Each starts at a different name, so that they collide in the middle.
            let mut names = all_names();
            names.rotate_left((number * 11 + round) % 65);
            let answers = stage.take(number, &names).await;
            names.into_iter().zip(answers).collect::<Vec<_>>()
        };
        let answers = join_all((0..CONTENDERS).map(contend)).await;
        let mut holders: BTreeMap<LeaseName, (usize, LeaseEpoch)> = BTreeMap::new();
        for (number, answers) in answers.iter().enumerate() {
            for (name, take) in answers {
                if let Some(epoch) = epoch_of(take) {
                    let other = holders.insert(*name, (number, epoch));
                    assert_eq!(other, None, "{name} is held by two, in round {round}");
                }
            }
        }
        assert_eq!(holders.len(), all_names().len(), "each has one holder");
        let record = |(name, take): &(LeaseName, Take)| match take {
            Take::HeldBy(holder) => assert_eq!(*holder, id(holders[name].0), "{name}"),
            Take::Held(_) => {}
            Take::GivenUp => panic!("a member was evicted"),
        };
        answers.iter().flatten().for_each(record);
        let expected = holders
            .iter()
            .map(|(name, (number, epoch))| (HeldLease { name: *name, epoch: *epoch }, id(*number)));
        assert_eq!(stage.look(round).await.held, expected.collect::<Vec<_>>());
        for (name, (number, epoch)) in holders {
            let before = epochs.insert(name, epoch);
            assert!(before.is_none_or(|before| before < epoch), "{name}: {before:?}, then {epoch:?}");
            assert_eq!(stage.beat(number).await, Standing::Alive);
            assert_eq!(stage.release(number, &[HeldLease { name, epoch }]).await, [true]);
        }
    }
}

pub async fn many_names_are_taken_at_once_and_kept_in_their_epochs(stage: Stage) {
    stage.join(0).await;
    stage.join(1).await;
    let some = stage.hold(1, &names(3)).await;
    let taken = stage.take(0, &all_names()).await;
    assert_eq!(taken[..3], vec![Take::HeldBy(id(1)); 3]);
    assert!(taken[3..].iter().all(|take| epoch_of(take).is_some()), "{taken:?}");
    assert_eq!(stage.take(0, &all_names()).await, taken, "repeating the call changes nothing");
    assert_eq!(stage.hold(1, &names(3)).await, some);
    assert_eq!(stage.take(0, &[]).await, []);
    assert_eq!(stage.look(2).await.held.len(), all_names().len());
}

pub async fn epochs_rise_with_every_holder(stage: Stage) {
    let mut last = vec![LeaseEpoch(0); 3];
    // Members join and leave in every way that needs no passing of time, also through another connection.
    for start in 0..6 {
        stage.join(start).await;
        for _ in 0..2 {
            let held = stage.hold(start, &names(3)).await;
            for (lease, last) in held.iter().zip(&mut last) {
                assert!(lease.epoch > *last, "{lease:?} after {last:?}");
                *last = lease.epoch;
            }
            if start % 2 == 0 {
                assert_eq!(stage.release(start, &held).await, [true; 3]);
            } else {
                break;
            }
        }
        stage.door(start).leave(&id(start)).await.unwrap();
    }
}

pub async fn leaving_frees_at_once(stage: Stage) {
    stage.join(0).await;
    stage.join(1).await;
    stage.hold(0, &all_names()).await;
    stage.door(0).leave(&id(0)).await.unwrap();
    let roster = stage.look(1).await;
    assert_eq!((roster.members.len(), roster.held.len()), (1, 0));
    stage.hold(1, &all_names()).await;
    assert_eq!(stage.beat(0).await, Standing::GivenUp);
}

pub async fn a_stale_release_is_harmless(stage: Stage) {
    stage.join(0).await;
    stage.join(1).await;
    let stale = stage.hold(0, &names(2)).await;
    assert_eq!(stage.release(0, &stale).await, [true; 2]);
    let current = stage.hold(1, &names(2)).await;
    assert_eq!(stage.release(0, &stale).await, [false; 2], "another member holds it");
    assert_eq!(stage.release(0, &current).await, [false; 2], "whatever epoch it names");
    assert_eq!(stage.release(1, &stale).await, [false; 2], "not in this epoch");
    let held: Vec<HeldLease> = stage.look(2).await.held.into_iter().map(|(lease, _)| lease).collect();
    assert_eq!(held, current);
}

pub async fn every_call_can_be_repeated(stage: Stage) {
    for _ in 0..2 {
        stage.join(0).await;
    }
    let held = stage.hold(0, &names(2)).await;
    assert_eq!(stage.hold(0, &names(2)).await, held);
    assert_eq!(stage.release(0, &held).await, [true; 2]);
    assert_eq!(stage.release(0, &held).await, [false; 2]);
    for _ in 0..2 {
        assert_eq!(stage.door(0).leave(&id(0)).await, Ok(()));
    }
    assert_eq!(stage.look(0).await, Default::default());
}
