//! Rules of notifications.

use super::*;
use crate::access::NamePattern;
use crate::limits;
use crate::time::Timestamp;
use std::time::Duration;

fn job<'a>(name: &'a str, tags: &'a [String]) -> SelectedJob<'a> {
    SelectedJob { name, owner: "team-a", queue: "mail", job_type: "send", tags }
}

#[test]
fn a_selector_needs_a_match_in_each_of_its_lists() {
    let tags = ["backup".to_owned(), "night".to_owned()];
    let patterns = |texts: &[&str]| texts.iter().map(|text| NamePattern::new(*text)).collect::<Vec<_>>();
    assert!(JobSelector::default().matches(job("a", &[])));
    let tagged = JobSelector { tags: patterns(&["back*", "other"]), ..JobSelector::default() };
    assert!(tagged.matches(job("a", &tags)) && !tagged.matches(job("a", &[])));
    let both = JobSelector { owners: patterns(&["team-b"]), ..tagged };
    assert!(!both.matches(job("a", &tags)));
}

#[test]
fn a_channel_has_the_fields_of_its_type_and_no_others() {
    let fields = |channel: &Channel| -> Vec<String> {
        channel.problems("ops").into_iter().map(|problem| problem.field).collect()
    };
    let mut channel = Channel::new(ChannelType::Slack, Timestamp::EPOCH);
    assert_eq!(fields(&channel), ["url"]);
    channel.url = Some(ChannelSecret::Plain("ftp://x".to_owned()));
    assert_eq!(fields(&channel), ["url"]);
    channel.url = Some(ChannelSecret::Plain("https://hooks.example/x".to_owned()));
    assert_eq!(fields(&channel), [""; 0]);
    channel.routing_key = Some(ChannelSecret::Reference { name: "key".to_owned() });
    assert_eq!(fields(&channel), ["routing_key"]);
    let mut mail = Channel::new(ChannelType::Email, Timestamp::EPOCH);
    assert_eq!(fields(&mail), ["from", "to", "host"]);
    mail.host = Some("mail.example.org".to_owned());
    mail.from = Some("punctual@example.org".to_owned());
    mail.to = vec!["nobody".to_owned()];
    mail.username = Some("u".to_owned());
    assert_eq!(fields(&mail), ["to[0]", "password"]);
}

#[test]
fn secrets_of_channels_are_not_printed() {
    let mut channel = Channel::new(ChannelType::PagerDuty, Timestamp::EPOCH);
    channel.routing_key = Some(ChannelSecret::Plain("hunter2".to_owned()));
    assert!(!format!("{channel:?}").contains("hunter2"));
    let stored = serde_json::to_string(&channel).unwrap();
    assert_eq!(serde_json::from_str::<Channel>(&stored).unwrap(), channel);
    let reference: ChannelSecret = serde_json::from_str(r#"{"$secret": "pd"}"#).unwrap();
    assert_eq!(reference, ChannelSecret::Reference { name: "pd".to_owned() });
}

#[test]
fn deliveries_are_retried_more_and_more_rarely_for_a_day() {
    assert_eq!(retry_after(1, Duration::ZERO), Some(limits::DELIVERY_RETRY_MIN));
    assert_eq!(retry_after(3, Duration::ZERO), Some(limits::DELIVERY_RETRY_MIN * 4));
    assert_eq!(retry_after(u32::MAX, Duration::ZERO), Some(limits::DELIVERY_RETRY_MAX));
    assert_eq!(retry_after(1, limits::DELIVERY_TRIED_FOR), None);
}

#[test]
fn later_deliveries_come_first_and_their_ids_tell_the_time() {
    let at = Timestamp::from_micros(1_700_000_000_000_000);
    let (first, second) = (delivery_id(at, 7), delivery_id(at.plus(Duration::from_secs(1)), 3));
    assert!(second < first);
    assert_eq!(delivery_time(&first), Some(at));
    assert_eq!(delivery_time("x"), None);
}

#[test]
fn many_events_are_one_text_with_a_list() {
    let event = |name: &str| {
        NotificationEvent::new(
            name.to_owned(),
            EventKind::Failed,
            Timestamp::EPOCH,
            name,
            "It broke.".to_owned(),
        )
    };
    let key = DeliveryKey {
        channel: "ops".to_owned(),
        to: None,
        group: "g".to_owned(),
        kind: EventKind::Failed,
        held_by: vec![],
    };
    let mut delivery = Delivery::new(key.clone(), vec![], 0, Timestamp::EPOCH);
    for number in 0..50 {
        delivery.add(event(&format!("job-{number}")));
    }
    assert_eq!((delivery.events.len(), delivery.count), (limits::DELIVERY_EVENTS_MAX, 50));
    assert_eq!(delivery.key(), key);
    let message = OutgoingMessage {
        id: "m".to_owned(),
        sent_at: Timestamp::EPOCH,
        channel: Channel::new(ChannelType::Slack, Timestamp::EPOCH),
        is_trusted: false,
        dedup_key: String::new(),
        events: delivery.events,
        count: delivery.count,
        logs: vec![],
    };
    let text = default_text(&message);
    assert!(text.starts_with("50 events: job-0 failed, and more\n- job-0 failed: It broke."), "{text}");
    assert!(text.ends_with("… and 30 more"), "{text}");
}

#[test]
fn a_rule_names_what_its_events_need() {
    let rule = |events: &[RuleEvent]| NotificationRule {
        events: events.to_vec(),
        channels: vec![OWNER_CHANNEL.to_owned()],
        jobs: JobSelector::default(),
        failures: 1,
        successes: 1,
        late_by_ms: None,
        longer_than_ms: None,
        longer_than_usual_percent: None,
        dead_letters_above: None,
        queue_older_than_ms: None,
        limit_full_for_ms: None,
        ready_nodes_below: None,
        mute: None,
        escalate: None,
        disabled: false,
        created_at: Timestamp::EPOCH,
        updated_at: Timestamp::EPOCH,
    };
    let fields = |rule: &NotificationRule| -> Vec<String> {
        rule.problems("a").into_iter().map(|problem| problem.field).collect()
    };
    assert_eq!(fields(&rule(&[RuleEvent::Failed])), [""; 0]);
    // Neither a queue nor a node has an owner.
    assert_eq!(fields(&rule(&[RuleEvent::NodeNotReady])), ["channels"]);
    assert_eq!(
        fields(&rule(&[RuleEvent::LimitFull, RuleEvent::RunningLong])),
        ["longer_than", "limit_full_for"]
    );
    let mut wrong = rule(&[RuleEvent::Failed]);
    wrong.longer_than_usual_percent = Some(50);
    wrong.ready_nodes_below = Some(0);
    wrong.escalate = Some(Escalation { after_ms: 0, to: OWNER_CHANNEL.to_owned() });
    wrong.mute = Some(Mute { calendars: vec![], then: MutedThen::Send });
    assert_eq!(
        fields(&wrong),
        ["longer_than_usual_percent", "ready_nodes_below", "escalate.after", "escalate.to", "mute.calendars"]
    );
}

#[test]
fn a_silence_of_queues_covers_their_events_and_one_of_some_jobs_does_not() {
    let patterns = |names: &[&str]| names.iter().map(|name| NamePattern::new(*name)).collect();
    let silence = |jobs: JobSelector| Silence {
        jobs,
        starts_at: Timestamp::EPOCH,
        ends_at: Timestamp::EPOCH,
        reason: None,
        created_by: String::new(),
        created_at: Timestamp::EPOCH,
    };
    let of_queue = JobSelector { queues: patterns(&["mail*"]), ..JobSelector::default() };
    let of_jobs = JobSelector { names: patterns(&["*"]), ..of_queue.clone() };
    let covers = |jobs: &JobSelector, subject| silence(jobs.clone()).covers(subject);
    assert!(covers(&of_queue, EventSubject::Queue("mail-1")));
    assert!(!covers(&of_queue, EventSubject::Queue("other")));
    assert!(!covers(&of_queue, EventSubject::Other));
    assert!(!covers(&of_jobs, EventSubject::Queue("mail-1")));
    assert!(covers(&JobSelector::default(), EventSubject::Queue("other")));
    assert!(covers(&JobSelector::default(), EventSubject::Other));
}
