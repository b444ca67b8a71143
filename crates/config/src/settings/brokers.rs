//! Settings of brokers: ready queues, published events, and jobs in messages.

use super::{Setting, SettingsTable, is, unset};
use crate::broker_url::{BrokerUrl, PublishedTypeName, Topic};
use crate::layers::Layers;
use crate::oidc::Text;
use crate::value::{self, Name, Value};
use crate::web::Switch;
use std::path::PathBuf;

settings! {
    /// How the processes that share a store wake each other.
    pub struct BrokerSettings {
        /// The broker that carries hints of queued work between processes that share a store: none, redis://HOST:6379, nats://HOST:4222 or amqp://HOST:5672
        url: BrokerUrl = "broker.url", is("none"),
            "It only wakes workers; the database decides what runs. Without a broker, PostgreSQL carries the hints, and on MySQL processes poll. While the broker is unavailable, processes poll the database. Use the same broker for all processes. Not for SQLite.";
        /// A file with the password of the user in broker.url
        password_file: Option<PathBuf> = "broker.password_file", unset("/etc/punctual/broker.password"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
    }
}

settings! {
    /// Which events are published for other systems.
    pub struct EventSettings {
        /// The broker that finished executions and dead letters are published to, as CloudEvents: none, redis://HOST:6379, nats://HOST:4222 or amqp://HOST:5672
        url: BrokerUrl = "events.url", is("none"),
            "Each event is published at least once; while the broker is unavailable, events wait in the database, for as long as keep_history keeps history. Events begin when this is first set. Use the same value on all servers and schedulers.";
        /// A file with the password of the user in events.url
        password_file: Option<PathBuf> = "events.password_file", unset("/etc/punctual/events.password"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// The stream in Redis, the subject in NATS, or the exchange in RabbitMQ; by default the prefix in events.url and `.events`
        topic: Option<Topic> = "events.topic", unset("punctual.events"),
            "It is created if it does not exist, and then keeps the last million events.";
        /// Which events are published
        types: Vec<PublishedTypeName> = "events.types", is("execution.finished,dead_letter.added"),
            "Fewer types save reads of the database and messages.";
        /// The `source` of the events, a URI or a path
        source: Text = "events.source", is("/punctual"),
            "Choose a different one for each cluster if consumers read the events of several.";
        /// Include the payload of the job and the result of the execution in events
        payloads: Switch = "events.payloads", is("false"),
            "Payloads may contain personal data, and everybody who can read the topic can read them then.";
    }
}

settings! {
    /// Where jobs of other systems come from.
    pub struct IntakeSettings {
        /// The broker whose messages are submitted as jobs: none, redis://HOST:6379, nats://HOST:4222 or amqp://HOST:5672
        url: BrokerUrl = "intake.url", is("none"),
            "A message contains the JSON of POST /jobs, or a CloudEvent with it. It is acknowledged after its job is stored, and one that is delivered again creates no second job. All servers and API nodes with this setting share the messages.";
        /// A file with the password of the user in intake.url
        password_file: Option<PathBuf> = "intake.password_file", unset("/etc/punctual/intake.password"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// The stream in Redis, the subject in NATS, or the queue in RabbitMQ; by default the prefix in intake.url and `.jobs`
        topic: Option<Topic> = "intake.topic", unset("punctual.jobs"),
            "It is created if it does not exist. Messages that are no valid jobs are moved to the topic with `.rejected` after its name.";
        /// The owner of jobs from messages; needed with intake.url
        owner: Option<Name> = "intake.owner", unset("shop"),
            "Messages can submit jobs of this owner only, and do nothing else. Everybody who can write to the topic can submit them.";
    }
}
