//! The verbs of the membership table as values, like those of the store in [`crate::write`]: the same call for every
//! database, which the simulator can send, too.

use punctual_core::ports::{
    HeldLease, Joining, LeaseName, MalformedRow, MemberId, MemberPulse, Standing, Take,
};
use punctual_core::time::Timestamp;

/// One call of a writing verb of [`punctual_core::ports::Register`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipCall {
    Enter { now: Timestamp, joining: Joining },
    Beat { now: Timestamp, member: MemberId, card: String },
    GiveUp { silent: Vec<MemberPulse> },
    Take { member: MemberId, names: Vec<LeaseName> },
    Release { member: MemberId, held: Vec<HeldLease> },
    Remove { member: MemberId },
    Clear { malformed: Vec<MalformedRow> },
}

impl MembershipCall {
    /// The approximate work in rows.
    pub fn weight(&self) -> usize {
        let rows = match self {
            MembershipCall::GiveUp { silent } => silent.len(),
            MembershipCall::Take { names, .. } => names.len(),
            MembershipCall::Release { held, .. } => held.len(),
            MembershipCall::Clear { malformed } => malformed.len(),
            MembershipCall::Enter { .. } | MembershipCall::Beat { .. } | MembershipCall::Remove { .. } => 1,
        };
        rows.max(1)
    }
}

/// The reply to a [`MembershipCall`], in the matching variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipReply {
    Entered,
    Beaten(Standing),
    GivenUp(Vec<bool>),
    Taken(Vec<Take>),
    Released(Vec<bool>),
    Removed,
    Cleared,
}

/// The contents of the membership rows. A row that cannot be read does not prevent reading the others.
pub(crate) mod read {
    use punctual_core::limits::MEMBER_TTL_BELIEVED_MAX;
    use punctual_core::ports::{
        Entries, HeldLease, LeaseEpoch, LeaseName, LeaseRow, MalformedRow, MemberId, MemberRow,
        MembershipTableName,
    };
    use std::time::Duration;

    /// A row of the statement that reads both tables in one snapshot: member (0) or lease (1), the member's
    /// name, its beat or the lease's epoch, the time to live, its card or the lease's name.
    pub type EitherRow = (i64, String, i64, i64, String);

    pub fn entries(rows: Vec<EitherRow>) -> Entries {
        let mut entries = Entries::default();
        for (kind, id, number, ttl_us, text) in rows {
            if kind == 0 {
                match member(&id, number, ttl_us) {
                    Ok((id, beat, ttl)) => entries.members.push(MemberRow { id, beat, ttl, card: text }),
                    Err(why) => entries.malformed.push(MalformedRow {
                        table: MembershipTableName::Members,
                        key: id,
                        why,
                    }),
                }
            } else {
                match held(&text, number, &id) {
                    Ok(held) => entries.held.push(held),
                    Err(why) => entries.malformed.push(MalformedRow {
                        table: MembershipTableName::Leases,
                        key: text,
                        why,
                    }),
                }
            }
        }
        entries.members.sort_by(|one, other| one.id.cmp(&other.id));
        entries.held.sort();
        entries.malformed.sort();
        entries
    }

    fn member(id: &str, beat: i64, ttl_us: i64) -> Result<(MemberId, u64, Duration), String> {
        let member = MemberId::new(id).ok_or_else(|| format!("its id is {}", shown(id)))?;
        let beat = count(beat).ok_or_else(|| format!("its beat is {beat}"))?;
        let ttl = u64::try_from(ttl_us).ok().map(Duration::from_micros);
        let ttl = ttl.filter(|ttl| *ttl <= MEMBER_TTL_BELIEVED_MAX);
        Ok((member, beat, ttl.ok_or_else(|| format!("its ttl_us is {ttl_us}"))?))
    }

    fn held(name: &str, epoch: i64, holder: &str) -> Result<(HeldLease, MemberId), String> {
        let name = LeaseName::parse(name).ok_or_else(|| format!("its name is {}", shown(name)))?;
        let holder = MemberId::new(holder).ok_or_else(|| format!("its holder is {}", shown(holder)))?;
        let epoch = count(epoch).ok_or_else(|| format!("its epoch is {epoch}"))?;
        Ok((HeldLease { name, epoch: LeaseEpoch(epoch) }, holder))
    }

    /// A counter that can still be incremented.
    pub fn count(number: i64) -> Option<u64> {
        u64::try_from(number).ok().filter(|_| number < i64::MAX)
    }

    /// Shortens untrusted text for a message.
    fn shown(text: &str) -> String {
        let short: String = text.chars().take(64).collect();
        let dots = if short.len() < text.len() { "…" } else { "" };
        format!("{short:?}{dots}")
    }

    /// A row of `cluster_leases`: name, epoch, holder.
    pub type RawLease = (String, i64, Option<String>);

    /// The leases as found by a verb that has locked them.
    #[derive(Debug, Default)]
    pub struct Leases {
        pub found: Vec<LeaseRow>,
        /// Replacements for malformed lease rows: free, and with the stored epoch if that can be read.
        pub malformed: Vec<LeaseRow>,
    }

    /// Leaves out leases with unknown names, which are never requested.
    pub fn leases(rows: Vec<RawLease>) -> Leases {
        let mut leases = Leases::default();
        for (text, number, text_of_holder) in rows {
            let Some(name) = LeaseName::parse(&text) else { continue };
            let epoch = count(number);
            let holder = text_of_holder.as_deref().and_then(MemberId::new);
            let is_odd = epoch.is_none() || holder.is_none() != text_of_holder.is_none();
            let epoch = LeaseEpoch(epoch.unwrap_or_default());
            if is_odd {
                leases.malformed.push(LeaseRow { name, epoch, holder: None });
            } else {
                leases.found.push(LeaseRow { name, epoch, holder });
            }
        }
        leases
    }
}

/// Implements the port over `membership_call`, which sends a [`MembershipCall`], and `membership_entries`,
/// which reads.
macro_rules! serve_membership {
    ($store:ty) => {
        const _: () = {
            use $crate::membership::{MembershipCall, MembershipReply};
            use async_trait::async_trait;
            use punctual_core::ports::{
                Entries, HeldLease, Joining, LeaseName, MemberId, MemberPulse, MalformedRow, MembershipTable, Standing, StoreError,
                Take,
            };
            use punctual_core::time::Timestamp;

            macro_rules! called {
                ($self:ident, $call:expr, $reply:pat => $value:expr) => {
                    match $self.membership_call($call).await? {
                        $reply => Ok($value),
                        other => Err(StoreError::Broken(format!("the membership table answered with {other:?}"))),
                    }
                };
            }

            #[async_trait]
            impl MembershipTable for $store {
                async fn enter_member(&self, now: Timestamp, joining: Joining) -> Result<(), StoreError> {
                    called!(self, MembershipCall::Enter { now, joining }, MembershipReply::Entered => ())
                }

                async fn beat_member(
                    &self,
                    now: Timestamp,
                    member: &MemberId,
                    card: String,
                ) -> Result<Standing, StoreError> {
                    let call = MembershipCall::Beat { now, member: member.clone(), card };
                    called!(self, call, MembershipReply::Beaten(standing) => standing)
                }

                async fn entries(&self) -> Result<Entries, StoreError> {
                    Ok(self.membership_entries().await?)
                }

                async fn give_up_members(&self, silent: Vec<MemberPulse>) -> Result<Vec<bool>, StoreError> {
                    called!(self, MembershipCall::GiveUp { silent }, MembershipReply::GivenUp(given_up) => given_up)
                }

                async fn take_leases(
                    &self,
                    member: &MemberId,
                    names: Vec<LeaseName>,
                ) -> Result<Vec<Take>, StoreError> {
                    let call = MembershipCall::Take { member: member.clone(), names };
                    called!(self, call, MembershipReply::Taken(taken) => taken)
                }

                async fn release_leases(
                    &self,
                    member: &MemberId,
                    held: Vec<HeldLease>,
                ) -> Result<Vec<bool>, StoreError> {
                    let call = MembershipCall::Release { member: member.clone(), held };
                    called!(self, call, MembershipReply::Released(released) => released)
                }

                async fn remove_member(&self, member: &MemberId) -> Result<(), StoreError> {
                    let call = MembershipCall::Remove { member: member.clone() };
                    called!(self, call, MembershipReply::Removed => ())
                }

                async fn clear_rows(&self, malformed: Vec<MalformedRow>) -> Result<(), StoreError> {
                    called!(self, MembershipCall::Clear { malformed }, MembershipReply::Cleared => ())
                }
            }
        };
    };
}
pub(crate) use serve_membership;
