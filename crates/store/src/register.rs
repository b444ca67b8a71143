//! The verbs of the register as values, as [`crate::write`] has those of the store: the same call on every database, and one
//! that the simulator can send.

use punctual_core::ports::{HeldLease, Joining, LeaseName, MemberId, MemberPulse, Standing, Take};
use punctual_core::time::Timestamp;

/// One call of a writing verb of [`punctual_core::ports::Register`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterCall {
    Enter { now: Timestamp, joining: Joining },
    Beat { now: Timestamp, member: MemberId, card: String },
    GiveUp { silent: Vec<MemberPulse> },
    Take { member: MemberId, names: Vec<LeaseName> },
    Release { member: MemberId, held: Vec<HeldLease> },
    Remove { member: MemberId },
}

impl RegisterCall {
    /// About how much work this is, in rows.
    pub fn weight(&self) -> usize {
        let rows = match self {
            RegisterCall::GiveUp { silent } => silent.len(),
            RegisterCall::Take { names, .. } => names.len(),
            RegisterCall::Release { held, .. } => held.len(),
            RegisterCall::Enter { .. } | RegisterCall::Beat { .. } | RegisterCall::Remove { .. } => 1,
        };
        rows.max(1)
    }
}

/// The answer to a [`RegisterCall`], of the variant that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterReply {
    Entered,
    Beaten(Standing),
    GivenUp(Vec<bool>),
    Taken(Vec<Take>),
    Released(Vec<bool>),
    Removed,
}

/// What the rows of the register hold, and what our own code cannot have written.
pub(crate) mod read {
    use crate::fault::Fault;
    use punctual_core::ports::{Entries, HeldLease, LeaseEpoch, LeaseName, LeaseRow, MemberId, MemberRow};
    use std::time::Duration;

    pub fn member(text: String) -> Result<MemberId, Fault> {
        MemberId::new(text.as_str()).ok_or_else(|| Fault::damaged("cluster_members.id", text))
    }

    pub fn name(text: &str) -> Result<LeaseName, Fault> {
        LeaseName::parse(text).ok_or_else(|| Fault::damaged("cluster_leases.name", text))
    }

    /// A row of `cluster_leases`: name, epoch, holder.
    pub fn lease(row: (String, u64, Option<String>)) -> Result<LeaseRow, Fault> {
        let (text, epoch, holder) = row;
        Ok(LeaseRow { name: name(&text)?, epoch: LeaseEpoch(epoch), holder: holder.map(member).transpose()? })
    }

    /// A row of the statement that reads both tables at one moment: whether it is a member (0) or a lease (1), the member,
    /// its beat or the lease's epoch, the time to live, its card or the lease's name.
    pub type EitherRow = (i64, String, u64, u64, String);

    pub fn entries(rows: Vec<EitherRow>) -> Result<Entries, Fault> {
        let mut entries = Entries::default();
        for (kind, id, number, ttl_us, text) in rows {
            let id = member(id)?;
            if kind == 0 {
                let ttl = Duration::from_micros(ttl_us);
                entries.members.push(MemberRow { id, beat: number, ttl, card: text });
            } else {
                entries.held.push((HeldLease { name: name(&text)?, epoch: LeaseEpoch(number) }, id));
            }
        }
        entries.members.sort_by(|one, other| one.id.cmp(&other.id));
        entries.held.sort();
        Ok(entries)
    }
}

/// Implements the port over `register_call`, which sends a [`RegisterCall`], and `register_entries`, which reads.
macro_rules! serve_register {
    ($store:ty) => {
        const _: () = {
            use $crate::register::{RegisterCall, RegisterReply};
            use async_trait::async_trait;
            use punctual_core::ports::{
                Entries, HeldLease, Joining, LeaseName, MemberId, MemberPulse, Register, Standing, StoreError, Take,
            };
            use punctual_core::time::Timestamp;

            macro_rules! called {
                ($self:ident, $call:expr, $reply:pat => $value:expr) => {
                    match $self.register_call($call).await? {
                        $reply => Ok($value),
                        other => Err(StoreError::Broken(format!("the register answered with {other:?}"))),
                    }
                };
            }

            #[async_trait]
            impl Register for $store {
                async fn enter_member(&self, now: Timestamp, joining: Joining) -> Result<(), StoreError> {
                    called!(self, RegisterCall::Enter { now, joining }, RegisterReply::Entered => ())
                }

                async fn beat_member(
                    &self,
                    now: Timestamp,
                    member: &MemberId,
                    card: String,
                ) -> Result<Standing, StoreError> {
                    let call = RegisterCall::Beat { now, member: member.clone(), card };
                    called!(self, call, RegisterReply::Beaten(standing) => standing)
                }

                async fn entries(&self) -> Result<Entries, StoreError> {
                    Ok(self.register_entries().await?)
                }

                async fn give_up_members(&self, silent: Vec<MemberPulse>) -> Result<Vec<bool>, StoreError> {
                    called!(self, RegisterCall::GiveUp { silent }, RegisterReply::GivenUp(given_up) => given_up)
                }

                async fn take_leases(
                    &self,
                    member: &MemberId,
                    names: Vec<LeaseName>,
                ) -> Result<Vec<Take>, StoreError> {
                    let call = RegisterCall::Take { member: member.clone(), names };
                    called!(self, call, RegisterReply::Taken(taken) => taken)
                }

                async fn release_leases(
                    &self,
                    member: &MemberId,
                    held: Vec<HeldLease>,
                ) -> Result<Vec<bool>, StoreError> {
                    let call = RegisterCall::Release { member: member.clone(), held };
                    called!(self, call, RegisterReply::Released(released) => released)
                }

                async fn remove_member(&self, member: &MemberId) -> Result<(), StoreError> {
                    let call = RegisterCall::Remove { member: member.clone() };
                    called!(self, call, RegisterReply::Removed => ())
                }
            }
        };
    };
}
pub(crate) use serve_register;
