//! Sessions, and what happens to leases that end without a report.

use super::fixture::{Harness, LEASE, at, job, job_with, lane, opening, succeeded};
use punctual_core::health::{Measured, Room, WorkerCondition};
use punctual_core::ids::SessionId;
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    Assignment, Beat, BeatOutcome, ClaimOutcome, CommitEffects, Lane, ReportAnswer, Resync, ResyncOutcome,
    SessionOpening, SessionRow, Store,
};
use punctual_core::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use std::collections::BTreeSet;
use std::sync::Arc;

pub async fn sessions_are_listed_until_they_close(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let opening = SessionOpening {
        worker: "w1".to_owned(),
        lease: LEASE,
        embedded: true,
        job_types: vec!["a".to_owned(), "b".to_owned()],
        slots: 8,
        about: Default::default(),
        token: Some("t1".to_owned()),
    };
    let first = harness.store.open_session(at(1), opening).await.unwrap();
    let second = harness.open_session("w2").await;
    let rows = harness.store.sessions().await.unwrap();
    let expected = SessionRow {
        pulse: Pulse { session: first, beat: 0, lease: LEASE },
        about: Default::default(),
        token: Some("t1".to_owned()),
        mode: Default::default(),
        worker: "w1".to_owned(),
        embedded: true,
        job_types: vec!["a".to_owned(), "b".to_owned()],
        slots: 8,
        condition: None,
        opened_at: at(1),
        beaten_at: at(1),
    };
    assert_eq!(rows.iter().find(|row| row.pulse.session == first), Some(&expected));
    assert_eq!(rows.len(), 2);

    harness.store.close_session(at(2), first).await.unwrap();
    harness.lose(at(2), second, 0).await;
    assert_eq!(harness.store.sessions().await.unwrap(), []);
}

pub async fn a_session_has_its_token_until_it_is_closed_or_recovered(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let open = async |token: Option<&str>| {
        let opening = SessionOpening { token: token.map(str::to_owned), ..opening("w") };
        harness.store.open_session(at(1), opening).await.unwrap()
    };
    let [first, second, without] = [open(Some("t1")).await, open(Some("t2")).await, open(None).await];
    let token_of = async |session| harness.store.token_of_session(session).await.unwrap();
    assert_eq!(token_of(first).await.as_deref(), Some("t1"));
    assert_eq!(token_of(second).await.as_deref(), Some("t2"));
    assert_eq!(token_of(without).await, None);
    harness.store.close_session(at(2), first).await.unwrap();
    harness.lose(at(2), second, 0).await;
    assert_eq!(token_of(second).await.as_deref(), Some("t2"), "its worker may still report");
    harness.store.recover(at(3), 10).await.unwrap();
    for gone in [first, second, SessionId(1_000)] {
        assert_eq!(token_of(gone).await, None);
    }
}

pub async fn what_a_worker_told_last_is_kept_for_as_long_as_its_session(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let [first, second] = [harness.open_session("w1").await, harness.open_session("w2").await];
    let condition_of = |running, refuses: &[&str]| WorkerCondition {
        slots: 4,
        running,
        refuses: refuses.iter().map(|reason| (*reason).to_owned()).collect(),
        last_error: Some("\"no\0way\"".to_owned()),
        measured: Measured { memory: Some(Room { free: 1, total: u64::MAX }), ..Measured::default() },
        ..WorkerCondition::default()
    };
    for condition in [condition_of(1, &["memory: ü"]), condition_of(2, &[])] {
        harness.store.keep_condition(first, condition.clone()).await.unwrap();
        let rows = harness.store.sessions().await.unwrap();
        let kept: Vec<_> = rows.into_iter().map(|row| (row.pulse.session, row.condition)).collect();
        assert_eq!(kept, [(first, Some(condition)), (second, None)]);
    }
    harness.store.close_session(at(2), first).await.unwrap();
    harness.store.keep_condition(first, condition_of(3, &[])).await.unwrap();
    harness.lose(at(2), second, 0).await;
    harness.store.keep_condition(second, condition_of(3, &[])).await.unwrap();
    assert_eq!(harness.store.sessions().await.unwrap(), []);
}

pub async fn session_ids_are_never_reused(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let session = harness.open_session("w").await;
        assert!(seen.insert(session), "{session} was assigned before");
        harness.store.close_session(at(1), session).await.unwrap();
    }
}

pub async fn a_beat_raises_the_counter_and_never_lowers_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    for (beat, expected, seen_at) in [(1, 1, at(10)), (3, 3, at(10)), (2, 3, at(10))] {
        let counted = BeatOutcome::Counted { turn: 0, cancel: vec![], drain: false };
        assert_eq!(
            harness.store.beat(at(10), vec![Beat { session, beat, draining: false }]).await.unwrap(),
            [counted]
        );
        let row = harness.store.sessions().await.unwrap().remove(0);
        assert_eq!((row.pulse.beat, row.beaten_at), (expected, seen_at));
    }
}

pub async fn a_beat_defeats_an_observer_that_saw_the_old_count(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.store.beat(at(1), vec![Beat { session, beat: 1, draining: false }]).await.unwrap();
    assert_eq!(harness.lose(at(9), session, 0).await, [false]);
    assert_eq!(harness.store.sessions().await.unwrap().len(), 1);
    assert_eq!(harness.lose(at(9), session, 1).await, [true]);
    assert_eq!(harness.lose(at(9), session, 1).await, [true], "it is lost already");
    assert_eq!(harness.lose(at(9), SessionId(999), 0).await, [false]);
}

pub async fn a_lost_session_cannot_come_back(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = hold(&harness, 1).await;
    harness.lose(at(9), session, 0).await;
    for recovered in [false, true] {
        if recovered {
            harness.store.recover(at(9), 10).await.unwrap();
        }
        let beat =
            harness.store.beat(at(10), vec![Beat { session, beat: 5, draining: false }]).await.unwrap();
        assert_eq!(beat, [BeatOutcome::SessionLost]);
        assert_eq!(harness.try_claim(at(10), session, 2, 1).await, ClaimOutcome::SessionLost);
        let resync = Resync { session, turn: 9, held: vec![assignment.lease()] };
        assert_eq!(harness.store.resync(at(10), resync).await.unwrap(), ResyncOutcome::SessionLost);
        assert_eq!(harness.store.close_session(at(10), session).await.unwrap(), ResyncOutcome::SessionLost);
    }
}

pub async fn a_lost_execution_is_charged_and_retried_at_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = hold(&harness, 1).await;
    let recovered = harness.lose_and_recover(at(9), session).await;
    assert_eq!(recovered.ended, [(assignment.execution, Status::Lost)]);
    assert_eq!((recovered.effects.queued, recovered.more), (vec![Lane::new("default", "report")], false));
    let view = harness.view(job(1).id).await;
    assert_eq!(view.status(), JobStatus::Active);
    let live = &view.open[0];
    assert_eq!((live.state, live.attempt, live.charged), (LiveState::Queued, 2, 1));
    let lost = view.last_finished.expect("the lost attempt");
    assert_eq!((lost.status, lost.id, lost.completed_at), (Status::Lost, assignment.execution, at(9)));
    assert_eq!((lost.worker.as_deref(), lost.session), (Some("w"), Some(session)));
    let other = harness.open_session("other").await;
    let next = harness.claim_one(at(10), other, 1).await;
    assert_eq!((next.execution.attempt, next.epoch.0), (2, 2));
    assert_eq!(harness.store.recover(at(11), 10).await.unwrap().ended, [], "nothing is left to recover");
}

pub async fn a_late_report_of_a_lost_execution_is_stale(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = hold(&harness, 1).await;
    harness.lose_and_recover(at(9), session).await;
    let late = harness.report(at(10), session, &assignment, succeeded(8)).await;
    assert_eq!(late.answer, ReportAnswer::Stale);
    assert_eq!(harness.view(job(1).id).await.status(), JobStatus::Active);
}

pub async fn a_lost_execution_without_retries_is_a_dead_letter(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.submit(at(1), job_with(1, |spec| spec.settings.max_retries = 0)).await;
    harness.claim_one(at(2), session, 1).await;
    let recovered = harness.lose_and_recover(at(9), session).await;
    assert_eq!((recovered.ended.len(), recovered.effects.queued), (1, vec![]));
    assert_eq!(harness.view(job(1).id).await.status(), JobStatus::Failed);
    assert_eq!(harness.dead_letters().await.len(), 1);
}

pub async fn recovery_is_bounded_and_says_when_there_is_more(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let sessions = [harness.open_session("w1").await, harness.open_session("w2").await];
    for n in 1..=6 {
        harness.submit(at(1), job(n)).await;
    }
    for session in sessions {
        assert_eq!(harness.claim(at(2), session, 1, 3).await.len(), 3);
        harness.lose(at(9), session, 0).await;
    }
    let mut lost = BTreeSet::new();
    for more in [true, true, false] {
        let recovered = harness.store.recover(at(9), 2).await.unwrap();
        assert_eq!((recovered.ended.len(), recovered.more), (2, more));
        lost.extend(recovered.ended);
    }
    assert_eq!(lost.len(), 6, "each once");
}

pub async fn losing_embedded_sessions_spares_the_others(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let remote = harness.open_session("remote").await;
    for worker in ["e1", "e2"] {
        let opening = SessionOpening {
            worker: worker.to_owned(),
            lease: LEASE,
            embedded: true,
            job_types: vec![],
            slots: 1,
            about: Default::default(),
            token: None,
        };
        harness.store.open_session(at(1), opening).await.unwrap();
    }
    assert_eq!(harness.store.lose_embedded_sessions(at(2)).await.unwrap(), 2);
    assert_eq!(harness.store.lose_embedded_sessions(at(2)).await.unwrap(), 0);
    let left: Vec<_> = harness.store.sessions().await.unwrap().iter().map(|row| row.pulse.session).collect();
    assert_eq!(left, [remote]);
}

pub async fn work_given_back_is_neither_charged_nor_numbered(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = hold(&harness, 1).await;
    let effects = harness.store.give_back(at(3), session, vec![assignment.lease()]).await.unwrap();
    assert_eq!(effects, [Some(queued_in("default"))]);
    let view = harness.view(job(1).id).await;
    let live = &view.open[0];
    assert_eq!((live.state, live.attempt, live.charged), (LiveState::Queued, 1, 0));
    assert_eq!(view.last_finished, None);
}

pub async fn work_given_back_returns_to_its_place(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, first) = hold(&harness, 1).await;
    harness.submit(at(5), job(2)).await;
    harness.store.give_back(at(6), session, vec![first.lease()]).await.unwrap();
    let order: Vec<_> =
        harness.claim(at(7), session, 2, 10).await.iter().map(|next| next.execution.occurrence.job).collect();
    assert_eq!(order, [job(1).id, job(2).id]);
}

pub async fn giving_back_a_lease_that_is_gone_does_nothing(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, old) = hold(&harness, 1).await;
    let other = harness.open_session("other").await;
    assert_eq!(harness.store.give_back(at(3), other, vec![old.lease()]).await.unwrap(), [None]);
    harness.store.give_back(at(3), session, vec![old.lease()]).await.unwrap();
    let new = harness.claim_one(at(4), other, 1).await;
    assert_eq!(harness.store.give_back(at(5), session, vec![old.lease()]).await.unwrap(), [None]);
    harness.accept(at(6), other, &new, succeeded(6)).await;
    assert_eq!(harness.store.give_back(at(7), other, vec![new.lease()]).await.unwrap(), [None]);
}

pub async fn a_resync_gives_back_only_what_is_not_held(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    for n in 1..=3 {
        harness.submit(at(i64::from(n)), job_with(n, |spec| spec.queue = format!("q{n}"))).await;
    }
    let claimed = harness.claim(at(4), session, 1, 3).await;
    let resync = Resync { session, turn: 2, held: vec![claimed[1].lease()] };
    let outcome = harness.store.resync(at(5), resync).await.unwrap();
    let ResyncOutcome::GivenBack(effects) = outcome else { panic!("resynced: {outcome:?}") };
    let lanes: BTreeSet<_> = effects.into_iter().flat_map(|effects| effects.queued).collect();
    assert_eq!(lanes, BTreeSet::from([Lane::new("q1", "report"), Lane::new("q3", "report")]));
    harness.accept(at(6), session, &claimed[1], succeeded(6)).await;
    assert_eq!(harness.report(at(6), session, &claimed[0], succeeded(6)).await.answer, ReportAnswer::Stale);
    assert_eq!(harness.claim(at(7), session, 3, 10).await.len(), 2);
}

pub async fn a_resync_uses_up_its_turn(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.submit(at(1), job(1)).await;
    let resync = Resync { session, turn: 2, held: vec![] };
    assert_eq!(harness.store.resync(at(2), resync).await.unwrap(), ResyncOutcome::GivenBack(vec![]));
    assert_eq!(harness.try_claim(at(3), session, 1, 1).await, ClaimOutcome::StaleTurn, "a late poll");
    assert_eq!(harness.try_claim(at(3), session, 2, 1).await, ClaimOutcome::StaleTurn);
    harness.claim_one(at(4), session, 3).await;
}

pub async fn a_resync_with_a_used_turn_is_stale(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = hold(&harness, 1).await;
    let resync = Resync { session, turn: 1, held: vec![] };
    assert_eq!(harness.store.resync(at(3), resync).await.unwrap(), ResyncOutcome::StaleTurn);
    harness.accept(at(4), session, &assignment, succeeded(4)).await;
}

pub async fn a_closed_session_gives_back_all_it_holds(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = hold(&harness, 1).await;
    let given_back = ResyncOutcome::GivenBack(vec![queued_in("default")]);
    assert_eq!(harness.store.close_session(at(3), session).await.unwrap(), given_back);
    assert_eq!(harness.report(at(4), session, &assignment, succeeded(4)).await.answer, ReportAnswer::Stale);
    let beat = harness.store.beat(at(4), vec![Beat { session, beat: 1, draining: false }]).await.unwrap();
    assert_eq!(beat, [BeatOutcome::SessionLost]);
    let other = harness.open_session("other").await;
    assert_eq!(harness.claim_one(at(5), other, 1).await.execution.attempt, 1);
}

fn queued_in(queue: &str) -> CommitEffects {
    CommitEffects { queued: vec![Lane::new(queue, "report")], ..CommitEffects::default() }
}

/// A session that holds the n-th job, from its first poll.
async fn hold(harness: &Harness, number: u32) -> (SessionId, Assignment) {
    let session = harness.open_session("w").await;
    harness.submit(at(1), job(number)).await;
    let assignment = harness.claim_one(at(2), session, 1).await;
    (session, assignment)
}

pub async fn a_paused_session_gets_no_work_and_keeps_what_it_has(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=3 {
        harness.submit(at(1), job(number)).await;
    }
    let held = worker.claim_one(at(2)).await;
    assert_eq!(order(&harness, worker.session, SessionOrder::Pause).await, Some(Ok(SessionMode::Paused)));
    assert!(worker.is_idle(at(3)).await);
    let reserved = harness.submit_to(at(3), job(4), Some(worker.reservation())).await;
    assert_eq!((reserved.assigned, reserved.queued), (vec![], vec![lane()]), "its reservation is not used");
    assert_eq!(harness.store.holdings().await.unwrap(), [(worker.session, 1)]);
    worker.beat(at(4)).await;
    worker.end(at(5), &held, succeeded(5)).await;
    let mut other = harness.worker().await;
    assert_eq!(other.claim(at(6), 1).await.len(), 1, "other sessions are not affected");
    assert_eq!(order(&harness, worker.session, SessionOrder::Resume).await, Some(Ok(SessionMode::Open)));
    assert_eq!(worker.claim(at(7), 10).await.len(), 2);
}

pub async fn a_draining_session_is_told_with_its_beat(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let beat = async |beat| {
        let beats = vec![Beat { session: worker.session, beat, draining: false }];
        match harness.store.beat(at(2), beats).await.unwrap().remove(0) {
            BeatOutcome::Counted { drain, .. } => drain,
            BeatOutcome::SessionLost => panic!("the worker is alive"),
        }
    };
    assert!(!beat(1).await);
    assert_eq!(order(&harness, worker.session, SessionOrder::Drain).await, Some(Ok(SessionMode::Draining)));
    assert!(beat(2).await && beat(3).await, "with every heartbeat, because an answer may be lost");
    assert_eq!(harness.store.sessions().await.unwrap()[0].mode, SessionMode::Draining);
    assert_eq!(order(&harness, worker.session, SessionOrder::Resume).await, Some(Err(SessionDraining)));
    assert!(worker.is_idle(at(3)).await);
    harness.store.close_session(at(4), worker.session).await.unwrap();
    assert_eq!(order(&harness, worker.session, SessionOrder::Drain).await, None);
}

pub async fn a_session_that_says_that_it_drains_gets_no_work_and_stays_so(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(1), job(2)).await;
    let held = worker.claim_one(at(2)).await;
    let beat = async |beat, draining| {
        let beats = vec![Beat { session: worker.session, beat, draining }];
        harness.store.beat(at(3), beats).await.unwrap().remove(0)
    };
    let counted = |drain| BeatOutcome::Counted { turn: 1, cancel: vec![], drain };
    assert_eq!(beat(5, false).await, counted(false));
    assert_eq!(beat(4, true).await, counted(true), "even if it arrives late");
    let sessions = harness.store.sessions().await.unwrap();
    assert_eq!((sessions[0].mode, sessions[0].pulse.beat), (SessionMode::Draining, 5));
    assert_eq!(beat(6, false).await, counted(true), "an earlier heartbeat that arrives late changes nothing");
    for verb in [SessionOrder::Resume, SessionOrder::Pause] {
        assert_eq!(order(&harness, worker.session, verb).await, Some(Err(SessionDraining)));
    }
    assert!(worker.is_idle(at(4)).await);
    worker.end(at(5), &held, succeeded(5)).await;
}

async fn order(
    harness: &Harness,
    session: SessionId,
    order: SessionOrder,
) -> Option<Result<SessionMode, SessionDraining>> {
    harness.store.order_session(session, order).await.unwrap()
}
