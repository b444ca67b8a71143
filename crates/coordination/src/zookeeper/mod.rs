//! Coordination through ZooKeeper: one ZooKeeper session for each member, and nodes attached to it.
//!
//! ZooKeeper removes all ephemeral nodes of a session in one step when it ends. An epoch is the number of the
//! transaction that created a node: ZooKeeper counts transactions over all nodes, and never goes back. The
//! client keeps the session alive as long as the process runs. A member that sends no more heartbeats is
//! therefore evicted here, by ending its session.

mod client;
mod wire;

use crate::entered::{Entered, check_card};
use crate::malformed::{FREED, LEFT, MalformedEntries, MalformedEntryLog};
use crate::options::ZooKeeperOptions;
use async_trait::async_trait;
pub use client::{Ensemble, Error, NodeKind, ZooKeeperClient};
use futures_util::future::join_all;
use punctual_core::ports::{
    Coordination, CoordinationError, HeldLease, Joining, LeaseEpoch, LeaseName, Member, MemberId, Roster,
    Standing, Take,
};
use punctual_core::service_url::listed;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;
use wire::NodeStat;

pub struct ZooKeeperCoordination {
    options: ZooKeeperOptions,
    ensemble: Arc<Ensemble>,
    /// For messages.
    address: String,
    sessions: Mutex<BTreeMap<MemberId, Arc<MemberSession>>>,
    /// For scans by processes that are not members.
    observer: tokio::sync::Mutex<Option<ZooKeeperClient>>,
    entered: Entered,
    malformed_log: MalformedEntryLog,
}

/// A member of this process.
struct MemberSession {
    ttl: Duration,
    state: Mutex<SessionOfMember>,
}

struct SessionOfMember {
    /// `None` once the session was ended.
    client: Option<ZooKeeperClient>,
    /// When the last heartbeat that ZooKeeper has confirmed was sent.
    beaten_at: Instant,
}

/// How often a lease may change hands during an attempt to acquire it, before the attempt fails.
const TRIES_MAX: usize = 100;
/// The session of a process that is not a member holds nothing.
const OBSERVER_SESSION_TIMEOUT: Duration = Duration::from_secs(6);

impl ZooKeeperCoordination {
    /// Does not connect yet.
    pub fn new(options: &ZooKeeperOptions) -> Self {
        ZooKeeperCoordination {
            address: listed(&options.hosts),
            options: options.clone(),
            ensemble: Ensemble::new(options.clone()),
            sessions: Mutex::default(),
            observer: tokio::sync::Mutex::new(None),
            entered: Entered::default(),
            malformed_log: MalformedEntryLog::default(),
        }
    }

    fn members(&self) -> String {
        format!("/{}/members", self.options.path)
    }

    fn leases(&self) -> String {
        format!("/{}/leases", self.options.path)
    }

    fn member_path(&self, member: &MemberId) -> String {
        format!("{}/{member}", self.members())
    }

    fn lease_path(&self, name: LeaseName) -> String {
        format!("{}/{name}", self.leases())
    }

    async fn connect(&self, session_timeout: Duration) -> Result<ZooKeeperClient, CoordinationError> {
        let connected = self.answered(ZooKeeperClient::connect(&self.ensemble, session_timeout)).await?;
        connected.map_err(|error| self.failed(&error))
    }

    /// The session of a member, if it is one of this process and was not evicted.
    fn client(&self, member: &MemberId) -> Option<ZooKeeperClient> {
        let session = self.lock().get(member).cloned()?;
        session.client()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<MemberId, Arc<MemberSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, member: &MemberId) {
        let session = self.lock().remove(member);
        if let Some(session) = session {
            session.end();
        }
    }

    /// A client for scans: that of a member, or else a separate one.
    async fn observer(&self) -> Result<ZooKeeperClient, CoordinationError> {
        let of_member = self.lock().values().find_map(|session| session.client());
        if let Some(client) = of_member {
            return Ok(client);
        }
        let mut place = self.observer.lock().await;
        match &*place {
            Some(client) if !client.is_ended() => Ok(client.clone()),
            _ => {
                let client = self.connect(OBSERVER_SESSION_TIMEOUT).await?;
                Ok(place.insert(client).clone())
            }
        }
    }

    async fn answered<T>(&self, call: impl Future<Output = T>) -> Result<T, CoordinationError> {
        let late = || {
            CoordinationError::Unavailable(format!(
                "ZooKeeper at {} has not answered within {:?}: check that it runs and that the addresses in coordination.url \
                 are right",
                self.address, self.options.answer_max
            ))
        };
        tokio::time::timeout(self.options.answer_max, call).await.map_err(|_| late())
    }

    fn failed(&self, error: &Error) -> CoordinationError {
        let address = &self.address;
        match error {
            Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => CoordinationError::Broken(format!(
                "ZooKeeper at {address} denies access: {error}; check user and password (coordination.url, \
                 coordination.password_file), and who may write below /{}",
                self.options.path
            )),
            Error::Unimplemented | Error::Malformed(_) => CoordinationError::Broken(format!(
                "ZooKeeper at {address} sent an unexpected response: {error}; check that the address \
                     in coordination.url is that of ZooKeeper 3.6 or later"
            )),
            Error::NotEmpty => CoordinationError::Broken(format!(
                "ZooKeeper at {address} has a node with children where a lease belongs, below /{}/leases: \
                 remove it, or use another path",
                self.options.path
            )),
            _ => CoordinationError::Unavailable(format!(
                "ZooKeeper at {address} cannot be reached: {error}; check that it runs and that the addresses in \
                 coordination.url are right"
            )),
        }
    }

    async fn enter(&self, client: &ZooKeeperClient, joining: &Joining) -> Result<(), CoordinationError> {
        for folder in [self.members(), self.leases()] {
            client.create_folder(&folder).await.map_err(|error| self.failed(&error))?;
        }
        let path = self.member_path(&joining.member);
        match client.create(&path, joining.card.as_bytes(), NodeKind::Ephemeral).await {
            Ok(_) => Ok(()),
            Err(Error::NodeExists) => Err(CoordinationError::Unavailable(format!(
                "ZooKeeper at {} still has the member in an earlier session: try again when that session \
                 has expired",
                self.address
            ))),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Acquires one lease, if its node can be created.
    async fn take_one(
        &self,
        client: &ZooKeeperClient,
        member: &MemberId,
        name: LeaseName,
    ) -> Result<Take, Error> {
        let path = self.lease_path(name);
        for _ in 0..TRIES_MAX {
            match client.create(&path, member.as_str().as_bytes(), NodeKind::Ephemeral).await {
                Ok(stat) => return Ok(Take::Held(epoch(&stat))),
                Err(Error::NodeExists) => {}
                Err(error) => return Err(error),
            }
            match client.get_data(&path).await {
                Ok((data, stat)) => {
                    let Some(holder) = holder(&data, &stat) else {
                        self.clear(client, &path, &stat).await?;
                        continue;
                    };
                    let is_own = holder == *member && stat.ephemeral_owner == client.session_id();
                    return Ok(if is_own { Take::Held(epoch(&stat)) } else { Take::HeldBy(holder) });
                }
                // It was released meanwhile.
                Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended)
    }

    /// Removes a malformed node that blocks a lease, unless the lease was acquired meanwhile; returns whether
    /// it was removed.
    async fn clear(&self, client: &ZooKeeperClient, path: &str, stat: &NodeStat) -> Result<bool, Error> {
        let now = match client.get_data(path).await {
            Err(Error::NoNode) => return Ok(false),
            found => found?.1,
        };
        if now.czxid != stat.czxid {
            return Ok(false);
        }
        match client.delete(path, now.version).await {
            Ok(()) => Ok(true),
            Err(Error::NoNode | Error::BadVersion) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Only we remove the node of our live session, so its contents stay valid until then.
    async fn release_one(
        &self,
        client: &ZooKeeperClient,
        member: &MemberId,
        lease: HeldLease,
    ) -> Result<bool, Error> {
        let path = self.lease_path(lease.name);
        let (data, stat) = match client.get_data(&path).await {
            Err(Error::NoNode) => return Ok(false),
            found => found?,
        };
        let is_own = data == member.as_str().as_bytes()
            && stat.ephemeral_owner == client.session_id()
            && epoch(&stat) == lease.epoch;
        if !is_own {
            return Ok(false);
        }
        match client.delete(&path, stat.version).await {
            Err(Error::NoNode) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Names and contents of the nodes below a node, without those that disappeared meanwhile.
    async fn below(
        &self,
        client: &ZooKeeperClient,
        folder: &str,
    ) -> Result<Vec<(String, Vec<u8>, NodeStat)>, Error> {
        let names = match client.list_children(folder).await {
            Err(Error::NoNode) => return Ok(vec![]),
            names => names?,
        };
        let read = async |name: String| match client.get_data(&format!("{folder}/{name}")).await {
            Ok((data, stat)) => Ok(Some((name, data, stat))),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        };
        let found = join_all(names.into_iter().map(read)).await;
        found.into_iter().filter_map(Result::transpose).collect()
    }

    async fn read(&self, client: &ZooKeeperClient) -> Result<Roster, CoordinationError> {
        let failed = |error| self.failed(&error);
        // Makes earlier writes through other servers visible.
        match client.sync(&format!("/{}", self.options.path)).await {
            Ok(()) | Err(Error::NoNode) => {}
            Err(error) => return Err(failed(error)),
        }
        // Leases first: the holder of one may be gone by the time that members are read, and then the lease
        // is not returned.
        let leases = self.below(client, &self.leases()).await.map_err(failed)?;
        let members = self.below(client, &self.members()).await.map_err(failed)?;
        let (mut roster, mut malformed) = (Roster::default(), MalformedEntries::new());
        for (name, data, stat) in members {
            let why = match MemberId::new(name.as_str()) {
                Some(id) if is_of_a_session(&stat) => {
                    roster.members.push(Member { id, card: String::from_utf8_lossy(&data).into_owned() });
                    continue;
                }
                // It would never expire.
                Some(_) => "it is not attached to a session",
                None => "its name is not a member id",
            };
            malformed.insert(format!("{}/{name}", self.members()), format!("{why}; {LEFT}"));
        }
        for (text, data, stat) in leases {
            let path = format!("{}/{text}", self.leases());
            let Some(name) = LeaseName::parse(&text) else {
                malformed.insert(path, format!("its name is not a lease name; {LEFT}"));
                continue;
            };
            let is_there = |holder: &MemberId| roster.members.iter().any(|member| member.id == *holder);
            match holder(&data, &stat) {
                Some(holder) if is_there(&holder) => {
                    roster.held.push((HeldLease { name, epoch: epoch(&stat) }, holder));
                }
                // A member that leaves removes its leases in the same step: then this finds nothing, and logs
                // nothing.
                _ => {
                    // If it cannot be removed, acquiring the lease returns the error.
                    if self.clear(client, &path, &stat).await.unwrap_or(true) {
                        malformed.insert(
                            path,
                            format!("it has no session, or its holder is not a member; {FREED}"),
                        );
                    }
                }
            }
        }
        self.malformed_log.found(malformed);
        roster.members.sort_by(|one, other| one.id.cmp(&other.id));
        roster.held.sort();
        Ok(roster)
    }
}

fn epoch(stat: &NodeStat) -> LeaseEpoch {
    LeaseEpoch(stat.czxid.unsigned_abs())
}

fn is_of_a_session(stat: &NodeStat) -> bool {
    stat.ephemeral_owner != 0
}

/// The holder of a lease; `None` if the node is malformed.
fn holder(data: &[u8], stat: &NodeStat) -> Option<MemberId> {
    let text = std::str::from_utf8(data).ok().filter(|_| is_of_a_session(stat))?;
    MemberId::new(text)
}

impl MemberSession {
    /// Starts a session that ends by itself when no heartbeat was sent for its whole time to live.
    fn begin(client: ZooKeeperClient, ttl: Duration, beaten_at: Instant) -> Arc<Self> {
        let state = Mutex::new(SessionOfMember { client: Some(client), beaten_at });
        let session = Arc::new(MemberSession { ttl, state });
        tokio::spawn(watch(Arc::downgrade(&session), beaten_at + ttl));
        session
    }

    fn client(&self) -> Option<ZooKeeperClient> {
        self.lock().client.clone().filter(|client| !client.is_ended())
    }

    fn beaten(&self, sent_at: Instant) {
        let mut state = self.lock();
        state.beaten_at = state.beaten_at.max(sent_at);
    }

    /// ZooKeeper ends it as soon as the last reference to its client is dropped.
    fn end(&self) {
        self.lock().client = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SessionOfMember> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn watch(session: Weak<MemberSession>, mut deadline: Instant) {
    loop {
        tokio::time::sleep_until(deadline).await;
        let Some(session) = session.upgrade() else { return };
        let mut state = session.lock();
        deadline = state.beaten_at + session.ttl;
        if deadline <= Instant::now() {
            state.client = None;
            return;
        }
    }
}

#[async_trait]
impl Coordination for ZooKeeperCoordination {
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError> {
        check_card(&joining.card)?;
        if self.entered.has(&joining.member) {
            return self.beat(&joining.member, joining.card).await;
        }
        let sent_at = Instant::now();
        let client = self.connect(joining.ttl).await?;
        self.answered(self.enter(&client, &joining)).await??;
        let session = MemberSession::begin(client, joining.ttl, sent_at);
        self.lock().insert(joining.member.clone(), session);
        self.entered.note(&joining.member);
        Ok(Standing::Alive)
    }

    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError> {
        check_card(&card)?;
        let (sent_at, path) = (Instant::now(), self.member_path(member));
        let Some(client) = self.client(member) else { return Ok(Standing::GivenUp) };
        match self.answered(client.set_data(&path, card.as_bytes())).await? {
            Ok(()) => {
                if let Some(session) = self.lock().get(member) {
                    session.beaten(sent_at);
                }
                Ok(Standing::Alive)
            }
            Err(Error::NoNode | Error::SessionExpired) => {
                self.forget(member);
                Ok(Standing::GivenUp)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn look(&self) -> Result<Roster, CoordinationError> {
        let client = self.observer().await?;
        match self.answered(self.read(&client)).await? {
            // The member whose session it was has left meanwhile.
            Err(_) if client.is_ended() => {
                let client = self.observer().await?;
                self.answered(self.read(&client)).await?
            }
            read => read,
        }
    }

    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError> {
        let given_up = vec![Take::GivenUp; names.len()];
        let Some(client) = self.client(member) else { return Ok(given_up) };
        let taken = join_all(names.iter().map(|name| self.take_one(&client, member, *name)));
        let taken: Result<Vec<Take>, Error> = self.answered(taken).await?.into_iter().collect();
        match taken {
            Err(Error::SessionExpired) => Ok(given_up),
            taken => taken.map_err(|error| self.failed(&error)),
        }
    }

    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError> {
        let Some(client) = self.client(member) else { return Ok(vec![false; held.len()]) };
        let released = join_all(held.iter().map(|lease| self.release_one(&client, member, *lease)));
        let released: Result<Vec<bool>, Error> = self.answered(released).await?.into_iter().collect();
        match released {
            Err(Error::SessionExpired) => Ok(vec![false; held.len()]),
            released => released.map_err(|error| self.failed(&error)),
        }
    }

    /// The end of the session removes the member and its leases in one step, so that no scan sees a lease of a
    /// member that has left.
    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError> {
        let Some(client) = self.client(member) else {
            self.forget(member);
            return Ok(());
        };
        let left = self.answered(client.close()).await;
        self.forget(member);
        match left? {
            Ok(()) | Err(Error::SessionExpired) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }
}
