//! Every setting, once: its key in `punctual.toml`, its type, its default, and what it does. Flags,
//! variables, the template and the reference page are all generated from these tables.

use crate::allowed::{Allowed, AllowedNetwork};
use crate::args::RetentionTime;
use crate::choices::{ClientAuth, ClockKind, LogFormat};
use crate::coordination_url::CoordinationUrl;
use crate::layers::Layers;
use crate::log_level::LogLevels;
use crate::oidc::{IssuerUrl, PublicUrl, RoleMapping, Text};
use crate::rates::{PerSecond, PerTime};
use crate::run_as::{QueueUser, RunAs};
use crate::store_url::StoreUrl;
use crate::value::{
    self, Address, Count, JobTypeName, LeastFree, Length, MostPercent, Name, QueueName, Raw, ServerAddress,
    SizeMax, SlotCount, Value,
};
use crate::web::{HostName, Switch, WebOrigin};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_shim::containment::ContainmentMode;
use punctual_shim::sandbox::IsolationMode;
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
    /// Whether its flag needs no value.
    pub is_switch: bool,
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
pub trait SettingsTable: Sized {
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
                is_switch: <$type as Value>::IS_SWITCH,
                check: |raw, directory| {
                    value::read::<$type>(raw).map(|value| value.seen_from(directory).written())
                },
            }),+];
        }

        impl SettingsTable for $table {
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

        impl SettingsTable for $name {
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
const CLOCK_SKEW_MAX: u64 = 300 * SECOND;
const DRAIN_GRACE_MAX: u64 = millis(limits::TIMEOUT_MAX);
const RATE_LIMIT_MAX: u64 = limits::RATE_LIMIT_MAX as u64;

const fn millis(duration: Duration) -> u64 {
    duration.as_secs() * 1_000 + duration.subsec_millis() as u64
}

settings! {
    /// Where a server's files are: for the server and for commands on the same machine.
    pub struct DataPlace {
        /// Directory of the embedded database and the admin token
        data_dir: PathBuf = "data_dir", is("./punctual-data"),
            "Created with access for its owner only. Only one server at a time can open it.";
    }
}

settings! {
    /// How commands find the server.
    pub struct ClientSettings {
        /// The server's address; by default the server of the data directory, or 127.0.0.1:7070
        server: Option<ServerAddress> = "client.server", unset("jobs.example.org:7070"),
            "If the server cannot be reached, the command fails with exit code 3.";
        /// A file with the API token; by default the admin token in the data directory
        token_file: Option<PathBuf> = "client.token_file", unset("/etc/punctual/token"),
            "Only its owner should be able to read it; commands print a warning otherwise. The token in a data directory is only sent to the server of that directory: another server that client.server names needs a token of its own.";
        /// How long to repeat requests that the server asks to repeat later (429 and 503); 0s never repeats
        retry_time: Length<0, HOUR> = "client.retry_time", is("30s"),
            "The command says once that it waits. It ends with the last answer if the server asks for a longer wait than what is left of the time.";
        /// A file with CA certificates (PEM) to trust for an https server instead of the well-known ones
        tls_ca: Option<PathBuf> = "client.tls_ca", unset("/etc/punctual/ca.pem"),
            "With it, or with a client certificate, a server address without a scheme means https.";
        /// A file with this client's certificate and its chain (PEM), for a server that demands one
        tls_client_cert: Option<PathBuf> = "client.tls_client_cert", unset("/etc/punctual/worker.pem"),
            "Read when the command starts. Needs client.tls_client_key as well.";
        /// A file with the private key (PEM) of client.tls_client_cert
        tls_client_key: Option<PathBuf> = "client.tls_client_key", unset("/etc/punctual/worker.key"),
            "Only its owner should be able to read it; commands print a warning otherwise.";
    }
}

impl ClientSettings {
    /// Whether any certificate for the connection to the server is set.
    pub fn names_certificates(&self) -> bool {
        self.tls_ca.is_some() || self.tls_client_cert.is_some()
    }
}

settings! {
    /// How a process that listens is reached.
    pub struct ListenerSettings {
        /// A file with the server's certificate and its chain (PEM): listeners use TLS
        tls_cert: Option<PathBuf> = "tls_cert", unset("/etc/punctual/server.pem"),
            "Needs tls_key as well. The files are checked every two seconds: new connections use a new certificate, and a file that cannot be used is reported in the log and changes nothing.";
        /// A file with the private key (PEM) of tls_cert
        tls_key: Option<PathBuf> = "tls_key", unset("/etc/punctual/server.key"),
            "Only its owner should be able to read it; the server logs a warning otherwise.";
        /// Allow listening on addresses other than loopback without TLS
        insecure_http: Switch = "insecure_http", is("false"),
            "Tokens and payloads then cross the network unencrypted: only for a network that you trust, such as behind a TLS proxy. Without it, such a server does not start.";
        /// Host names that requests may use, such as jobs.example.org or *.example.org, without a port
        allowed_hosts: Vec<HostName> = "allowed_hosts", is(""),
            "Always allowed: localhost, IP addresses, the name in the listen address, and the names in tls_cert. A request for another host is answered with 421, except /livez and /readyz.";
    }
}

settings! {
    /// How the API accepts requests.
    pub struct ApiSettings {
        /// Address to listen on; port 0 selects any free port
        listen: Address = "listen", is("127.0.0.1:7070"),
            "An address other than loopback needs tls_cert and tls_key, or insecure_http.";
        /// A file with CA certificates (PEM): clients need a certificate that one of them signed
        tls_client_ca: Option<PathBuf> = "tls_client_ca", unset("/etc/punctual/clients.pem"),
            "In addition to a token. Needs tls_cert, and is checked for changes with it.";
        /// Who needs a client certificate if tls_client_ca is set: all, or only workers
        tls_client_auth: ClientAuth = "tls_client_auth", is("all"),
            "With all, every connection needs one, including health checks. With workers, requests of the worker protocol without one are answered with 403, and others need none.";
        /// Origins of web pages whose scripts may use the API, such as https://intranet.example.org
        cors_origins: Vec<WebOrigin> = "cors_origins", is(""),
            "Exact origins only. Browsers refuse scripts of all other origins. The scripts still need a token.";
        /// How long open requests may take to finish after all handlers have finished
        shutdown_grace: Length<0, HOUR> = "shutdown_grace", is("10s"),
            "Requests that take longer are aborted.";
        /// Maximum number of concurrent connections
        connections_max: Count<1, 1_000_000> = "connections_max", is("4096"),
            "A new connection beyond that replaces an idle one, or is answered with 503 if all are busy. Each connection needs a file descriptor.";
        /// How long a TLS handshake and a request's head may take, and how long a connection may stay idle
        header_timeout: Length<SECOND, HOUR> = "header_timeout", is("30s"),
            "Slower clients are disconnected.";
        /// How long a request's body may take to arrive
        body_timeout: Length<SECOND, HOUR> = "body_timeout", is("30s"),
            "A slower request is answered with 408, and its connection is closed.";
        /// How long a client may take to read a response
        write_timeout: Length<SECOND, HOUR> = "write_timeout", is("30s"),
            "Slower clients are disconnected. With HTTP/2, only the request is reset.";
        /// Maximum size of a request's head in bytes
        head_bytes_max: Count<8_192, 1_048_576> = "head_bytes_max", is("32768"),
            "A longer one is answered with 431.";
        /// Maximum size of a request's path and query in bytes
        uri_bytes_max: Count<256, 65_536> = "uri_bytes_max", is("8192"),
            "A longer one is answered with 414.";
        /// Maximum number of requests per second of one user or token, on average; none for no limit
        rate_limit: PerSecond = "rate_limit", is("50000"),
            "Further requests are answered with 429 and Retry-After. The worker protocol, /livez, /readyz and /metrics are not limited. Each process counts separately.";
        /// Number of requests that one user or token may send at once before rate_limit applies
        rate_burst: Count<1, RATE_LIMIT_MAX> = "rate_burst", is("100000"),
            "Further requests are answered with 429 and Retry-After.";
        /// Maximum number of requests per second without a valid token from one address, on average; none for no limit
        auth_failure_limit: PerSecond = "auth_failure_limit", is("100"),
            "Further requests from that address are answered with 429 and Retry-After without a check of their token, unless the same token was valid before. IPv6 addresses count by network (/64). Behind a proxy, all clients have the address of the proxy.";
        /// Number of requests without a valid token that one address may send at once before auth_failure_limit applies
        auth_failure_burst: Count<1, RATE_LIMIT_MAX> = "auth_failure_burst", is("10000"),
            "Further requests are answered with 429 and Retry-After.";
        /// Maximum number of jobs that one owner may submit in a span of time; none for no limit
        submit_quota: PerTime = "submit_quota", is("none"),
            "All of them may come at once; then the quota refills evenly over the span. Further jobs are answered with 429 and Retry-After, in a batch each on its own. Each process counts separately.";
    }
}

settings! {
    /// The address under which people know the server.
    pub struct AddressSettings {
        /// The address of this server for browsers, such as https://jobs.example.org
        public_url: Option<PublicUrl> = "public_url", unset("https://jobs.example.org"),
            "Needed for logins behind a proxy; otherwise it follows from the requests. Logins with an identity provider return to this address and /login/callback. Links in notifications lead there.";
    }
}

settings! {
    /// The identity provider whose users may use the API.
    pub struct OidcSettings {
        /// The issuer of an OpenID Connect provider: its users may use the API
        issuer: Option<IssuerUrl> = "oidc.issuer", unset("https://id.example.org"),
            "Exactly as in its JWTs. It must begin with https://. Its keys are read from there when they are needed, and again every 5 minutes.";
        /// The audience that JWTs in requests must have
        audience: Option<Text> = "oidc.audience", unset("punctual"),
            "Without it, JWTs are not accepted in the header Authorization.";
        /// The id of this server at the provider: browsers can log in with it
        client_id: Option<Text> = "oidc.client_id", unset("punctual"),
            "Register the address of this server and /login/callback as the redirect URI.";
        /// A file with the secret of oidc.client_id; without it, the client is public and uses only PKCE
        client_secret_file: Option<PathBuf> = "oidc.client_secret_file", unset("/etc/punctual/oidc.secret"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// The scopes that a login asks for
        scopes: Vec<Text> = "oidc.scopes", is("openid,email,profile"),
            "Some providers send roles only with another scope, such as groups.";
        /// The claim with the roles of a user at the provider; dots lead into nested claims
        role_claim: Text = "oidc.role_claim", is("roles"),
            "Such as groups, or realm_access.roles for Keycloak.";
        /// Which values of oidc.role_claim give which role here, such as jobs-admins=admin
        roles: Vec<RoleMapping> = "oidc.roles", is(""),
            "The first entry that matches decides. A user of this server with the same verified email address has its own role instead. Others are refused.";
        /// The claim with the owner of the jobs that a user submits
        owner_claim: Option<Text> = "oidc.owner_claim", unset("team"),
            "By default, submitters are owners by their verified email address, or else by their subject.";
        /// How far the clocks of the provider and this server may be apart
        clock_skew: Length<0, CLOCK_SKEW_MAX> = "oidc.clock_skew", is("60s"),
            "A JWT is accepted for this long after it has expired.";
        /// A file with CA certificates (PEM) to trust for the provider instead of the well-known ones
        ca_file: Option<PathBuf> = "oidc.ca_file", unset("/etc/punctual/ca.pem"),
            "Read at startup.";
        /// Allow a provider without TLS on this machine, for tests
        allow_http: Switch = "oidc.allow_http", is("false"),
            "Only for an issuer such as http://127.0.0.1:3000.";
    }
}

settings! {
    /// The settings of a worker: the one of `punctual serve`, or a standalone one.
    pub struct WorkerSettings {
        /// Handlers that the worker runs at once: a number, or a minimum and a maximum, such as 4..64
        slots: SlotCount = "slots", is("16"),
            "Further due executions wait in their queue. With a minimum and a maximum, the worker adds slots while executions wait and the machine has capacity, and removes them when they are idle.";
        /// Executions that the worker fetches ahead, beyond its slots
        prefetch: Count<0, 10_000> = "prefetch", is("1000"),
            "Prefetching avoids a wait between short jobs. The worker holds no more executions than it will start within 100 ms, judging by how long they run, and returns those it has held for 500 ms. This is the maximum. Executions it holds are not available to other workers; 0 disables prefetching.";
        /// The queues that the worker serves; all if empty
        queues: Vec<QueueName> = "queues", is(""),
            "Jobs in other queues wait for a worker that serves them.";
        /// The job types that the worker runs, of http, noop, sleep and those that are allowed; all if empty
        job_types: Vec<JobTypeName> = "job_types", is(""),
            "A worker whose token is limited to job types must name them. Jobs of other types wait for a worker that runs them. The worker does not start if it has no handler for one of them.";
        /// Command job types that the worker runs for anyone who may submit jobs: process, shell
        allow: Vec<Allowed> = "allow", is(""),
            "Commands run as the user in worker.run_as, or else as the user of the server. A worker that runs as root needs worker.run_as or allow_root_commands. Jobs of a type that is not allowed wait for a worker that allows it.";
        /// Allow commands to run as root, if the worker runs as root and worker.run_as is not set
        allow_root_commands: Switch = "allow_root_commands", is("false"),
            "Everyone who may submit jobs then controls this machine. Without it, such a worker does not start.";
        /// How long the worker may be silent before its executions are given to other workers
        lease: Length<LEASE_MIN, LEASE_MAX> = "lease", is("6s"),
            "A short lease recovers sooner; if a machine stalls for longer than its lease, its executions are lost and retried.";
        /// How long running handlers may take to finish when the server stops
        drain_grace: Length<0, DRAIN_GRACE_MAX> = "drain_grace", is("30s"),
            "Handlers that still run after that are stopped, and their executions end LOST. This counts as an attempt: the execution is retried if it has retries left; with max_retries 0 it becomes a dead letter. Set TimeoutStopSec of systemd to a longer time.";
        /// Private networks and hosts that http jobs may call, such as 10.0.0.0/8 or internal.example:8080
        http_allow: Vec<AllowedNetwork> = "http.allow", is(""),
            "Calls to other private addresses fail without a retry.";
        /// A file with the key that signs calls of http jobs that have no key of their own
        http_signing_key_file: Option<PathBuf> = "http.signing_key_file", unset("/etc/punctual/signing.key"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// A file with CA certificates (PEM) that http jobs trust in addition to the well-known ones
        http_ca_file: Option<PathBuf> = "http.ca_file", unset("/etc/punctual/ca.pem"),
            "Read at startup.";
        /// How all processes of a command are contained, even if it kills the process that watches it: auto, cgroup, namespace or none
        containment: ContainmentMode = "worker.containment", is("auto"),
            "Auto uses a cgroup for each command if the worker can create cgroups, and none otherwise; the log and `punctual doctor` report which. The worker does not start if this machine does not support the chosen value. In a namespace, commands cannot signal processes outside, and those of an ordinary user cannot use sudo.";
        /// The user that commands run as: a name, or a uid that may be followed by a gid
        run_as: Option<RunAs> = "worker.run_as", unset("jobs"),
            "Needs a worker that runs as root. The command has no other groups, and cannot gain rights by setuid programs such as sudo.";
        /// Users for the commands of single queues, such as reports=reports; others run as worker.run_as
        run_as_by_queue: Vec<QueueUser> = "worker.run_as_by_queue", is(""),
            "The last entry of a queue counts. Everyone who may submit jobs to a queue can run commands as its user.";
        /// How commands are kept away from the server, its files and each other: auto, strict or none
        isolation: IsolationMode = "worker.isolation", is("auto"),
            "Auto uses PID and mount namespaces if the worker runs as root or the kernel lets everyone create user namespaces, and Landlock if the kernel has it; the log and `punctual doctor` report which. With strict, the worker does not start if one of them is missing. With none, commands can read what their user can read.";
        /// Where the private directories of commands are, which are their TMPDIR; by default the directory for temporary files
        scratch_dir: Option<PathBuf> = "worker.scratch_dir", unset("/var/cache/punctual"),
            "Each is created for one command, and removed with everything in it when the command has ended.";
        /// Memory that must be free for the worker to accept more work: of its control group or of the machine
        memory_free_min: LeastFree = "worker.memory_free_min", is("3%"),
            "With less, the worker accepts nothing new and continues what it has, until a fifth more than this is free: with another handler, the kernel might kill the worker, and everything it runs would be lost. Off accepts work regardless of free memory.";
        /// Space that must be free on the worker's disk for it to accept more work
        disk_free_min: LeastFree = "worker.disk_free_min", is("off"),
            "The disk is that of the data directory, or of the working directory of the worker. Choose a value that fits what your handlers write.";
        /// How busy the CPUs may be for the worker to accept more work
        cpu_max: MostPercent = "worker.cpu_max", is("off"),
            "Measured over about ten seconds, across the CPUs that the worker may use. A busy machine is slow, but loses nothing; with a limit, work waits in its queue instead.";
    }
}

settings! {
    /// What schedulers retain.
    pub struct SchedulerSettings {
        /// How long to keep jobs after they have finished; jobs with dead letters and applied jobs are kept
        keep_finished_jobs: RetentionTime = "keep_finished_jobs", is("forever"),
            "The history of a job is deleted with it.";
        /// How long to keep the history and logs of executions
        keep_history: RetentionTime = "keep_history", is("30d"),
            "Older entries are deleted in small batches, once a minute. The space is reused; the file does not shrink.";
        /// How long to keep entries of the audit log
        keep_audit: RetentionTime = "keep_audit", is("365d"),
            "The chain of the entries that are left stays verifiable.";
        /// How long to keep the figures per minute that charts are drawn from
        keep_series: Length<HOUR, {90 * 24 * HOUR}> = "keep_series", is("14d"),
            "Use the same value on all schedulers.";
        /// How many jobs have figures of their own in charts, those that run most often; their other figures are added up
        series_jobs_max: Count<0, {limits::SERIES_JOBS_MAX as u64}> = "series.jobs_max", is("50"),
            "They are chosen for each quarter of an hour.";
        /// Names of jobs that always have figures of their own in charts and metrics
        series_jobs: Vec<Text> = "series.jobs", is(""),
            "At most 100 names. Useful for jobs that run rarely.";
        /// How many jobs have metrics of their own in /metrics, those that run most often
        metrics_jobs_max: Count<0, {limits::METRIC_JOBS_MAX as u64}> = "metrics.jobs_max", is("0"),
            "Each has about ten time series.";
        /// Maximum difference between this machine's clock and the store's
        clock_offset_max: Length<CLOCK_OFFSET_LEAST, CLOCK_OFFSET_MOST> = "scheduler.clock_offset_max", is("30s"),
            "A scheduler beyond this limit reports it in /readyz and fires nothing; other schedulers take over its segments.";
        /// A file of hooks that are called when a queue has been long or short for a while, to start or stop workers
        scaling_hooks_file: Option<PathBuf> = "scaling.hooks_file", unset("/etc/punctual/hooks.toml"),
            "Read at startup. Its commands run as the user of the server: only its owner should be able to write it; the server logs a warning otherwise.";
    }
}

settings! {
    /// The clock of schedules.
    pub struct ClockSettings {
        /// The clock that schedules use: this machine's, or a manual one that moves only with `punctual clock`
        clock: ClockKind = "clock", is("system"),
            "A manual clock is for testing schedules.";
        /// The start time of a manual clock; now if omitted
        clock_start: Option<Timestamp> = "clock_start", unset("2026-03-29T00:00:00Z"),
            "Only with clock = \"manual\".";
    }
}

settings! {
    /// The log of the process.
    pub struct LogSettings {
        /// Human-readable lines, or one JSON object per line
        format: LogFormat = "log.format", is("text"),
            "The log is written to standard error.";
        /// error, warn, info, debug or trace; also by module, such as info,punctual_engine=debug
        level: LogLevels = "log.level", is("info"),
            "A repeated warning is shown once every 30 seconds, with a count.";
        /// Log one line per finished execution, if the format is json
        executions: Switch = "log.executions", is("true"),
            "The leader of the cluster logs the outcomes of all executions, at level info, under the target punctual::executions. A level above info leaves it out.";
        /// Log the output of jobs, if the format is json
        output: Switch = "log.output", is("false"),
            "The server that stores a line also logs it, at level info, under the target punctual::output, and outcomes contain errors. Readers of the log then see what the jobs write.";
    }
}

settings! {
    /// Where jobs are stored.
    pub struct StoreSettings {
        /// The database of jobs: sqlite:DIRECTORY, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE; by default SQLite in the data directory
        url: Option<StoreUrl> = "store.url", unset("postgres://punctual@db.example.org/punctual"),
            "A SQLite store is used by a single process; any number can share a PostgreSQL or MySQL database. Set the password with store.password_file or PUNCTUAL_STORE_PASSWORD.";
        /// A file with the password of the database; PUNCTUAL_STORE_PASSWORD takes precedence
        password_file: Option<PathBuf> = "store.password_file", unset("/etc/punctual/store.password"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// Number of connections that this process uses for reads
        pool: Count<1, 1_000> = "store.pool", is("8"),
            "Reads wait while all of them are busy. Not for SQLite.";
        /// Number of connections that this process uses for writes, one transaction on each
        writers: Count<1, 64> = "store.writers", is("4"),
            "Waiting writes share transactions, so more writers help only if the network latency to the database is high. Not for SQLite.";
        /// Time limit of one statement
        statement_timeout: Length<{SECOND / 10}, HOUR> = "store.statement_timeout", is("30s"),
            "A statement that takes longer is cancelled, and the request is answered with 503. Not for SQLite.";
        /// A read replica of the database, for lists and views
        replica: Option<StoreUrl> = "store.replica", unset("postgres://punctual@replica.example.org/punctual"),
            "It may lag behind: scheduling decisions never read from it. Not for SQLite.";
        /// How often the SQLite files are checked for damage in the background
        check_interval: Length<0, {30 * 24 * HOUR}> = "store.check_interval", is("1d"),
            "The first check begins at startup. A check is throttled to about 5% of one CPU, and takes correspondingly long. If it finds damage, /readyz answers 503. 0s checks only at startup. Only for SQLite.";
        /// Encrypt payloads, results and checkpoints in the database, with the keys for secrets
        encrypt_payloads: Switch = "store.encrypt_payloads", is("false"),
            "Needs a key (secrets.key_file, PUNCTUAL_SECRETS_KEY, or secrets.key in the directory of a SQLite store), and the server does not start without one. Use the same value on all servers, and on workers that use the store. Rows that exist stay as they are until `punctual secret rotate`. Log lines, errors and progress are not encrypted, and jobs cannot be filtered by payload.";
    }
}

settings! {
    /// How much of the logs of executions is retained.
    pub struct LogsSettings {
        /// Maximum total size of the log lines of all executions
        total_size_max: SizeMax = "logs.total_size_max", is("10GiB"),
            "Beyond it, the oldest lines are deleted; a log that lost lines begins with a line that says so. Use the same value on all nodes. Off keeps all lines for the time in keep_history.";
    }
}

settings! {
    /// The keys that encrypt secrets.
    pub struct SecretsSettings {
        /// A file with the keys for secrets, one per line; PUNCTUAL_SECRETS_KEY takes precedence. By default secrets.key in the directory of a SQLite store
        key_file: Option<PathBuf> = "secrets.key_file", unset("/etc/punctual/secrets.key"),
            "Each key has 32 random bytes, in Base64 or hexadecimal. The first one encrypts; the others still decrypt. Use the same keys on all servers, and on workers that use the store. Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
    }
}

settings! {
    /// How the processes that share a store divide the work.
    pub struct CoordinationSettings {
        /// The service through which processes that share a store divide segments and elect a leader: store, etcd://HOST:2379, redis://HOST:6379 or zookeeper://HOST:2181
        url: CoordinationUrl = "coordination.url", is("store"),
            "While it is unavailable, every scheduler handles all segments: nothing is late or fired twice, but the database is read more. Not for SQLite.";
        /// A file with the password of the user in coordination.url
        password_file: Option<PathBuf> = "coordination.password_file", unset("/etc/punctual/coordination.password"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// How long a process may be silent before other processes take over its segments
        ttl: Length<MEMBER_TTL_MIN, MEMBER_TTL_MAX> = "coordination.ttl", is("3s"),
            "A short time fails over sooner; a machine that stalls for longer loses its segments until it is back, and nothing else. Use the same value on all nodes. Not for SQLite.";
    }
}

mod blobs;
mod brokers;
mod notifications;
mod tracing;

pub use blobs::BlobSettings;
pub use brokers::{BrokerSettings, EventSettings, IntakeSettings};
pub use notifications::NotificationSettings;
pub use tracing::TracingSettings;

settings! {
    /// Where processes that serve no requests about jobs report their health.
    pub struct HealthSettings {
        /// Address where `punctual scheduler` and `punctual worker` serve /livez, /readyz and /metrics; by default 127.0.0.1:7071 for a scheduler, and none for a worker
        listen: Option<Address> = "health.listen", unset("127.0.0.1:7071"),
            "With tls_cert it uses TLS. An address other than loopback needs tls_cert and tls_key, or insecure_http. /metrics needs a token, the others do not.";
    }
}

settings! {
    /// Where time zones come from.
    pub struct TimeSettings {
        /// A directory with compiled time zone data, such as /usr/share/zoneinfo, to use instead of the built-in data
        tzdata_dir: Option<PathBuf> = "time.tzdata_dir", unset("/usr/share/zoneinfo"),
            "Read once at startup; restart to use newer data. Use the same data for all processes: `punctual nodes` warns of different versions. After a change the leader computes the next run of every recurring job again, and logs those that moved.";
    }
}

settings! {
    /// The identity of a standalone worker.
    pub struct WorkerName {
        /// The name of `punctual worker`, the same after a restart; by default the host name
        worker_name: Option<Name> = "worker_name", unset("reports-1"),
            "`punctual workers list` shows it.";
    }
}

tables! {
    /// The settings of `punctual serve`.
    pub struct ServeSettings {
        api: ApiSettings,
        address: AddressSettings,
        oidc: OidcSettings,
        listener: ListenerSettings,
        worker: WorkerSettings,
        scheduler: SchedulerSettings,
        clock: ClockSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        blobs: BlobSettings,
        secrets: SecretsSettings,
        notify: NotificationSettings,
        coordination: CoordinationSettings,
        broker: BrokerSettings,
        time: TimeSettings,
        tracing: TracingSettings,
        events: EventSettings,
        intake: IntakeSettings,
    }
}

tables! {
    /// The settings of `punctual api`.
    pub struct ApiRoleSettings {
        api: ApiSettings,
        address: AddressSettings,
        oidc: OidcSettings,
        listener: ListenerSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        blobs: BlobSettings,
        secrets: SecretsSettings,
        notify: NotificationSettings,
        coordination: CoordinationSettings,
        broker: BrokerSettings,
        time: TimeSettings,
        tracing: TracingSettings,
        intake: IntakeSettings,
    }
}

tables! {
    /// The settings of `punctual scheduler`.
    pub struct SchedulerRoleSettings {
        health: HealthSettings,
        address: AddressSettings,
        listener: ListenerSettings,
        scheduler: SchedulerSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        blobs: BlobSettings,
        secrets: SecretsSettings,
        notify: NotificationSettings,
        coordination: CoordinationSettings,
        broker: BrokerSettings,
        time: TimeSettings,
        tracing: TracingSettings,
        events: EventSettings,
    }
}

tables! {
    /// The settings of `punctual worker`.
    pub struct WorkerRoleSettings {
        name: WorkerName,
        worker: WorkerSettings,
        health: HealthSettings,
        listener: ListenerSettings,
        log: LogSettings,
        store: StoreSettings,
        logs: LogsSettings,
        blobs: BlobSettings,
        secrets: SecretsSettings,
        coordination: CoordinationSettings,
        broker: BrokerSettings,
        time: TimeSettings,
        tracing: TracingSettings,
    }
}

tables! {
    /// The settings of all roles.
    pub struct RoleSettings {
        serve: ServeSettings,
        name: WorkerName,
        health: HealthSettings,
    }
}

/// Every setting, in the order of a file: top-level keys first.
pub fn all() -> Vec<&'static Setting> {
    let mut all = [DataPlace::settings(), RoleSettings::settings(), ClientSettings::settings()].concat();
    all.sort_by_key(|setting| !setting.table().is_empty());
    all
}

#[cfg(test)]
mod tests;
