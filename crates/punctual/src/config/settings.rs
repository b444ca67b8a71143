//! Every setting, once: its key in `punctual.toml`, its type, its default, and what it does. Flags,
//! variables, the template and the reference page are all generated from these tables.

use super::layers::Layers;
use super::value::{
    self, Address, Count, LeastFree, Length, MostPercent, Name, QueueName, Raw, ServerAddress, SizeMax,
    SlotCount, Value,
};
use crate::args::Kept;
use crate::containment::ContainmentMode;
use crate::coordination::CoordinationUrl;
use crate::serve::{Allowed, ClockKind, Level, LogFormat, Network};
use crate::store::StoreUrl;
use punctual_core::limits;
use punctual_core::time::Timestamp;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The metadata of a setting, besides its type.
#[derive(Debug)]
pub struct Setting {
    /// The key in the file, prefixed with its table and a dot.
    pub key: &'static str,
    pub about: &'static str,
    /// The effects of large and small values, and what happens at the limit.
    pub limits: &'static str,
    pub default: Default,
    pub kind: fn() -> String,
    pub placeholder: fn() -> String,
    /// Parses a value relative to a directory and returns it in the file's syntax.
    pub check: fn(&Raw, &Path) -> Result<Json, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// In flag syntax.
    Is(&'static str),
    /// There is no default; an example value.
    Unset { such_as: &'static str },
}

/// The table with the settings that commands use to find a server. Its flags and variables omit the table's
/// name.
const CLIENT_TABLE: &str = "client.";
/// The main setting of a table: its flag and variable are the table's name.
const URL: &str = ".url";

impl Setting {
    fn plain_name(&self) -> &'static str {
        let name = self.key.strip_prefix(CLIENT_TABLE).unwrap_or(self.key);
        name.strip_suffix(URL).unwrap_or(name)
    }

    /// The flag, without dashes.
    pub fn flag(&self) -> String {
        self.plain_name().replace(['.', '_'], "-")
    }

    pub fn variable(&self) -> String {
        format!("PUNCTUAL_{}", self.plain_name().replace('.', "_").to_ascii_uppercase())
    }

    /// The table of the key; empty for top-level keys.
    pub fn table(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(table, _)| table)
    }

    /// The key within its table.
    pub fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }
}

/// Settings that are read together.
pub trait Table: Sized {
    fn settings() -> Vec<&'static Setting>;

    /// Reads the settings; problems are added to those of the layers, and a default is used instead.
    fn read(layers: &mut Layers<'_>) -> Self;
}

/// Defines a table: the settings, and a struct with a field for each.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $table:ident {$(
            $(#[doc = $about:literal])+
            $field:ident: $type:ty = $key:literal, $default:expr, $limits:literal;
        )+}
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        pub struct $table {$(
            $(#[doc = $about])+
            pub $field: $type,
        )+}

        impl $table {
            const SETTINGS: &'static [Setting] = &[$(Setting {
                key: $key,
                about: concat!($($about),+).trim_ascii(),
                limits: $limits,
                default: $default,
                kind: <$type as Value>::kind,
                placeholder: <$type as Value>::placeholder,
                check: |raw, directory| {
                    value::read::<$type>(raw).map(|value| value.seen_from(directory).written())
                },
            }),+];
        }

        impl Table for $table {
            fn settings() -> Vec<&'static Setting> {
                Self::SETTINGS.iter().collect()
            }

            fn read(layers: &mut Layers<'_>) -> Self {
                let mut settings = Self::SETTINGS.iter();
                $table {$(
                    $field: layers.value::<$type>(settings.next().expect("a setting for each field")),
                )+}
            }
        }
    };
}

/// Combines tables for a command that reads all of them, so that problems in all of them are reported at
/// once.
macro_rules! tables {
    ($(#[$meta:meta])* pub struct $name:ident { $($field:ident: $table:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        pub struct $name {
            $(pub $field: $table,)+
        }

        impl Table for $name {
            fn settings() -> Vec<&'static Setting> {
                [$(<$table>::settings()),+].concat()
            }

            fn read(layers: &mut Layers<'_>) -> Self {
                $name { $($field: <$table>::read(layers)),+ }
            }
        }
    };
}

const fn is(text: &'static str) -> Default {
    Default::Is(text)
}

const fn unset(such_as: &'static str) -> Default {
    Default::Unset { such_as }
}

/// Bounds of durations, in milliseconds.
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const LEASE_MIN: u64 = millis(limits::SESSION_LEASE_MIN);
const LEASE_MAX: u64 = millis(limits::SESSION_LEASE_MAX);
const MEMBER_TTL_MIN: u64 = millis(limits::MEMBER_TTL_MIN);
const MEMBER_TTL_MAX: u64 = millis(limits::MEMBER_TTL_MAX);
const CLOCK_OFFSET_LEAST: u64 = millis(limits::CLOCK_OFFSET_MAX_LEAST);
const CLOCK_OFFSET_MOST: u64 = millis(limits::CLOCK_OFFSET_MAX_MOST);
const DRAIN_GRACE_MAX: u64 = millis(limits::TIMEOUT_MAX);

const fn millis(duration: Duration) -> u64 {
    duration.as_secs() * 1_000 + duration.subsec_millis() as u64
}

settings! {
    /// Where a server's files are: for the server and for commands on the same machine.
    pub struct Place {
        /// Where the embedded database and the admin token are kept
        data_dir: PathBuf = "data_dir", is("./punctual-data"),
            "It is created for its owner only. One server at a time can have it open.";
    }
}

settings! {
    /// How commands find the server.
    pub struct ClientSettings {
        /// The server's address; by default the one that the data directory names, or 127.0.0.1:7070
        server: Option<ServerAddress> = "client.server", unset("jobs.example.org:7070"),
            "A server that cannot be reached ends the command with exit code 3.";
        /// A file with the API token; by default the admin token in the data directory
        token_file: Option<PathBuf> = "client.token_file", unset("/etc/punctual/token"),
            "Only its owner should be able to read it; if others can, commands warn.";
    }
}

settings! {
    /// How the API accepts requests.
    pub struct ApiSettings {
        /// Where to listen; port 0 takes any free one
        listen: Address = "listen", is("127.0.0.1:7070"),
            "Beyond loopback the connection is not encrypted: put TLS before it.";
        /// How long open requests may take to finish once the handlers have
        shutdown_grace: Length<0, HOUR> = "shutdown_grace", is("10s"),
            "Requests that take longer are cut off.";
        /// Connections at once
        connections_max: Count<1, 1_000_000> = "connections_max", is("4096"),
            "A further one takes the place of an idle one, or is answered 503 if all are at work. Each needs a file descriptor.";
        /// How long a request's head may take to arrive, and how long a connection may stay idle
        header_timeout: Length<SECOND, HOUR> = "header_timeout", is("30s"),
            "Slower clients are disconnected.";
        /// How long a request's body may take to arrive
        body_timeout: Length<SECOND, HOUR> = "body_timeout", is("30s"),
            "A slower one is answered 408, and its connection is closed.";
        /// How long a client may take to read what it was sent
        write_timeout: Length<SECOND, HOUR> = "write_timeout", is("30s"),
            "Slower clients are disconnected.";
        /// Bytes of a request's head
        head_bytes_max: Count<8_192, 1_048_576> = "head_bytes_max", is("32768"),
            "A longer one is answered 431.";
        /// Bytes of a request's path and query
        uri_bytes_max: Count<256, 65_536> = "uri_bytes_max", is("8192"),
            "A longer one is answered 414.";
    }
}

settings! {
    /// The settings of a worker: the one of `punctual serve`, or a standalone one.
    pub struct WorkerSettings {
        /// Handlers that the worker runs at once: a number, or the least and the most of them, such as 4..64
        slots: SlotCount = "slots", is("16"),
            "What is due beyond them waits in its queue. Between two bounds the worker makes more slots while executions wait and its machine carries them, and gives them up again when they are idle.";
        /// Executions that the worker holds ready beyond its slots
        prefetch: Count<0, 10_000> = "prefetch", is("64"),
            "They save a wait between short jobs: the worker holds no more than it will start within 100 ms, and gives back what it has held for 500 ms. What is held is not given to other workers; 0 holds nothing.";
        /// The queues that the worker serves; all if empty
        queues: Vec<QueueName> = "queues", is(""),
            "Other queues wait for workers of their own.";
        /// Commands that the worker runs for whoever may submit jobs: process, shell
        allow: Vec<Allowed> = "allow", is(""),
            "They run as the user of the server. Jobs of a type that is not allowed wait for a worker that has it.";
        /// How long the worker may be silent before its work is given to others
        lease: Length<LEASE_MIN, LEASE_MAX> = "lease", is("6s"),
            "Short leases recover sooner; a machine that stalls for longer than its lease loses its work to a retry.";
        /// How long running handlers may take to finish when the server stops
        drain_grace: Length<0, DRAIN_GRACE_MAX> = "drain_grace", is("30s"),
            "What still runs then is stopped and ends LOST. It counts as an attempt: it runs again if it has retries left, and is a dead letter with max_retries 0. Let TimeoutStopSec of systemd be longer.";
        /// Where http jobs may go beyond the public internet, such as 10.0.0.0/8 or internal.example:8080
        http_allow: Vec<Network> = "http.allow", is(""),
            "Calls to other private addresses fail for good.";
        /// A file with the key that signs the calls of http jobs which bring none of their own
        http_signing_key_file: Option<PathBuf> = "http.signing_key_file", unset("/etc/punctual/signing.key"),
            "Read at the start. Only its owner should be able to read it; if others can, the server warns.";
        /// A file with certificates (PEM) that http jobs trust beside the well-known ones
        http_ca_file: Option<PathBuf> = "http.ca_file", unset("/etc/punctual/ca.pem"),
            "Read at the start.";
        /// What keeps the processes of a command together, whatever it does to the process that watches it: auto, cgroup, namespace or none
        containment: ContainmentMode = "worker.containment", is("auto"),
            "Auto uses a cgroup for each command where one can be made, and none otherwise; the log and `punctual doctor` say which. A choice that this machine cannot keep stops the worker at its start. In a namespace, commands cannot signal processes outside, and those of an ordinary user cannot use sudo.";
        /// Memory that must be free for the worker to take more work: of its control group or of the machine
        memory_free_min: LeastFree = "worker.memory_free_min", is("3%"),
            "With less it takes nothing new and goes on with what it has, until a fifth more is free: one more handler might have the kernel kill the worker, and lose all that it runs. Off takes work whatever is free.";
        /// Space that must be free on the worker's disk for it to take more work
        disk_free_min: LeastFree = "worker.disk_free_min", is("off"),
            "The disk is that of the data directory, or of the directory that the worker was started in. Only you know what your handlers write.";
        /// How busy the processors may be for the worker to take more work
        cpu_max: MostPercent = "worker.cpu_max", is("off"),
            "Over about ten seconds, of the processors that it may use. A busy machine is slow, but loses nothing: with a limit work waits in its queue instead.";
    }
}

settings! {
    /// What schedulers retain.
    pub struct SchedulerSettings {
        /// How long to keep jobs after they have finished; those with dead letters stay
        keep_finished_jobs: Kept = "keep_finished_jobs", is("forever"),
            "The history of a job goes with it.";
        /// How long to keep the history and logs of executions
        keep_history: Kept = "keep_history", is("30d"),
            "Older ones are deleted in small steps, once a minute. The space is used again; the file does not shrink.";
        /// How far this machine's clock may be off the store's
        clock_offset_max: Length<CLOCK_OFFSET_LEAST, CLOCK_OFFSET_MOST> = "scheduler.clock_offset_max", is("30s"),
            "A scheduler that is further off says so in /readyz and fires nothing; its segments go to others.";
        /// A file of hooks that are told when a queue has been long or short for a while, so that they start or stop workers
        scaling_hooks_file: Option<PathBuf> = "scaling.hooks_file", unset("/etc/punctual/hooks.toml"),
            "Read at the start. Its commands run as the user of the server: only its owner should be able to write it; if others can, the server warns.";
    }
}

settings! {
    /// The clock of schedules.
    pub struct ClockSettings {
        /// What schedules go by: this machine's clock, or one that stands still until `punctual clock` moves it
        clock: ClockKind = "clock", is("system"),
            "A manual clock is for tests of schedules.";
        /// Where a manual clock starts; now if left out
        clock_start: Option<Timestamp> = "clock_start", unset("2026-03-29T00:00:00Z"),
            "Only with clock = \"manual\".";
    }
}

settings! {
    /// The log of the process.
    pub struct LogSettings {
        /// Lines for people, or one JSON object per line
        format: LogFormat = "log.format", is("text"),
            "The log goes to standard error.";
        /// error, warn, info, debug or trace; also by module, such as info,punctual_engine=debug
        level: Level = "log.level", is("info"),
            "A warning that repeats itself is shown once in 30 seconds, with a count.";
    }
}

settings! {
    /// Where jobs are stored.
    pub struct StoreSettings {
        /// Where jobs are kept: sqlite:DIRECTORY, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE; by default SQLite in the data directory
        url: Option<StoreUrl> = "store.url", unset("postgres://punctual@db.example.org/punctual"),
            "SQLite belongs to one process; a PostgreSQL or MySQL database can be shared by any number. The password has a file or a variable of its own.";
        /// A file with the password of the database; PUNCTUAL_STORE_PASSWORD counts before it
        password_file: Option<PathBuf> = "store.password_file", unset("/etc/punctual/store.password"),
            "Read at the start. Only its owner should be able to read it; if others can, the server warns.";
        /// Connections that this process reads through
        pool: Count<1, 1_000> = "store.pool", is("8"),
            "A read that finds all of them busy waits. Not for SQLite.";
        /// Connections that this process writes through, each with a transaction of its own
        writers: Count<1, 64> = "store.writers", is("4"),
            "What waits to be written shares transactions: more writers help only where the database is far away. Not for SQLite.";
        /// How long one statement may take
        statement_timeout: Length<{SECOND / 10}, HOUR> = "store.statement_timeout", is("30s"),
            "A longer one is broken off, and the request is answered 503. Not for SQLite.";
        /// A copy of the database that lists and views may be read from
        replica: Option<StoreUrl> = "store.replica", unset("postgres://punctual@replica.example.org/punctual"),
            "It may be behind: what is decided is never read from it. Not for SQLite.";
        /// How often all of the SQLite files is checked for damage beside the work
        check_interval: Length<0, {30 * 24 * HOUR}> = "store.check_interval", is("1d"),
            "The first check begins with the start. A check uses about 5% of one processor and takes as long as that needs. Damage makes /readyz answer 503. 0s checks only at the start. Only for SQLite.";
    }
}

settings! {
    /// How much of the logs of executions is retained.
    pub struct LogsSettings {
        /// How much all log lines of executions together may take up
        total_size_max: SizeMax = "logs.total_size_max", is("10GiB"),
            "Beyond it the oldest lines are removed, and a log that lost some begins with a line that says so. Say the same everywhere. Off keeps them for as long as keep_history says.";
    }
}

settings! {
    /// How the processes that share a store divide the work.
    pub struct CoordinationSettings {
        /// Through what processes on one store share out segments and elect a leader: store, etcd://HOST:2379, redis://HOST:6379 or zookeeper://HOST:2181
        url: CoordinationUrl = "coordination.url", is("store"),
            "While it is away, every scheduler looks after everything: nothing is late or fired twice, only more is read. Not for SQLite.";
        /// A file with the password of whoever coordination.url names
        password_file: Option<PathBuf> = "coordination.password_file", unset("/etc/punctual/coordination.password"),
            "Read at the start. Only its owner should be able to read it; if others can, the server warns.";
        /// How long a process may be silent before what it looks after goes to others
        ttl: Length<MEMBER_TTL_MIN, MEMBER_TTL_MAX> = "coordination.ttl", is("3s"),
            "Short times fail over sooner; a machine that stalls for longer loses its segments until it is back, and nothing else. Say the same everywhere. Not for SQLite.";
    }
}

settings! {
    /// Where processes that serve no requests about jobs report their health.
    pub struct HealthSettings {
        /// Where `punctual scheduler` and `punctual worker` answer /livez, /readyz and /metrics; a scheduler does on 127.0.0.1:7071 unless told otherwise, a worker only if told
        listen: Option<Address> = "health.listen", unset("127.0.0.1:7071"),
            "Beyond loopback the connection is not encrypted. /metrics needs a token, the others do not.";
    }
}

settings! {
    /// The identity of a standalone worker.
    pub struct WorkerName {
        /// The name of `punctual worker`, the same after a restart; the machine's by default
        worker_name: Option<Name> = "worker_name", unset("reports-1"),
            "People see it with `punctual workers list`.";
    }
}

tables! {
    /// The settings of `punctual serve`.
    pub struct ServeSettings {
        api: ApiSettings,
        worker: WorkerSettings,
        scheduler: SchedulerSettings,
        clock: ClockSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        coordination: CoordinationSettings,
    }
}

tables! {
    /// The settings of `punctual api`.
    pub struct ApiRoleSettings {
        api: ApiSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        coordination: CoordinationSettings,
    }
}

tables! {
    /// The settings of `punctual scheduler`.
    pub struct SchedulerRoleSettings {
        health: HealthSettings,
        scheduler: SchedulerSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        coordination: CoordinationSettings,
    }
}

tables! {
    /// The settings of `punctual worker`.
    pub struct WorkerRoleSettings {
        name: WorkerName,
        worker: WorkerSettings,
        health: HealthSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        coordination: CoordinationSettings,
    }
}

tables! {
    /// The settings of all roles.
    #[expect(dead_code, reason = "some are read by their own roles, and here only listed and checked")]
    pub struct RoleSettings {
        serve: ServeSettings,
        name: WorkerName,
        health: HealthSettings,
    }
}

/// Every setting, in the order of a file: top-level keys first.
pub fn all() -> Vec<&'static Setting> {
    let mut all = [Place::settings(), RoleSettings::settings(), ClientSettings::settings()].concat();
    all.sort_by_key(|setting| !setting.table().is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_examples_are_right() {
        for setting in all() {
            let text = match setting.default {
                Default::Is(text) => text,
                Default::Unset { such_as } => such_as,
            };
            let read = (setting.check)(&Raw::word(text), Path::new(""));
            assert!(read.is_ok(), "{}: {read:?}", setting.key);
        }
    }

    #[test]
    fn names_of_flags_and_variables_follow_from_the_key() {
        let names = |key: &str| {
            let setting = all().into_iter().find(|setting| setting.key == key).unwrap();
            (setting.flag(), setting.variable())
        };
        let expect = |flag: &str, variable: &str| (flag.to_owned(), variable.to_owned());
        assert_eq!(names("drain_grace"), expect("drain-grace", "PUNCTUAL_DRAIN_GRACE"));
        assert_eq!(names("http.ca_file"), expect("http-ca-file", "PUNCTUAL_HTTP_CA_FILE"));
        assert_eq!(names("client.token_file"), expect("token-file", "PUNCTUAL_TOKEN_FILE"));
        assert_eq!(names("store.url"), expect("store", "PUNCTUAL_STORE"));
        assert_eq!(names("store.replica"), expect("store-replica", "PUNCTUAL_STORE_REPLICA"));
        let mut variables: Vec<String> = all().iter().map(|setting| setting.variable()).collect();
        variables.sort();
        variables.dedup();
        assert_eq!(variables.len(), all().len(), "two settings share a variable");
    }
}
