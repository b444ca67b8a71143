//! A database of its own for every run on a database server, made before it and dropped after it. What is there already is
//! not touched.

use anyhow::Context;
use punctual_node::store::{self, ServerPlace};
use punctual_store::baseline::BaselineDatabase;

/// How its name begins, so that people know what one is that was left behind by a killed run.
const PREFIX: &str = "punctual_bench_";

pub struct ScratchDirectory {
    /// The server, by a database that is there.
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

    /// How to get to it, the password included; over another address if one is given.
    pub fn url(&self, address: Option<&str>) -> String {
        self.place(address).url.with_password(self.server.password.as_ref())
    }

    pub const fn server(&self) -> &ServerPlace {
        &self.server
    }

    /// The database itself, beside any server on it; over another address if one is given.
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
        // The runtime of the benchmark may be going down: a thread and a runtime of its own wait for the answer.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(store::drop_database(&server, &name)).map_err(anyhow::Error::from)
        });
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("warning: the database {} could not be dropped on {}", self.name, self.server.url);
        }
    }
}
