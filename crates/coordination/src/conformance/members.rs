//! Cases about the members of the cluster.

use super::stage::{Stage, all_names, card, given_up, id, names};
use punctual_core::limits::MEMBER_CARD_BYTES_MAX;
use punctual_core::ports::{CoordinationError, Joining, Member, Roster, Standing};

pub async fn a_member_is_seen_with_its_card_until_it_leaves(stage: Stage) {
    assert_eq!(stage.look(0).await, Roster::default(), "a new cluster has no members");
    stage.join(1).await;
    stage.join(0).await;
    let member = |number| Member { id: id(number), card: card(number) };
    for door in 0..3 {
        assert_eq!(stage.look(door).await.members, [member(0), member(1)]);
    }
    stage.door(0).leave(&id(0)).await.unwrap();
    for door in 0..3 {
        assert_eq!(stage.look(door).await.members, [member(1)]);
    }
}

pub async fn joining_twice_is_joining_once(stage: Stage) {
    stage.join(0).await;
    let held = stage.hold(0, &names(2)).await;
    let again = Joining { card: "another".to_owned(), ..stage.joining(0) };
    assert_eq!(stage.door(0).join(again).await, Ok(Standing::Alive));
    let roster = stage.look(1).await;
    assert_eq!(roster.members, [Member { id: id(0), card: "another".to_owned() }]);
    assert_eq!(roster.held.len(), 2, "it keeps its leases");
    assert_eq!(stage.hold(0, &names(2)).await, held);
}

pub async fn a_beat_shows_a_new_card(stage: Stage) {
    stage.join(0).await;
    for text in ["one", "two", "two", ""] {
        assert_eq!(stage.door(0).beat(&id(0), text.to_owned()).await, Ok(Standing::Alive));
        assert_eq!(stage.look(1).await.members, [Member { id: id(0), card: text.to_owned() }]);
    }
}

pub async fn a_card_of_some_kilobytes_is_shown_and_a_larger_one_is_refused(stage: Stage) {
    let large = "ä🦀\"\\".repeat(MEMBER_CARD_BYTES_MAX / 8);
    let joining = Joining { card: large.clone(), ..stage.joining(0) };
    assert_eq!(stage.door(0).join(joining).await, Ok(Standing::Alive));
    assert_eq!(stage.look(1).await.members, [Member { id: id(0), card: large }]);
    let larger = "x".repeat(MEMBER_CARD_BYTES_MAX + 1);
    for refused in [
        stage.door(0).beat(&id(0), larger.clone()).await,
        stage.door(1).join(Joining { card: larger, ..stage.joining(1) }).await,
    ] {
        assert!(matches!(refused, Err(CoordinationError::Broken(_))), "{refused:?}");
    }
    assert_eq!(stage.ids(1).await, [id(0)]);
}

pub async fn clusters_do_not_see_each_other(stage: Stage) {
    stage.join(0).await;
    stage.hold(0, &all_names()).await;
    assert_eq!(stage.elsewhere.look().await, Ok(Roster::default()));
    assert_eq!(stage.elsewhere.beat(&id(0), String::new()).await, Ok(Standing::GivenUp));
    let joining = Joining { member: id(7), ..stage.joining(7) };
    assert_eq!(stage.elsewhere.join(joining).await, Ok(Standing::Alive));
    let taken = stage.elsewhere.take(&id(7), all_names()).await.unwrap();
    assert!(taken.iter().all(|take| matches!(take, punctual_core::ports::Take::Held(_))), "{taken:?}");
    assert_eq!(stage.ids(1).await, [id(0)]);
    assert_eq!(stage.look(1).await.held.len(), all_names().len());
}

pub async fn who_never_joined_is_not_there(stage: Stage) {
    stage.join(0).await;
    assert_eq!(stage.door(1).beat(&id(1), String::new()).await, Ok(Standing::GivenUp));
    assert_eq!(stage.take(1, &names(2)).await, given_up(2));
    assert_eq!(stage.door(1).leave(&id(1)).await, Ok(()));
    assert_eq!(stage.ids(0).await, [id(0)]);
}
