//! Coordination through Redis: a key for each member that expires by itself, and leases that count only while the key of
//! their member is there. Every call is one script, which Redis runs alone.
//!
//! Redis loses the last moments when it is replaced by a replica, and everything if it keeps nothing on disk. An epoch is
//! therefore never lower than Redis' clock: it goes on rising although the number before it is forgotten.

use crate::entered::{Entered, check_card};
use crate::open::OpenError;
use crate::options::{RedisOptions, Tls};
use async_trait::async_trait;
use punctual_core::limits::COORDINATION_ANSWER_MAX;
use punctual_core::ports::{
    Coordination, CoordinationError, HeldLease, Joining, LeaseEpoch, LeaseName, Member, MemberId, Roster,
    Standing, Take,
};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, Script, ScriptInvocation, TlsCertificates,
};
use std::time::Duration;
use tokio::sync::Mutex;

pub struct RedisCoordination {
    client: Client,
    /// Made when it is needed, and again after it broke.
    connection: Mutex<Option<MultiplexedConnection>>,
    scripts: Scripts,
    /// In braces: a cluster of Redis servers keeps all such keys in one place.
    prefix: String,
    /// For messages.
    address: String,
    entered: Entered,
}

struct Scripts {
    join: Script,
    beat: Script,
    look: Script,
    take: Script,
    release: Script,
    leave: Script,
}

/// What all scripts begin with. `KEYS[1]` is the set of all ids, from whose name the others follow.
const NAMES: &str = r"
local ids, prefix = KEYS[1], ARGV[1]
local holders, epochs = prefix .. ':holders', prefix .. ':epochs'
local function key(id) return prefix .. ':member:' .. id end
local function alive(id) return redis.call('EXISTS', key(id)) == 1 end
local function free_all(id)
  local held = redis.call('HGETALL', holders)
  for at = 1, #held, 2 do
    if held[at + 1] == id then redis.call('HDEL', holders, held[at]) end
  end
end
";

/// An id that was not there, or has expired, holds nothing.
const JOIN: &str = r"
local id, card, ttl = ARGV[2], ARGV[3], ARGV[4]
if not alive(id) then free_all(id) end
redis.call('HSET', key(id), 'card', card, 'ttl', ttl)
redis.call('PEXPIRE', key(id), ttl)
redis.call('SADD', ids, id)
return 1
";

const BEAT: &str = r"
local id, card = ARGV[2], ARGV[3]
if not alive(id) then return 0 end
redis.call('HSET', key(id), 'card', card)
redis.call('PEXPIRE', key(id), redis.call('HGET', key(id), 'ttl'))
return 1
";

/// Ids and cards of those who are alive; name, epoch and holder of what they hold. Who has expired is forgotten.
const LOOK: &str = r"
local members, leases = {}, {}
for _, id in ipairs(redis.call('SMEMBERS', ids)) do
  local card = redis.call('HGET', key(id), 'card')
  if card then
    members[#members + 1] = id
    members[#members + 1] = card
  else
    redis.call('SREM', ids, id)
    free_all(id)
  end
end
local held = redis.call('HGETALL', holders)
for at = 1, #held, 2 do
  if alive(held[at + 1]) then
    leases[#leases + 1] = held[at]
    leases[#leases + 1] = redis.call('HGET', epochs, held[at])
    leases[#leases + 1] = held[at + 1]
  end
end
return {members, leases}
";

/// For each name its holder and epoch. Nothing, if the member is not alive.
const TAKE: &str = r"
local id = ARGV[2]
if not alive(id) then return {} end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local answers = {}
for at = 3, #ARGV do
  local name = ARGV[at]
  local holder = redis.call('HGET', holders, name)
  if not holder or not alive(holder) then
    local before = tonumber(redis.call('HGET', epochs, name) or '0')
    redis.call('HSET', epochs, name, string.format('%.0f', math.max(before + 1, now)))
    redis.call('HSET', holders, name, id)
    holder = id
  end
  answers[#answers + 1] = holder
  answers[#answers + 1] = redis.call('HGET', epochs, name)
end
return answers
";

const RELEASE: &str = r"
local id = ARGV[2]
local answers = {}
for at = 3, #ARGV, 2 do
  local name, epoch = ARGV[at], ARGV[at + 1]
  local is_held = alive(id) and redis.call('HGET', holders, name) == id
    and redis.call('HGET', epochs, name) == epoch
  if is_held then redis.call('HDEL', holders, name) end
  answers[#answers + 1] = is_held and 1 or 0
end
return answers
";

const LEAVE: &str = r"
local id = ARGV[2]
redis.call('DEL', key(id))
redis.call('SREM', ids, id)
free_all(id)
return 1
";

impl RedisCoordination {
    /// Connects to nothing yet.
    pub fn new(options: &RedisOptions) -> Result<Self, OpenError> {
        let script = |text: &str| Script::new(&format!("{NAMES}{text}"));
        Ok(RedisCoordination {
            client: client(options)?,
            connection: Mutex::new(None),
            scripts: Scripts {
                join: script(JOIN),
                beat: script(BEAT),
                look: script(LOOK),
                take: script(TAKE),
                release: script(RELEASE),
                leave: script(LEAVE),
            },
            prefix: format!("{{{}}}", options.prefix),
            address: options.host.to_string(),
            entered: Entered::default(),
        })
    }

    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut call = script.key(format!("{}:ids", self.prefix));
        call.arg(&self.prefix);
        call
    }

    async fn run<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, CoordinationError> {
        let mut connection = self.connected().await?;
        let answered = call.invoke_async(&mut connection).await;
        if let Err(error) = &answered
            && error.is_unrecoverable_error()
        {
            // Another call may have connected anew meanwhile; it then does so once more.
            *self.connection.lock().await = None;
        }
        answered.map_err(|error| self.failed(&error))
    }

    async fn connected(&self) -> Result<MultiplexedConnection, CoordinationError> {
        let mut place = self.connection.lock().await;
        if let Some(connection) = &*place {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(COORDINATION_ANSWER_MAX))
            .set_response_timeout(Some(COORDINATION_ANSWER_MAX));
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = made.map_err(|error| self.failed(&error))?;
        *place = Some(connection.clone());
        Ok(connection)
    }

    fn failed(&self, error: &RedisError) -> CoordinationError {
        let address = &self.address;
        if error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("WRONGPASS") {
            let said = format!("Redis at {address} refuses the login: check user and password in the URL");
            return CoordinationError::Broken(said);
        }
        match error.code() {
            Some("NOAUTH") => CoordinationError::Broken(format!(
                "Redis at {address} wants a password: give it in the URL, as in redis://:PASSWORD@HOST"
            )),
            Some("NOPERM") => CoordinationError::Broken(format!(
                "Redis at {address} says: {error}; allow the user scripts and the keys {}*",
                self.prefix
            )),
            Some("READONLY") => CoordinationError::Unavailable(format!(
                "Redis at {address} is a replica: give the address of the primary"
            )),
            _ if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() => {
                CoordinationError::Unavailable(format!(
                    "Redis at {address} cannot be reached: {error}; check that it runs and that the address is right"
                ))
            }
            _ => CoordinationError::Unavailable(format!("Redis at {address} says: {error}")),
        }
    }

    fn odd(&self, what: &str) -> CoordinationError {
        let address = &self.address;
        CoordinationError::Broken(format!(
            "Redis at {address} holds {what} that is not ours: use another prefix"
        ))
    }

    fn member(&self, text: &str) -> Result<MemberId, CoordinationError> {
        MemberId::new(text).ok_or_else(|| self.odd("a member"))
    }

    fn epoch(&self, text: &str) -> Result<LeaseEpoch, CoordinationError> {
        text.parse().map(LeaseEpoch).map_err(|_| self.odd("an epoch"))
    }
}

fn client(options: &RedisOptions) -> Result<Client, OpenError> {
    let (host, port) = (options.host.host.trim_matches(['[', ']']).to_owned(), options.host.port);
    let address = match options.tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let mut login = RedisConnectionInfo::default().set_db(options.database);
    // Nobody at all is written as `redis://@host`, for a password that comes from elsewhere.
    if let Some(given) = options.login.as_ref().filter(|given| !given.password.0.is_empty()) {
        login = login.set_password(&given.password.0);
        if !given.user.is_empty() {
            login = login.set_username(&given.user);
        }
    }
    let wrong =
        |error: RedisError| OpenError::Options(format!("Redis cannot be used with this URL: {error}"));
    let info = address.into_connection_info().map_err(wrong)?.set_redis_settings(login);
    match &options.tls {
        None => Client::open(info).map_err(wrong),
        Some(Tls { ca: None }) => {
            let trusted = TlsCertificates { client_tls: None, root_cert: None };
            Client::build_with_tls(info, trusted).map_err(wrong)
        }
        Some(Tls { ca: Some(path) }) => {
            let unusable = |reason: String| OpenError::Certificates { path: path.clone(), reason };
            let ca = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
            let trusted = TlsCertificates { client_tls: None, root_cert: Some(ca) };
            Client::build_with_tls(info, trusted).map_err(|error| unusable(error.to_string()))
        }
    }
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
        let (members, leases): (Vec<String>, Vec<String>) = self.run(&call).await?;
        let mut roster = Roster::default();
        for pair in members.chunks_exact(2) {
            roster.members.push(Member { id: self.member(&pair[0])?, card: pair[1].clone() });
        }
        for lease in leases.chunks_exact(3) {
            let name = LeaseName::parse(&lease[0]).ok_or_else(|| self.odd("a lease"))?;
            let held = HeldLease { name, epoch: self.epoch(&lease[1])? };
            roster.held.push((held, self.member(&lease[2])?));
        }
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
