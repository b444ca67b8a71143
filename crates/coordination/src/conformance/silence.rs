//! Cases about members that are silent for too long.

use super::stage::{Stage, all_names, given_up, id, names};
use futures_util::future::join;
use punctual_core::ports::{MemberId, Standing};
use std::time::Instant;

pub async fn a_silent_member_is_given_up_in_its_time(stage: Stage) {
    stage.join(1).await;
    let sent_at = Instant::now();
    stage.join(0).await;
    stage.until_given_up(0, &[1], sent_at).await;
    assert_eq!(stage.ids(2).await, [id(1)]);
}

pub async fn a_member_that_beats_is_kept(stage: Stage) {
    stage.join(0).await;
    let held = stage.hold(0, &names(2)).await;
    stage
        .through_a_lifetime(async || {
            assert_eq!(stage.beat(0).await, Standing::Alive);
            assert_eq!(stage.ids(1).await, [id(0)]);
        })
        .await;
    assert_eq!(stage.hold(0, &names(2)).await, held);
}

pub async fn who_was_given_up_is_told_and_cannot_come_back(stage: Stage) {
    stage.join(1).await;
    let sent_at = Instant::now();
    stage.join(0).await;
    let held = stage.hold(0, &names(2)).await;
    stage.until_given_up(0, &[1], sent_at).await;
    assert_eq!(stage.beat(0).await, Standing::GivenUp);
    assert_eq!(stage.take(0, &names(2)).await, given_up(2));
    assert_eq!(stage.release(0, &held).await, [false; 2]);
    assert_eq!(stage.door(0).join(stage.joining(0)).await, Ok(Standing::GivenUp));
    assert_eq!(stage.ids(1).await, [id(1)]);
    // It may join with a new id.
    stage.join(3).await;
    assert_eq!(stage.ids(1).await, [id(1), id(3)]);
}

pub async fn a_lease_of_who_was_given_up_is_free_in_a_higher_epoch(stage: Stage) {
    stage.join(1).await;
    let sent_at = Instant::now();
    stage.join(0).await;
    let before = stage.hold(0, &all_names()).await;
    stage.until_given_up(0, &[1], sent_at).await;
    let after = stage.hold(1, &all_names()).await;
    for (before, after) in before.iter().zip(&after) {
        assert!(before.epoch < after.epoch, "{before:?}, then {after:?}");
    }
    assert_eq!(stage.release(0, &before).await, vec![false; before.len()]);
    assert_eq!(stage.look(2).await.held.len(), all_names().len());
}

pub async fn a_look_shows_no_lease_of_who_is_not_there(stage: Stage) {
    let stage = &stage;
    let come_and_go = async {
        for number in 0..8 {
            stage.join(number).await;
            stage.hold(number, &all_names()).await;
            stage.door(number).leave(&id(number)).await.unwrap();
        }
    };
    let look = async {
        for door in 0..30 {
            let roster = stage.look(door).await;
            let is_there = |holder: &MemberId| roster.members.iter().any(|member| member.id == *holder);
            assert!(roster.held.iter().all(|(_, holder)| is_there(holder)), "{roster:?}");
            assert!(roster.members.is_sorted_by(|one, next| one.id < next.id));
            assert!(roster.held.is_sorted_by(|one, next| one.0.name < next.0.name));
        }
    };
    join(come_and_go, look).await;
    assert_eq!(stage.look(0).await, Default::default());
}
