//! Creates a database for every run on a database server and drops it afterwards. Existing databases are not touched.

use anyhow::Context;
use punctual_node::store::{self, ServerPlace};
use punctual_store::baseline::BaselineDatabase;

/// Prefix of the name, so that operators recognise a database that a killed run left behind.
const PREFIX: &str = "punctual_bench_";

pub struct ScratchDirectory {
    /// The server, reached through a database that exists.
    server: ServerPlace,
    name: String,
}

impl ScratchDirectory {
    pub async fn create(server: ServerPlace) -> anyhow::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).context("cannot read randomness")?;
        let name = format!("{PREFIX}{:016x}", u64::from_le_bytes(random));
        store::create_database(&server, &name).await?;
        Ok(ScratchDirectory { server, name })
    }

    /// The URL of the database, including the password; through another address if one is given.
    pub fn url(&self, address: Option<&str>) -> String {
        self.place(address).url.with_password(self.server.password.as_ref())
    }

    pub const fn server(&self) -> &ServerPlace {
        &self.server
    }

    /// A direct connection to the database, next to any server that uses it; through another address if one is given.
    pub async fn bare(&self, address: Option<&str>) -> anyhow::Result<Box<dyn BaselineDatabase>> {
        Ok(store::bare(&self.place(address)).await?)
    }

    fn place(&self, address: Option<&str>) -> ServerPlace {
        let url = self.server.url.on_database(&self.name);
        let url = address.map(|address| url.at(address)).unwrap_or(url);
        ServerPlace { url, ..self.server.clone() }
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // The benchmark's runtime may be shutting down, so a separate thread with its own runtime waits for the
        // response.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(store::drop_database(&server, &name)).map_err(anyhow::Error::from)
        });
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("warning: the database {} could not be dropped on {}", self.name, self.server.url);
        }
    }
}
