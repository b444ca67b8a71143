//! The statements of the membership table: see [`crate::server::membership`].
//!
//! Nodes of a Galera cluster do not see each other's locks. There two transactions conflict at commit if
//! they have written the same row. So a transaction that takes a lease writes its own member row, and a
//! transaction that removes the member deletes that row.

use super::connection::{Connection, for_update_of};
use super::lists::list;
use crate::codecs::counter;
use crate::fault::Fault;
use crate::server::connection::{ServerCall, Statements, TransactionFrame, value};
use crate::server::membership::{
    MembershipStatements, ServerMembership, all_changed, lease_list, leases, repair,
};
use async_trait::async_trait;
use punctual_core::ports::{MalformedRow, MemberId, MemberPulse, MembershipTableName};

pub(crate) type MySqlMembership = ServerMembership<Connection>;

const GIVE_UP: &str = "DELETE FROM cluster_members WHERE id = ? AND beat = ?";
const REMOVE: &str = "DELETE FROM cluster_members WHERE id = ?";
/// There are few leases, and locking all of them keeps the order.
const LOCK_ALL: &str = "SELECT name, epoch, holder FROM cluster_leases ORDER BY name FOR UPDATE";

#[async_trait]
impl MembershipStatements for Connection {
    const CLUSTER: &'static str = "SELECT LOWER(HEX(cluster)) FROM punctual WHERE id = 1";
    const ENTER: &'static str = "INSERT INTO cluster_members (id, beat, ttl_us, entered_at, beaten_at, card) \
         VALUES (?, 1, ?, ?, ?, ?) \
         ON DUPLICATE KEY UPDATE beat = beat + 1, ttl_us = VALUES(ttl_us), beaten_at = VALUES(beaten_at), \
         card = VALUES(card)";
    const BEAT: &'static str =
        "UPDATE cluster_members SET beat = beat + 1, beaten_at = ?, card = ? WHERE id = ?";
    const COUNT_AS_BEAT: &'static str = "UPDATE cluster_members SET beat = beat + 1 WHERE id = ?";
    const LOCK_LEASES: &'static str = concat!(
        "SELECT cluster_leases.name, epoch, holder FROM ",
        list!(0 name name),
        " STRAIGHT_JOIN cluster_leases FORCE INDEX (PRIMARY) ON cluster_leases.name = given.name",
        for_update_of!("cluster_leases")
    );
    const HOLD: &'static str = concat!(
        "UPDATE ",
        list!(0 name name, 1 epoch int),
        " STRAIGHT_JOIN cluster_leases FORCE INDEX (PRIMARY) ON cluster_leases.name = given.name \
         SET cluster_leases.epoch = given.epoch, holder = ? WHERE holder IS NULL"
    );
    const MAKE: &'static str = concat!(
        "INSERT INTO cluster_leases (name, epoch, holder) SELECT given.name, given.epoch, ? FROM ",
        list!(0 name name, 1 epoch int)
    );
    const FREE: &'static str = concat!(
        "UPDATE ",
        list!(0 name name, 1 epoch int),
        " STRAIGHT_JOIN cluster_leases FORCE INDEX (PRIMARY) \
         ON cluster_leases.name = given.name AND cluster_leases.epoch = given.epoch \
         SET holder = NULL WHERE holder = ?"
    );
    const REPAIR: &'static str = concat!(
        "UPDATE ",
        list!(0 name name, 1 epoch int),
        " STRAIGHT_JOIN cluster_leases FORCE INDEX (PRIMARY) ON cluster_leases.name = given.name \
         SET cluster_leases.epoch = given.epoch, holder = NULL"
    );
    const ENTRIES: &'static str = "SELECT 0, id, beat, ttl_us, card FROM cluster_members \
         UNION ALL SELECT 1, holder, epoch, 0, name FROM cluster_leases WHERE holder IS NOT NULL";
    /// The conditions of the statements check that a row is as it was read. If another node has written it
    /// since, everything is rolled back and run again.
    const CHECKS_WRITES: bool = true;

    async fn give_up(&mut self, silent: &[MemberPulse]) -> Result<Vec<bool>, Fault> {
        self.begin().await?;
        let mut sorted: Vec<&MemberPulse> = silent.iter().collect();
        sorted.sort();
        sorted.dedup();
        let mut gone = Vec::new();
        for pulse in sorted {
            let values = [value(pulse.member.as_str()), value(counter(pulse.beat))];
            if self.send_one(TransactionFrame::None, ServerCall::new(GIVE_UP, values)).await?.count > 0 {
                gone.push(&pulse.member);
            }
        }
        if !gone.is_empty() {
            free_all(self, &gone).await?;
        }
        self.commit().await?;
        Ok(silent.iter().map(|pulse| gone.contains(&&pulse.member)).collect())
    }

    async fn remove(&mut self, member: &MemberId) -> Result<(), Fault> {
        let removal = ServerCall::new(REMOVE, [value(member.as_str())]);
        self.send_one(TransactionFrame::Begin, removal).await?;
        free_all(self, &[member]).await?;
        self.commit().await
    }

    /// A lease whose holder has an invalid id is malformed itself.
    async fn clear(&mut self, malformed: &[MalformedRow]) -> Result<(), Fault> {
        let ids = malformed
            .iter()
            .filter(|row| row.table == MembershipTableName::Members)
            .map(|row| row.key.as_str());
        let removals = ids.clone().map(|id| ServerCall::new(REMOVE, [value(id)])).collect();
        self.send(TransactionFrame::Begin, removals).await?;
        let members: Vec<MemberId> = ids.filter_map(MemberId::new).collect();
        free_all(self, &members.iter().collect::<Vec<_>>()).await?;
        let leases = leases(&self.all(LOCK_ALL, vec![]).await?)?;
        self.send_one(TransactionFrame::Commit, repair::<Self>(&leases)).await.map(drop)
    }
}

async fn free_all(connection: &mut Connection, members: &[&MemberId]) -> Result<(), Fault> {
    let rows = leases(&connection.all(LOCK_ALL, vec![]).await?)?.found;
    for member in members {
        let held: Vec<_> = rows.iter().filter(|row| row.holder.as_ref() == Some(*member)).collect();
        let count = held.len();
        let free = ServerCall::new(Connection::FREE, [lease_list(held), value(member.as_str())]);
        all_changed(connection.send_one(TransactionFrame::None, free).await?.count, count)?;
    }
    Ok(())
}
