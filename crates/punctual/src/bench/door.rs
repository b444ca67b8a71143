//! The ways in which a benchmark submits: within the process, or over HTTP as a client would.

use crate::bench::stage::Stage;
use anyhow::{Context, bail};
use punctual_api::{Api, Server, ServerLimits, secret_sha256};
use punctual_client::{BatchItem, Client, SubmitJob};
use punctual_core::job::JobSpec;
use punctual_core::ports::{Role, Token};
use punctual_engine::Engine;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Submits jobs that are all alike.
#[derive(Clone)]
pub enum Door {
    Engine { engine: Arc<Engine>, job: Arc<JobSpec> },
    Http { client: Client, job: Arc<SubmitJob>, _open: Arc<watch::Sender<bool>> },
}

impl Door {
    pub fn engine(stage: &Stage, job: &JobSpec) -> Self {
        Door::Engine { engine: stage.engine.clone(), job: Arc::new(job.clone()) }
    }

    /// Opens the API of the stage on a free port of the loopback interface.
    pub async fn http(stage: &Stage, job: &JobSpec) -> anyhow::Result<Self> {
        let token = Token {
            id: "bench".to_owned(),
            secret_sha256: secret_sha256("bench"),
            role: Role::Submitter,
            created_at: stage.engine.now(),
        };
        stage.engine.store().put_token(token).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client = Client::new(&listener.local_addr()?.to_string(), "pt_bench_bench")?;
        let api = Api::new(stage.engine.clone(), stage.host.clock.clone());
        let server = Server {
            listener,
            limits: ServerLimits::default(),
            clock: stage.host.clock.clone(),
            spawn: stage.host.spawn.clone(),
            traffic: api.traffic(),
        };
        let (open, stop) = watch::channel(false);
        tokio::spawn(server.run(api.router(), stop));
        let job = SubmitJob {
            job_type: Some(job.job_type.clone()),
            payload: Some(RawValue::from_string(job.payload.clone())?),
            ..SubmitJob::named(job.name.clone())
        };
        Ok(Door::Http { client, job: Arc::new(job), _open: Arc::new(open) })
    }

    /// Submits one batch and fails unless all of it was taken.
    pub async fn submit(&self, count: usize) -> anyhow::Result<()> {
        match self {
            Door::Engine { engine, job } => {
                Door::submit_specs(engine, vec![JobSpec::clone(job); count]).await?;
            }
            Door::Http { client, job, .. } => {
                let answer = client.submit_batch(&vec![SubmitJob::clone(job); count]).await?;
                if answer.items.len() != count
                    || answer.items.iter().any(|item| matches!(item, BatchItem::Refused { .. }))
                {
                    bail!("a job was not taken");
                }
            }
        }
        Ok(())
    }

    pub async fn submit_specs(engine: &Engine, specs: Vec<JobSpec>) -> anyhow::Result<()> {
        for answer in engine.submit(specs).await {
            answer.context("a job was not taken")?;
        }
        Ok(())
    }
}
