//! How commands find the server: what they are told, else what the data directory says, else the default.

use crate::data_dir::DataDir;
use crate::exit::CliError;
use punctual_client::Client;

/// Where the server listens unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7070";

#[derive(Debug, Clone, clap::Args)]
pub struct ConnectArgs {
    /// The server's address; by default the one that the data directory names, or 127.0.0.1:7070
    #[arg(long, env = "PUNCTUAL_SERVER", value_name = "ADDRESS")]
    server: Option<String>,
    /// The API token; by default the admin token in the data directory
    #[arg(long, env = "PUNCTUAL_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    data_dir: DataDir,
}

impl ConnectArgs {
    pub fn client(&self) -> anyhow::Result<Client> {
        let server = match &self.server {
            Some(server) => server.clone(),
            None => self.data_dir.address()?.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
        };
        // What comes out of a file or a variable often ends with a newline, which no header may hold.
        let token = match &self.token {
            Some(token) => Some(token.trim().to_owned()),
            None => self.data_dir.token()?,
        };
        let Some(token) = token else {
            return Err(CliError::not_found(format!(
                "no token: there is no {}; start `punctual serve` here, or name one with --token, \
                 PUNCTUAL_TOKEN or --data-dir",
                self.data_dir.token_file().display()
            ))
            .into());
        };
        Ok(Client::new(&server, token)?)
    }
}
