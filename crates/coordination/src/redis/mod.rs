//! Coordination through Redis: a key for each member that expires by itself, and leases that count only while
//! the key of their member exists. Every call is one script, which Redis runs atomically.
//!
//! If several hosts are configured, a primary and its replicas, the first that answers and accepts writes is
//! used.
//!
//! Redis loses the last writes when a replica takes over, and everything if it has no persistence. An epoch is
//! therefore never lower than Redis' clock: it keeps increasing although the previous number is forgotten.

mod scripts;

use crate::entered::{Entered, check_card};
use crate::malformed::{LEFT, MalformedEntries, MalformedEntryLog};
use crate::open::CoordinationOpenError;
use crate::options::{RedisOptions, SETTING};
use async_trait::async_trait;
use punctual_core::ports::{
    Coordination, CoordinationError, HeldLease, Joining, LeaseEpoch, LeaseName, Member, MemberId, Roster,
    Standing, Take,
};
use punctual_core::service_url::{ClientCertificate, HostAndPort, Tls, advice, listed};
use punctual_tls::{TlsFileError, pem_file};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ErrorKind, FromRedisValue,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, Script, ScriptInvocation, TlsCertificates,
};
use scripts::Scripts;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

pub struct RedisCoordination {
    /// One for each host.
    clients: Vec<Client>,
    way: Mutex<RedisWay>,
    /// The number of the last connection on which a call failed.
    failed: AtomicU64,
    answer_max: Duration,
    scripts: Scripts,
    /// In braces, so that a Redis cluster stores all such keys in one slot.
    prefix: String,
    /// For messages.
    address: String,
    entered: Entered,
    malformed_log: MalformedEntryLog,
}

/// The connection that all calls share. Created when it is needed, and again after it broke.
#[derive(Default)]
struct RedisWay {
    connection: Option<MultiplexedConnection>,
    /// Connections are numbered, so that many calls that failed on one of them close no other.
    number: u64,
    /// The index of the host that is in use, or is tried next.
    place: usize,
}

/// A call in progress. If it is dropped before its end, its connection is abandoned: it may be dead, and no later
/// call would notice.
struct UnderWay<'a> {
    failed: &'a AtomicU64,
    number: u64,
    is_answered: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.failed.fetch_max(self.number, Ordering::Relaxed);
        }
    }
}

impl RedisCoordination {
    /// Does not connect yet.
    pub fn new(options: &RedisOptions) -> Result<Self, CoordinationOpenError> {
        Ok(RedisCoordination {
            clients: clients(options)?,
            way: Mutex::default(),
            failed: AtomicU64::new(0),
            answer_max: options.answer_max,
            scripts: Scripts::new(),
            prefix: format!("{{{}}}", options.prefix),
            address: listed(&options.hosts),
            entered: Entered::default(),
            malformed_log: MalformedEntryLog::default(),
        })
    }

    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut call = script.key(format!("{}:ids", self.prefix));
        call.arg(&self.prefix);
        call
    }

    async fn run<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, CoordinationError> {
        match self.run_once(call).await? {
            Ok(answer) => Ok(answer),
            Err(error) if is_of_another_kind(&error) => {
                self.repair().await?;
                self.run_once(call).await?.map_err(|error| self.said(&error))
            }
            Err(error) => Err(self.said(&error)),
        }
    }

    /// Removes keys of another type that another program has written under our names.
    async fn repair(&self) -> Result<(), CoordinationError> {
        let repaired = self.run_once::<Vec<Vec<u8>>>(&self.call(&self.scripts.repair)).await?;
        for key in repaired.map_err(|error| self.said(&error))? {
            let place = String::from_utf8_lossy(&key);
            tracing::warn!(%place, "a key of the cluster in Redis has an unexpected type; it is removed");
        }
        Ok(())
    }

    /// The answer of Redis. The outer error means that it cannot be reached.
    async fn run_once<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<Result<T, RedisError>, CoordinationError> {
        let (mut connection, number) = self.connected().await?;
        let mut under_way = UnderWay { failed: &self.failed, number, is_answered: false };
        let answered = call.invoke_async(&mut connection).await;
        under_way.is_answered = match &answered {
            Ok(_) => true,
            // A replica answers, but does not accept writes.
            Err(error) => {
                !(error.is_unrecoverable_error() || error.is_timeout() || error.code() == Some("READONLY"))
            }
        };
        Ok(answered)
    }

    /// The connection and its number. Tries one host after the other.
    async fn connected(&self) -> Result<(MultiplexedConnection, u64), CoordinationError> {
        let mut way = self.way.lock().await;
        let has_failed = way.number <= self.failed.load(Ordering::Relaxed);
        if has_failed && way.connection.take().is_some() {
            way.place = (way.place + 1) % self.clients.len();
        }
        if let Some(connection) = &way.connection {
            return Ok((connection.clone(), way.number));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.answer_max))
            .set_response_timeout(Some(self.answer_max));
        let mut last = None;
        for _ in 0..self.clients.len() {
            let place = way.place;
            // A host whose connection attempt is dropped is not the first to be tried next time.
            way.place = (place + 1) % self.clients.len();
            match self.clients[place].get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => {
                    (way.place, way.number) = (place, way.number + 1);
                    way.connection = Some(connection.clone());
                    return Ok((connection, way.number));
                }
                Err(error) => last = Some(self.said(&error)),
            }
            // All hosts have the same users.
            if matches!(last, Some(CoordinationError::Broken(_))) {
                break;
            }
        }
        Err(last.unwrap_or_else(|| self.malformed("no host")))
    }

    fn said(&self, error: &RedisError) -> CoordinationError {
        let address = &self.address;
        if error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("WRONGPASS") {
            return CoordinationError::Broken(format!(
                "Redis at {address} rejects the login: check user and password (coordination.url, \
                 coordination.password_file)"
            ));
        }
        match error.code() {
            Some("NOAUTH") => CoordinationError::Broken(format!(
                "Redis at {address} requires a password: write coordination.url as redis://USER@HOST, or \
                 redis://@HOST if there are no users, and name a file with the password in \
                 coordination.password_file"
            )),
            Some("NOPERM") => CoordinationError::Broken(format!(
                "Redis at {address} returned: {error}; allow the user scripts and the keys {}*",
                self.prefix
            )),
            Some("READONLY") => CoordinationError::Unavailable(format!(
                "Redis at {address} is a replica: name the primary in coordination.url, alone or beside its replicas"
            )),
            _ if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() => {
                let why = error.to_string();
                CoordinationError::Unavailable(format!(
                    "Redis at {address} cannot be reached: {why}; {}",
                    advice(&why, SETTING)
                ))
            }
            _ if error.kind() == ErrorKind::Parse => CoordinationError::Broken(format!(
                "the server at {address} is not Redis, or requires TLS: check the address in \
                 coordination.url, and whether it should begin with rediss://"
            )),
            _ => CoordinationError::Unavailable(format!("Redis at {address} returned: {error}")),
        }
    }

    fn malformed(&self, what: &str) -> CoordinationError {
        let address = &self.address;
        CoordinationError::Broken(format!(
            "Redis at {address} holds {what} of another program: use another prefix"
        ))
    }

    /// Parses an id that Redis returned from our own data.
    fn member(&self, text: &str) -> Result<MemberId, CoordinationError> {
        MemberId::new(text).ok_or_else(|| self.malformed("a member"))
    }

    fn epoch(&self, text: &str) -> Result<LeaseEpoch, CoordinationError> {
        text.parse().map(LeaseEpoch).map_err(|_| self.malformed("an epoch"))
    }
}

fn is_of_another_kind(error: &RedisError) -> bool {
    // Older servers report it inside the error of the script.
    error.to_string().contains("WRONGTYPE")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn clients(options: &RedisOptions) -> Result<Vec<Client>, CoordinationOpenError> {
    let tls = options.tls.as_ref().map(certificates).transpose()?;
    options.hosts.iter().map(|host| client(options, host, tls.clone())).collect()
}

fn client(
    options: &RedisOptions,
    host: &HostAndPort,
    tls: Option<TlsCertificates>,
) -> Result<Client, CoordinationOpenError> {
    let (host, port) = (host.host.trim_matches(['[', ']']).to_owned(), host.port);
    let address = match tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let mut login = RedisConnectionInfo::default().set_db(options.database);
    // An empty login is written as `redis://@host`, for a password that comes from another source.
    if let Some(given) = options.login.as_ref().filter(|given| !given.password.0.is_empty()) {
        login = login.set_password(&given.password.0);
        if !given.user.is_empty() {
            login = login.set_username(&given.user);
        }
    }
    let wrong = |error: RedisError| {
        CoordinationOpenError::Options(format!("Redis cannot be used with this URL: {error}"))
    };
    let info = address.into_connection_info().map_err(wrong)?.set_redis_settings(login);
    match tls {
        None => Client::open(info).map_err(wrong),
        Some(certificates) => Client::build_with_tls(info, certificates).map_err(wrong),
    }
}

fn certificates(tls: &Tls) -> Result<TlsCertificates, CoordinationOpenError> {
    let identity = |ClientCertificate { certificate, key }: &ClientCertificate| {
        Ok::<_, TlsFileError>(ClientTlsConfig {
            client_cert: pem_file(certificate)?,
            client_key: pem_file(key)?,
        })
    };
    Ok(TlsCertificates {
        client_tls: tls.identity.as_ref().map(identity).transpose()?,
        root_cert: tls.ca.as_deref().map(pem_file).transpose()?,
    })
}

fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn standing(answer: i64) -> Standing {
    if answer == 1 { Standing::Alive } else { Standing::GivenUp }
}

#[async_trait]
impl Coordination for RedisCoordination {
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError> {
        check_card(&joining.card)?;
        let Joining { member, card, ttl } = joining;
        if self.entered.has(&member) {
            return self.beat(&member, card).await;
        }
        let mut call = self.call(&self.scripts.join);
        call.arg(member.as_str()).arg(card).arg(milliseconds(ttl));
        let standing = standing(self.run(&call).await?);
        self.entered.note(&member);
        Ok(standing)
    }

    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError> {
        check_card(&card)?;
        let mut call = self.call(&self.scripts.beat);
        call.arg(member.as_str()).arg(card);
        Ok(standing(self.run(&call).await?))
    }

    async fn look(&self) -> Result<Roster, CoordinationError> {
        let call = self.call(&self.scripts.look);
        let [members, leases, freed, strangers]: [Vec<Vec<u8>>; 4] = self.run(&call).await?;
        let (mut roster, mut malformed) = (Roster::default(), MalformedEntries::new());
        for pair in members.chunks_exact(2) {
            roster.members.push(Member { id: self.member(&text(&pair[0]))?, card: text(&pair[1]) });
        }
        for lease in leases.chunks_exact(3) {
            let [name, epoch, holder] = [text(&lease[0]), text(&lease[1]), text(&lease[2])];
            let Some(known) = LeaseName::parse(&name) else {
                malformed.insert(format!("lease {name}"), format!("its name is not a lease name; {LEFT}"));
                continue;
            };
            let held = HeldLease { name: known, epoch: self.epoch(&epoch)? };
            roster.held.push((held, self.member(&holder)?));
        }
        for name in freed.iter().map(|name| text(name)) {
            let why = "its holder is not a member, or it has no epoch; the lease is freed";
            malformed.insert(format!("lease {name}"), why.to_owned());
        }
        for id in strangers.iter().map(|id| text(id)) {
            let why = "its key has an unexpected type, never expires or has no id; the member is removed, \
                       and the key is left unchanged";
            malformed.insert(format!("member {id}"), why.to_owned());
        }
        self.malformed_log.found(malformed);
        roster.members.sort_by(|one, other| one.id.cmp(&other.id));
        roster.held.sort();
        Ok(roster)
    }

    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError> {
        if names.is_empty() {
            return Ok(vec![]);
        }
        let mut call = self.call(&self.scripts.take);
        call.arg(member.as_str());
        for name in &names {
            call.arg(name.to_string());
        }
        let answers: Vec<String> = self.run(&call).await?;
        if answers.is_empty() {
            return Ok(vec![Take::GivenUp; names.len()]);
        }
        let take = |answer: &[String]| {
            let holder = self.member(&answer[0])?;
            Ok(if holder == *member { Take::Held(self.epoch(&answer[1])?) } else { Take::HeldBy(holder) })
        };
        answers.chunks_exact(2).map(take).collect()
    }

    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError> {
        if held.is_empty() {
            return Ok(vec![]);
        }
        let mut call = self.call(&self.scripts.release);
        call.arg(member.as_str());
        for HeldLease { name, epoch } in &held {
            call.arg(name.to_string()).arg(epoch.0);
        }
        let answers: Vec<i64> = self.run(&call).await?;
        Ok(answers.into_iter().map(|answer| answer == 1).collect())
    }

    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError> {
        let mut call = self.call(&self.scripts.leave);
        call.arg(member.as_str());
        self.run::<i64>(&call).await.map(drop)
    }
}
