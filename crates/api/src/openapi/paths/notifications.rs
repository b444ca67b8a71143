//! Notifications.

use super::super::operation::{Operation, Title};
use super::{IN_USE, NO_PARAMETERS, NOTIFICATIONS, force, paged, paged_by_most};
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_client::schema::text;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    [channels(), rules(), silences(), alerts(), deliveries()].into_iter().flatten().collect()
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: NOTIFICATIONS, summary }
}

fn at(method: Method, path: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}{path}"), title)
}

fn on_channel(method: Method, path: &str, title: Title) -> Operation {
    let name = text().about("The name of the channel.").example("ops");
    at(method, &format!("/channels/{{name}}{path}"), title).in_path("name", name)
}

const UNREADABLE: &str = "The body cannot be read.";
const KEY: &str = "The server has no key for secrets, a channel of the configuration file has the name, or there are too many.";

fn channels() -> Vec<Operation> {
    let webhook = json!({"name": "ops", "type": "webhook", "url": "https://example.org/hooks/punctual"});
    let slack = json!({"type": "slack", "url": {"$secret": "slack-url"}});
    vec![
        paged_by_most(
            at(Method::GET, "/channels", title("listChannels", "List channels"))
                .needs(UseCase::ReadChannels)
                .about("By name, without their secret values.")
                .fails(400, "A parameter is unknown or out of range."),
        )
        .answers(200, "One page.", "ChannelPage"),
        at(Method::POST, "/channels", title("addChannel", "Add a channel"))
            .needs(UseCase::SetChannel)
            .about("Fails if there is one with its name. Test it with `POST /channels/{name}/test`.")
            .takes("SetChannel", webhook)
            .answers(201, "The channel.", "Channel")
            .fails(400, "The body cannot be read, or the request has an `Idempotency-Key`.")
            .fails(409, "There is a channel with this name, or the server has no key for secrets."),
        on_channel(Method::GET, "", title("getChannel", "Get a channel"))
            .needs(UseCase::ReadChannels)
            .about("Without its secret values.")
            .answers(200, "The channel.", "Channel")
            .fails(400, NO_PARAMETERS)
            .fails(404, "There is no such channel."),
        on_channel(Method::PUT, "", title("setChannel", "Set a channel"))
            .needs(UseCase::SetChannel)
            .about("Creates it, or replaces it. Secret values that the body leaves out stay. It also enables a channel that was disabled.")
            .takes("SetChannel", slack)
            .answers(200, "The channel was replaced.", "Channel")
            .answers(201, "The channel is new.", "Channel")
            .fails(400, "The body cannot be read, or the request has an `Idempotency-Key`.")
            .fails(409, KEY),
        on_channel(Method::DELETE, "", title("removeChannel", "Remove a channel"))
            .needs(UseCase::RemoveChannel)
            .about("Messages that wait for it are given up.")
            .in_query("force", force())
            .may_take("Nothing", json!({}))
            .answers_nothing(204, "The channel is gone.")
            .fails(404, "There is no such channel.")
            .fails(409, IN_USE),
        on_channel(Method::POST, "/test", title("testChannel", "Send a test message"))
            .needs(UseCase::TestChannel)
            .about("Sends it at once, and tells what the receiver answered.")
            .may_take("Nothing", json!({}))
            .answers(200, "What became of it.", "ChannelTested")
            .fails(404, "There is no such channel."),
    ]
}

fn on_rule(method: Method, title: Title) -> Operation {
    let name = text().about("The name of the rule.").example("nightly-backups");
    at(method, "/notifications/rules/{name}", title).in_path("name", name)
}

fn rules() -> Vec<Operation> {
    let example = json!({"events": ["failed", "missed"], "channels": ["ops"], "match": {"tags": ["backup"]}});
    let named = json!({"name": "backups", "events": ["failed"], "channels": ["ops"]});
    vec![
        paged_by_most(
            at(Method::GET, "/notifications/rules", title("listNotificationRules", "List rules"))
                .needs(UseCase::ReadNotifications)
                .about("By name.")
                .fails(400, "A parameter is unknown or out of range."),
        )
        .answers(200, "One page.", "NotificationRulePage"),
        at(Method::POST, "/notifications/rules", title("addNotificationRule", "Add a rule"))
            .needs(UseCase::SetNotificationRule)
            .about("Sends events of all jobs that it selects to channels, in addition to the `notify` of the jobs.")
            .takes("SetRule", named)
            .answers(201, "The rule.", "NotificationRule")
            .fails(400, UNREADABLE)
            .fails(409, "There is a rule with this name, or there are too many."),
        on_rule(Method::GET, title("getNotificationRule", "Get a rule"))
            .needs(UseCase::ReadNotifications)
            .about("With its selection of jobs.")
            .answers(200, "The rule.", "NotificationRule")
            .fails(400, NO_PARAMETERS)
            .fails(404, "There is no such rule."),
        on_rule(Method::PUT, title("setNotificationRule", "Set a rule"))
            .needs(UseCase::SetNotificationRule)
            .about("Creates it, or replaces it.")
            .takes("SetRule", example)
            .answers(200, "The rule was replaced.", "NotificationRule")
            .answers(201, "The rule is new.", "NotificationRule")
            .fails(400, UNREADABLE)
            .fails(409, "There are too many rules, or other requests keep changing the rule."),
        on_rule(Method::DELETE, title("removeNotificationRule", "Remove a rule"))
            .needs(UseCase::RemoveNotificationRule)
            .about("Messages that wait are still sent.")
            .may_take("Nothing", json!({}))
            .answers_nothing(204, "The rule is gone.")
            .fails(404, "There is no such rule."),
    ]
}

fn silences() -> Vec<Operation> {
    let id = text().about("The id of the silence.").example("fff9a4c2d1e05b7a0c11");
    vec![
        paged_by_most(
            at(Method::GET, "/notifications/silences", title("listSilences", "List silences"))
                .needs(UseCase::ReadNotifications)
                .about(
                    "Latest first, also those that have not begun. One is removed a day after it has ended.",
                )
                .fails(400, "A parameter is unknown or out of range."),
        )
        .answers(200, "One page.", "SilencePage"),
        at(Method::POST, "/notifications/silences", title("addSilence", "Suppress notifications for a time"))
            .needs(UseCase::AddSilence)
            .about("If a problem lasts longer than the silence, the next check after its end sends a notification.")
            .takes("AddSilence", json!({"match": {"tags": ["backup"]}, "duration": "2h"}))
            .answers(201, "The silence.", "Silence")
            .fails(400, UNREADABLE)
            .fails(409, "There are too many silences."),
        at(Method::DELETE, "/notifications/silences/{silence_id}", title("removeSilence", "End a silence"))
            .in_path("silence_id", id)
            .needs(UseCase::RemoveSilence)
            .about("Notifications are sent again.")
            .may_take("Nothing", json!({}))
            .answers_nothing(204, "The silence is gone.")
            .fails(404, "There is no such silence."),
    ]
}

fn alerts() -> Vec<Operation> {
    let id = text().about("The id of the alert.").example("failed~0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11");
    vec![
        paged_by_most(
            at(Method::GET, "/notifications/alerts", title("listAlerts", "List alerts"))
                .needs(UseCase::ReadNotifications)
                .about("Problems that last. An alert disappears when it is resolved.")
                .fails(400, "A parameter is unknown or out of range."),
        )
        .answers(200, "One page.", "AlertPage"),
        at(
            Method::POST,
            "/notifications/alerts/{alert_id}/ack",
            title("acknowledgeAlert", "Acknowledge an alert"),
        )
        .in_path("alert_id", id)
        .needs(UseCase::AcknowledgeAlert)
        .about("It is not repeated. Its end is still told.")
        .may_take("Nothing", json!({}))
        .answers(200, "The alert.", "Alert")
        .fails(404, "There is no such alert.")
        .fails(409, "Other requests keep changing the alert."),
    ]
}

fn deliveries() -> Vec<Operation> {
    let id = || text().about("The id of the delivery.").example("fff9a4c2d1e05b7a0c11");
    vec![
        paged(
            at(Method::GET, "/notifications/deliveries", title("listDeliveries", "List deliveries"))
                .needs(UseCase::ReadNotifications)
                .about("Messages that wait, were sent or were given up, for 14 days.")
                .fails(400, "A parameter is unknown or out of range."),
        )
        .answers(200, "One page.", "DeliveryPage"),
        at(Method::GET, "/notifications/deliveries/{delivery_id}", title("getDelivery", "Get a delivery"))
            .in_path("delivery_id", id())
            .needs(UseCase::ReadNotifications)
            .about("With its events and what the receiver answered.")
            .answers(200, "The delivery.", "Delivery")
            .fails(400, NO_PARAMETERS)
            .fails(404, "There is no such delivery."),
        at(
            Method::POST,
            "/notifications/deliveries/{delivery_id}/replay",
            title("replayDelivery", "Send a message once more"),
        )
        .in_path("delivery_id", id())
        .needs(UseCase::ReplayDelivery)
        .about("As a new delivery with its own id.")
        .may_take("Nothing", json!({}))
        .answers(200, "The new delivery.", "Delivery")
        .fails(404, "There is no such delivery.")
        .fails(409, "Other requests keep changing the delivery."),
        at(Method::GET, "/notifications", title("getNotifications", "Get the state of notifications"))
            .needs(UseCase::ReadNotifications)
            .about("Whether messages are sent, and how many wait.")
            .answers(200, "The state.", "Notifications")
            .fails(400, NO_PARAMETERS),
        at(
            Method::POST,
            "/notifications/resume",
            title("resumeNotifications", "Send notifications from a copy"),
        )
        .needs(UseCase::ResumeNotifications)
        .about("A store that was forked sends nothing until this is called.")
        .may_take("Nothing", json!({}))
        .answers(200, "The state.", "Notifications"),
    ]
}
