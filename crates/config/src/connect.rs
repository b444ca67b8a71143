//! How commands find the server: by their arguments, else by the data directory, else by the default.

use crate::data_dir::{DataDir, DataDirArgs};
use crate::exit::{CliError, Exit};
use crate::output::tell;
use crate::{ClientSettings, Flags, Surroundings, exposure};
use punctual_client::{Client, ClientTls, ClientTlsError, Identity};
use std::path::{Path, PathBuf};

/// The server's default address.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7070";

#[derive(Debug, Clone, clap::Args)]
pub struct ConnectArgs {
    #[command(flatten)]
    client: Flags<ClientSettings>,
    /// The API token; use a file or the variable instead, because other users of the machine can see command-line flags
    #[arg(long, env = "PUNCTUAL_TOKEN", hide_env_values = true, hide = true)]
    token: Option<String>,
    #[command(flatten)]
    data_dir: DataDirArgs,
}

/// What a command needs to connect to a server.
pub struct Connection {
    pub server: String,
    /// The server was given explicitly; otherwise it is the one of the data directory.
    pub is_named: bool,
    /// `None` if no token was found.
    pub token: Option<String>,
    /// Where the token was found or searched.
    pub token_origin: String,
    pub data_dir: DataDir,
    pub tls: ClientTls,
}

impl ConnectArgs {
    pub fn client(&self) -> anyhow::Result<Client> {
        self.client_within(&self.surroundings()?)
    }

    pub fn client_within(&self, around: &Surroundings) -> anyhow::Result<Client> {
        let Connection { server, token, token_origin, data_dir, tls, .. } = self.connection_within(around)?;
        let Some(token) = token else {
            return Err(CliError::not_found(format!(
                "no token: {} does not exist; start `punctual serve` here, or pass a token with --token-file, \
                 PUNCTUAL_TOKEN or --data-dir; on a shared database the first server created it: copy its admin.token \
                 here, or pass a copy with --token-file or PUNCTUAL_TOKEN_FILE",
                data_dir.token_file().display()
            ))
            .into());
        };
        Ok(Client::with_tls(&server, token, &tls)?.with_token_origin(token_origin))
    }

    pub fn surroundings(&self) -> Result<Surroundings, CliError> {
        self.data_dir.surroundings()
    }

    /// Whether a flag names the server.
    pub fn names_server(&self) -> bool {
        self.client.has("client.server")
    }

    pub fn data_dir_within(&self, around: &Surroundings) -> Result<DataDir, CliError> {
        self.data_dir.within(around)
    }

    pub fn connection_within(&self, around: &Surroundings) -> anyhow::Result<Connection> {
        let data_dir = self.data_dir.within(around)?;
        let settings = around.read(&self.client)?;
        let is_named = settings.server.is_some();
        let tls = self.tls(&settings, around)?;
        let server = match &settings.server {
            // Certificates say that the connection is to be encrypted.
            Some(server) if settings.names_certificates() && !server.0.contains("://") => {
                format!("https://{}", server.0)
            }
            Some(server) => server.0.clone(),
            None => data_dir.address()?.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
        };
        // A file or a variable often ends with a newline, which is invalid in a header.
        let given = self.token.as_deref().map(str::trim).filter(|token| !token.is_empty());
        let (token, token_origin) = match (given, &settings.token_file) {
            (Some(token), _) => (Some(token.to_owned()), "PUNCTUAL_TOKEN or --token".to_owned()),
            (None, Some(file)) => (Some(read_token(file)?), file.display().to_string()),
            (None, None) => (data_dir.token()?, data_dir.token_file().display().to_string()),
        };
        Ok(Connection { server, is_named, token, token_origin, data_dir, tls })
    }

    fn tls(&self, settings: &ClientSettings, around: &Surroundings) -> Result<ClientTls, CliError> {
        let origin = |key: &str| around.origin(&self.client, key);
        let read = |key: &str, path: &Option<PathBuf>| -> Result<Option<Vec<u8>>, CliError> {
            let Some(path) = path else { return Ok(None) };
            let unreadable = |error| wrong(&format!("{} {}", origin(key), path.display()), &error);
            std::fs::read(path).map(Some).map_err(unreadable)
        };
        let ca = read("client.tls_ca", &settings.tls_ca)?;
        let certificate = read("client.tls_client_cert", &settings.tls_client_cert)?;
        let key = read("client.tls_client_key", &settings.tls_client_key)?;
        let identity = match (&certificate, &key) {
            (Some(certificate_pem), Some(key_pem)) => Some(Identity { certificate_pem, key_pem }),
            (None, None) => None,
            (Some(_), None) => {
                let key = "client.tls_client_cert";
                return Err(wrong(&origin(key), &"needs client.tls_client_key as well"));
            }
            (None, Some(_)) => {
                let key = "client.tls_client_key";
                return Err(wrong(&origin(key), &"needs client.tls_client_cert as well"));
            }
        };
        if let Some(Ok(Some(exposed))) = settings.tls_client_key.as_deref().map(exposure) {
            tell(&format!("warning: {exposed}"));
        }
        ClientTls::new(ca.as_deref(), identity).map_err(|error| {
            let (key, path) = match error {
                ClientTlsError::Authority(_) => ("client.tls_ca", &settings.tls_ca),
                ClientTlsError::Certificate(_) => ("client.tls_client_cert", &settings.tls_client_cert),
                ClientTlsError::Key(_) => ("client.tls_client_key", &settings.tls_client_key),
            };
            let path = path.as_deref().unwrap_or(Path::new(""));
            wrong(&format!("{} {}", origin(key), path.display()), &error)
        })
    }
}

fn wrong(place: &str, problem: &dyn std::fmt::Display) -> CliError {
    CliError { exit: Exit::Misunderstood, message: format!("{place}: {problem}") }
}

fn read_token(file: &Path) -> Result<String, CliError> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| CliError::not_found(format!("cannot read the token file {shown}: {error}")))?;
    if let Ok(Some(exposed)) = exposure(file) {
        tell(&format!("warning: {exposed}"));
    }
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CliError::not_found(format!(
            "the token file {shown} must contain a single line with a token"
        )));
    }
    Ok(token.to_owned())
}
