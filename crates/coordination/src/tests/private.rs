//! Servers for a single test, which may break them. A server that does not start or obey fails the test with
//! its own message.

use punctual_test_servers::{Result, Servers};
use std::path::Path;
use std::sync::{Arc, Mutex};

pub struct Private {
    guard: Arc<Mutex<Servers>>,
    /// Name and URL of each server.
    pub servers: Vec<(String, String)>,
}

impl Private {
    /// Starts all servers of a service and waits until they are ready.
    pub async fn start(service: &str) -> Self {
        let service = service.to_owned();
        Private::launch(move || Servers::start(&service)).await
    }

    /// The same for servers with TLS, with their own certificates.
    pub async fn start_with(service: &str, certificates: &Path) -> Self {
        let (service, folder) = (service.to_owned(), certificates.to_owned());
        Private::launch(move || Servers::start_with_certificates(&service, &folder)).await
    }

    async fn launch(start: impl FnOnce() -> Result<Servers> + Send + 'static) -> Self {
        let started = blocking(start).await;
        let servers = started.all().iter().map(|server| (server.name.clone(), server.url.clone())).collect();
        Private { guard: Arc::new(Mutex::new(started)), servers }
    }

    /// One URL for all servers.
    pub fn url(&self) -> String {
        let urls = self.servers.iter().map(|(_, url)| url.split("://").nth(1).expect("a host"));
        let scheme = self.servers[0].1.split("://").next().expect("a scheme");
        format!("{scheme}://{}", urls.collect::<Vec<_>>().join(","))
    }

    /// Kills a server, as a power failure would.
    pub async fn kill(&mut self, name: &str) {
        self.order(name, |guard, name| guard.kill(name)).await;
    }

    pub async fn start_again(&mut self, name: &str) {
        self.order(name, |guard, name| guard.start_again(name)).await;
    }

    /// Sends a command to a server, as its operator would.
    pub async fn say(&mut self, name: &str, words: &str) {
        let words = words.to_owned();
        self.order(name, move |guard, name| guard.sql(name, &words).map(drop)).await;
    }

    /// Runs on its own thread, so that the test continues meanwhile.
    async fn order(
        &mut self,
        name: &str,
        order: impl FnOnce(&mut Servers, &str) -> Result<()> + Send + 'static,
    ) {
        let (guard, name) = (self.guard.clone(), name.to_owned());
        blocking(move || {
            order(&mut guard.lock().expect("no other thread panicked while it held the lock"), &name)
        })
        .await;
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> T {
    let outcome = tokio::task::spawn_blocking(work).await.expect("the thread ends");
    outcome.unwrap_or_else(|error| panic!("{error:#}"))
}
