//! Carries out a plan of faults against a cluster, undoes everything, and reports when each fault really
//! began and ended.

use crate::cluster::ChaosCluster;
use crate::member::{MemberProcess, now};
use crate::plan::{FaultKind, FaultPlan, PlannedFault};
use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use punctual_core::time::Timestamp;
use punctual_link::NetworkFault;
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// A fault as it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InjectedFault {
    pub kind: FaultKind,
    pub target: String,
    pub amount: i64,
    pub from: Timestamp,
    /// When it was undone and everything that was restarted was ready.
    pub until: Timestamp,
}

/// Returns when the plan's time is over and all faults are undone.
pub async fn inject_faults(cluster: &ChaosCluster, plan: &FaultPlan) -> Result<Vec<InjectedFault>> {
    let start = Instant::now();
    let faults = plan.faults.iter().map(|fault| async move {
        tokio::time::sleep_until(start + fault.at).await;
        one(cluster, fault).await.with_context(|| format!("{fault}"))
    });
    let mut faults = try_join_all(faults).await?;
    faults.sort_by_key(|fault| fault.from);
    tokio::time::sleep_until(start + plan.lasts).await;
    Ok(faults)
}

async fn one(cluster: &ChaosCluster, fault: &PlannedFault) -> Result<InjectedFault> {
    let from = now();
    match fault.kind {
        FaultKind::DatabaseKill => {
            cluster.database.kill().await?;
            tokio::time::sleep(fault.lasts).await;
            cluster.database.start_again().await?;
        }
        FaultKind::DatabaseRestart => {
            cluster.database.stop().await?;
            tokio::time::sleep(fault.lasts).await;
            cluster.database.start_again().await?;
        }
        _ => on_process(cluster.named(&fault.target)?, fault).await?,
    }
    let PlannedFault { kind, target, amount, .. } = fault.clone();
    Ok(InjectedFault { kind, target, amount, from, until: now() })
}

async fn on_process(member: &MemberProcess, fault: &PlannedFault) -> Result<()> {
    let PlannedFault { kind, lasts, amount, .. } = *fault;
    match kind {
        FaultKind::Kill => {
            member.kill().await;
            tokio::time::sleep(lasts).await;
            member.start_again().await;
        }
        FaultKind::Pause => {
            member.pause();
            tokio::time::sleep(lasts).await;
            member.go_on();
        }
        FaultKind::Clock => {
            member.set_clock(amount)?;
            tokio::time::sleep(lasts).await;
            member.set_clock(0)?;
        }
        FaultKind::ClientsCutOff | FaultKind::ClientsBlackHole => {
            let front = member.front.as_ref().context("only API nodes have clients")?;
            front.set(network_fault(kind, amount));
            tokio::time::sleep(lasts).await;
            front.set(NetworkFault::Fair);
        }
        _ => {
            member.link.set(network_fault(kind, amount));
            tokio::time::sleep(lasts).await;
            member.link.set(NetworkFault::Fair);
        }
    }
    Ok(())
}

fn network_fault(kind: FaultKind, amount: i64) -> NetworkFault {
    match kind {
        FaultKind::CutOff | FaultKind::ClientsCutOff => NetworkFault::Cut,
        FaultKind::BlackHole | FaultKind::ClientsBlackHole => NetworkFault::Held,
        FaultKind::RequestsLost => NetworkFault::RequestsHeld,
        FaultKind::AnswersLost => NetworkFault::AnswersHeld,
        FaultKind::Slow => NetworkFault::Slow(Duration::from_millis(amount.unsigned_abs())),
        _ => NetworkFault::Fair,
    }
}
