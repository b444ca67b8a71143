//! The database of one run: a dedicated server that `cargo xtask` starts, and kills or restarts on request.

use anyhow::{Context, Result};
use punctual_test_servers::{Servers, host_of};
use std::sync::{Arc, Mutex, PoisonError};

/// A running server. It ends when this is dropped, or when this process ends.
pub struct DatabaseServer {
    service: String,
    pub url: String,
    servers: Arc<Mutex<Servers>>,
}

impl DatabaseServer {
    pub async fn start(service: &str) -> Result<Self> {
        let service = service.to_owned();
        blocking(move || {
            let servers = Servers::start(&service)?;
            let url = servers.url(&service)?.to_owned();
            Ok(DatabaseServer { service, url, servers: Arc::new(Mutex::new(servers)) })
        })
        .await
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        host_of(&self.url)
    }

    /// Kills it, as a power failure does.
    pub async fn kill(&self) -> Result<()> {
        self.order(Servers::kill).await
    }

    /// Stops it as an operator does.
    pub async fn stop(&self) -> Result<()> {
        self.order(Servers::stop).await
    }

    /// Starts it again and waits until it accepts connections.
    pub async fn start_again(&self) -> Result<()> {
        self.order(Servers::start_again).await
    }

    async fn order(&self, order: fn(&mut Servers, &str) -> Result<()>) -> Result<()> {
        let (servers, service) = (self.servers.clone(), self.service.clone());
        blocking(move || order(&mut servers.lock().unwrap_or_else(PoisonError::into_inner), &service)).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the thread that waits for xtask has ended")?
}
