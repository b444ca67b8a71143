//! The statements of the membership table: see [`crate::server::membership`].

use super::wire::Wire;
use crate::cells::get;
use crate::fault::Fault;
use crate::membership::read;
use crate::server::connection::{ServerCall, Statements, TransactionFrame};
use crate::server::membership::{
    MembershipStatements, ServerMembership, leases, lock_leases, member_list, repair,
};
use async_trait::async_trait;
use punctual_core::ports::{LeaseName, MalformedRow, MemberId, MemberPulse, MembershipTableName};

pub(crate) type PostgresMembership = ServerMembership<Wire>;

const LOCK_MEMBERS: &str =
    "SELECT id, beat FROM cluster_members WHERE id = ANY($1) ORDER BY id COLLATE \"C\" FOR UPDATE";
const REMOVE: &str = "DELETE FROM cluster_members WHERE id = ANY($1)";
const LOCK_HELD: &str =
    "SELECT name FROM cluster_leases WHERE holder = ANY($1) ORDER BY name COLLATE \"C\" FOR UPDATE";
const FREE_ALL: &str = "UPDATE cluster_leases SET holder = NULL WHERE holder = ANY($1)";

#[async_trait]
impl MembershipStatements for Wire {
    const CLUSTER: &'static str = "SELECT cluster::text FROM punctual WHERE id = 1";
    const ENTER: &'static str = "INSERT INTO cluster_members AS kept (id, beat, ttl_us, entered_at, beaten_at, card) \
         VALUES ($1, 1, $2, $3, $4, $5) \
         ON CONFLICT (id) DO UPDATE SET beat = kept.beat + 1, ttl_us = excluded.ttl_us, \
         beaten_at = excluded.beaten_at, card = excluded.card";
    const BEAT: &'static str =
        "UPDATE cluster_members SET beat = beat + 1, beaten_at = $1, card = $2 WHERE id = $3 RETURNING 1";
    const COUNT_AS_BEAT: &'static str =
        "UPDATE cluster_members SET beat = beat + 1 WHERE id = $1 RETURNING 1";
    const LOCK_LEASES: &'static str = "SELECT name, epoch, holder FROM cluster_leases WHERE name = ANY($1) \
         ORDER BY name COLLATE \"C\" FOR UPDATE";
    const HOLD: &'static str = "UPDATE cluster_leases SET epoch = new.epoch, holder = $3 \
         FROM unnest($1::text[], $2::bigint[]) AS new(name, epoch) WHERE cluster_leases.name = new.name";
    const MAKE: &'static str = "INSERT INTO cluster_leases (name, epoch, holder) \
         SELECT name, epoch, $1 FROM unnest($2::text[], $3::bigint[]) AS new(name, epoch)";
    const FREE: &'static str = "UPDATE cluster_leases SET holder = NULL \
         FROM unnest($1::text[], $2::bigint[]) AS old(name, epoch) \
         WHERE cluster_leases.name = old.name AND cluster_leases.epoch = old.epoch AND holder = $3";
    const REPAIR: &'static str = "UPDATE cluster_leases SET epoch = new.epoch, holder = NULL \
         FROM unnest($1::text[], $2::bigint[]) AS new(name, epoch) WHERE cluster_leases.name = new.name";
    const ENTRIES: &'static str = "SELECT 0::bigint, id, beat, ttl_us, card FROM cluster_members \
         UNION ALL SELECT 1, holder, epoch, 0, name FROM cluster_leases WHERE holder IS NOT NULL";
    const CHECKS_WRITES: bool = false;

    async fn give_up(&mut self, silent: &[MemberPulse]) -> Result<Vec<bool>, Fault> {
        let lock =
            ServerCall::new(LOCK_MEMBERS, [member_list(silent.iter().map(|pulse| pulse.member.as_str()))]);
        let mut found = Vec::new();
        for row in self.send_one(TransactionFrame::Begin, lock).await?.rows {
            if let (Some(member), Some(beat)) =
                (MemberId::new(get::<String>(&row, 0)?), read::count(get(&row, 1)?))
            {
                found.push(MemberPulse { member, beat });
            }
        }
        let answers: Vec<bool> = silent.iter().map(|pulse| found.contains(pulse)).collect();
        let gone: Vec<&str> =
            found.iter().filter(|pulse| silent.contains(pulse)).map(|pulse| pulse.member.as_str()).collect();
        self.send_one(TransactionFrame::None, of_members(LOCK_HELD, &gone)).await?;
        remove_locked(self, &gone).await?;
        Ok(answers)
    }

    async fn remove(&mut self, member: &MemberId) -> Result<(), Fault> {
        let ids = [member.as_str()];
        let lock = vec![of_members(LOCK_MEMBERS, &ids), of_members(LOCK_HELD, &ids)];
        self.send(TransactionFrame::Begin, lock).await?;
        remove_locked(self, &ids).await
    }

    async fn clear(&mut self, malformed: &[MalformedRow]) -> Result<(), Fault> {
        let keys = |table| malformed.iter().filter(move |row| row.table == table).map(|row| row.key.as_str());
        let ids: Vec<&str> = keys(MembershipTableName::Members).collect();
        let names = keys(MembershipTableName::Leases).filter_map(LeaseName::parse);
        let lock =
            vec![of_members(LOCK_MEMBERS, &ids), of_members(LOCK_HELD, &ids), lock_leases::<Self>(names)];
        let found = self.send(TransactionFrame::Begin, lock).await?.pop().unwrap_or_default();
        self.send_one(TransactionFrame::None, repair::<Self>(&leases(&found.rows)?)).await?;
        remove_locked(self, &ids).await
    }
}

fn of_members<'a>(sql: &'static str, ids: &[&'a str]) -> ServerCall<'a> {
    ServerCall::new(sql, [member_list(ids.iter().copied())])
}

/// Completes a transaction that has locked the members and their leases.
async fn remove_locked(wire: &mut Wire, members: &[&str]) -> Result<(), Fault> {
    let calls = vec![of_members(REMOVE, members), of_members(FREE_ALL, members)];
    wire.send(TransactionFrame::Commit, calls).await.map(drop)
}
