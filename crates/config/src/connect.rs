//! How commands find the server: by their arguments, else by a context, else by the data directory, else by the
//! default. The token of a data directory goes only through the socket in that directory: a port may belong to
//! another program by now, and another server must not have it.

use crate::contexts::{Contexts, ServerContext};
use crate::data_dir::{DataDir, DataDirArgs};
use crate::exit::{CliError, Exit};
use crate::layers::Source;
use crate::output::tell;
use crate::{ClientSettings, Flags, Surroundings, exposure};
use punctual_client::{Client, ClientTls, ClientTlsError, Identity, Problem, Span};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

/// The server's default address.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7070";
/// What every token of a server begins with.
const TOKEN_PREFIX: &str = "pt_";

#[derive(Debug, Clone, clap::Args)]
pub struct ConnectArgs {
    #[command(flatten)]
    client: Flags<ClientSettings>,
    /// Use the server and the token of this context; by default the current one, see `punctual context`
    #[arg(long, env = "PUNCTUAL_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// The API token; use a file or the variable instead, because other users of the machine can see command-line flags
    #[arg(long, env = "PUNCTUAL_TOKEN", hide_env_values = true, hide = true)]
    token: Option<String>,
    #[command(flatten)]
    data_dir: DataDirArgs,
}

/// What a command needs to connect to a server.
pub struct ServerConnect {
    pub server: String,
    /// The variable, file or context that names the server; `None` if a flag or the data directory does.
    pub server_origin: Option<String>,
    /// The server was given explicitly; otherwise it is the one of the data directory.
    pub is_named: bool,
    /// The context that names the server.
    pub context: Option<String>,
    /// `None` if no token was found.
    pub token: Option<String>,
    /// Where the token was found or searched.
    pub token_origin: String,
    pub data_dir: DataDir,
    pub tls: ClientTls,
    pub way: ConnectionPath,
    /// How long to repeat requests that the server asks to repeat later.
    pub retry_time: Duration,
}

/// How a command reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPath {
    Network,
    /// Through the socket in the data directory.
    Socket,
}

/// A context in use.
struct InUse {
    name: String,
    context: ServerContext,
    file: PathBuf,
}

impl ConnectArgs {
    pub fn client(&self) -> anyhow::Result<Client> {
        self.client_within(&self.surroundings()?)
    }

    pub fn client_within(&self, around: &Surroundings) -> anyhow::Result<Client> {
        self.connection_within(around)?.client()
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

    /// The files with secrets that this client may use.
    pub fn secret_files(&self, around: &Surroundings) -> Vec<PathBuf> {
        let contexts = Contexts::read().ok().map(|contexts| contexts.path().to_owned());
        around.secret_files(&self.client).into_iter().chain(contexts).collect()
    }

    pub fn connection_within(&self, around: &Surroundings) -> anyhow::Result<ServerConnect> {
        let data_dir = self.data_dir.within(around)?;
        let mut settings = around.read(&self.client)?;
        let in_use = self.context_within(around)?;
        if let Some(InUse { context, .. }) = &in_use {
            // The rest of the configuration file is about the server that it names.
            let or = |key: &str, given: Option<PathBuf>, stored: &Option<PathBuf>| match self
                .is_given(around, key)
            {
                true => given,
                false => stored.clone(),
            };
            settings.tls_ca = or("client.tls_ca", settings.tls_ca, &context.tls_ca);
            settings.tls_client_cert =
                or("client.tls_client_cert", settings.tls_client_cert, &context.tls_client_cert);
            settings.tls_client_key =
                or("client.tls_client_key", settings.tls_client_key, &context.tls_client_key);
            settings.token_file = or("client.token_file", settings.token_file, &context.token_file);
        }
        let tls = tls(&settings, |key| match &in_use {
            Some(in_use) if !self.is_given(around, key) => {
                format!("{}: {}", in_use.origin(), key.trim_start_matches("client."))
            }
            _ => around.origin(&self.client, key),
        })?;
        let named = match &in_use {
            Some(in_use) => Some(in_use.context.server.clone()),
            None => settings.server.as_ref().map(|server| server.0.clone()),
        };
        let server_origin = match (&in_use, self.source(around, "client.server")) {
            (Some(in_use), _) => Some(in_use.origin()),
            (None, source @ (Source::Variable { .. } | Source::File { .. })) => Some(source.to_string()),
            (None, _) => None,
        };
        let is_named = named.is_some();
        let announced = data_dir.address()?;
        // A file or a variable often ends with a newline, which is invalid in a header.
        let given = self.token.as_deref().map(str::trim).filter(|token| !token.is_empty());
        let is_given = given.is_some() || settings.token_file.is_some();
        let way = match &named {
            Some(_) if is_given || in_use.is_some() => ConnectionPath::Network,
            Some(server) if announced.as_deref().is_none_or(|address| !is_same(server, address)) => {
                ConnectionPath::Network
            }
            None if is_given && !data_dir.has_served() => ConnectionPath::Network,
            _ => ConnectionPath::Socket,
        };
        let (token, token_origin) = match (given, &in_use, &settings.token_file) {
            (Some(token), ..) => (Some(token.to_owned()), "PUNCTUAL_TOKEN or --token".to_owned()),
            (None, Some(in_use), None) => (in_use.context.token.clone(), in_use.origin()),
            (None, _, Some(file)) => (Some(read_token(file)?), file.display().to_string()),
            (None, None, None) => {
                let file = data_dir.token_file();
                let token = if way == ConnectionPath::Socket { data_dir.token()? } else { None };
                (token.map(|token| as_token(token, &file)).transpose()?, file.display().to_string())
            }
        };
        let server = match named {
            Some(server) => with_scheme(server, &settings),
            None => announced.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
        };
        Ok(ServerConnect {
            server,
            server_origin,
            is_named,
            context: in_use.map(|in_use| in_use.name),
            token,
            token_origin,
            data_dir,
            tls,
            way,
            retry_time: settings.retry_time.get(),
        })
    }

    /// The context to use. A server in a flag or a variable counts before any context; a server in the
    /// configuration file and a data directory that is named anywhere count before the current one.
    fn context_within(&self, around: &Surroundings) -> Result<Option<InUse>, CliError> {
        let named = self.context.as_deref().filter(|name| !name.is_empty());
        let source = self.source(around, "client.server");
        if let Source::Flag { .. } | Source::Variable { .. } = source {
            if let Some(name) = named {
                tell(&format!("note: {source} names the server, so the context {name} is not used"));
            }
            return Ok(None);
        }
        let is_elsewhere = source != Source::Default || self.data_dir.is_named(around);
        if named.is_none() && is_elsewhere {
            return Ok(None);
        }
        let contexts = Contexts::read()?;
        let Some(name) = named.or(contexts.current()) else { return Ok(None) };
        let context = contexts.get(name)?.clone();
        Ok(Some(InUse { name: name.to_owned(), context, file: contexts.path().to_owned() }))
    }

    fn source(&self, around: &Surroundings, key: &str) -> Source {
        let sources = around.sources(&self.client);
        let found = sources.into_iter().find(|(setting, ..)| setting.key == key);
        found.map_or(Source::Default, |(.., source)| source)
    }

    /// Whether a flag or a variable sets it.
    fn is_given(&self, around: &Surroundings, key: &str) -> bool {
        matches!(self.source(around, key), Source::Flag { .. } | Source::Variable { .. })
    }
}

impl InUse {
    fn origin(&self) -> String {
        format!("the context {} in {}", self.name, self.file.display())
    }
}

impl ServerConnect {
    /// A client that sends this token, without settings for people.
    pub fn open(&self, token: String) -> anyhow::Result<Client> {
        let client = match self.way {
            ConnectionPath::Network => Client::with_tls(&self.server, token, &self.tls)?,
            ConnectionPath::Socket => {
                let data_dir = self.data_dir.clone();
                Client::on_socket(&data_dir.socket()?, shown(&self.server), token)?
                    .with_socket_name(data_dir.socket_file().display().to_string())
                    // Also keeps the directory open, to which the path of the socket leads.
                    .with_guard(move || data_dir.must_be_trusted().map_err(|error| error.message))
            }
        };
        // A command of a job that submits others continues its trace.
        let variable = |name| std::env::var(name).unwrap_or_default();
        Ok(client.in_trace(&variable("TRACEPARENT"), &variable("TRACESTATE")))
    }

    pub fn client(self) -> anyhow::Result<Client> {
        let Some(token) = self.token.clone() else {
            let message = match (&self.context, self.way) {
                (Some(name), _) => {
                    let origin = &self.token_origin;
                    format!("no token: {origin} has none; `punctual login --context {name}` adds one")
                }
                (None, ConnectionPath::Network) => format!(
                    "no token for {}: a token in a data directory is only sent to the server of that directory; pass one with \
                     --token-file or PUNCTUAL_TOKEN, or store one with `punctual login --server {}`; leave --server out for the \
                     server of the data directory",
                    self.server, self.server
                ),
                (None, ConnectionPath::Socket) => format!(
                    "no token: {} does not exist; start `punctual serve` here, or pass a token with --token-file, \
                     PUNCTUAL_TOKEN or --data-dir; on a shared database the first server created it: copy its admin.token \
                     here, or pass a copy with --token-file or PUNCTUAL_TOKEN_FILE",
                    self.data_dir.token_file().display()
                ),
            };
            return Err(CliError::not_found(message).into());
        };
        let client = self
            .open(token)?
            .with_token_origin(self.token_origin)
            .with_retry_time(self.retry_time)
            .when_waiting(say_once(self.retry_time));
        Ok(match self.server_origin {
            Some(origin) => client.with_server_origin(origin),
            None => client,
        })
    }
}

/// A client for a context that is about to be stored, with this token.
pub fn client_of(context: &ServerContext, token: &str) -> anyhow::Result<Client> {
    let defaults = Surroundings { variables: Default::default(), file: None };
    let settings = ClientSettings {
        tls_ca: context.tls_ca.clone(),
        tls_client_cert: context.tls_client_cert.clone(),
        tls_client_key: context.tls_client_key.clone(),
        ..defaults.read(&Flags::default())?
    };
    let tls = tls(&settings, |key| format!("--{}", key.trim_start_matches("client.").replace('_', "-")))?;
    let server = with_scheme(context.server.clone(), &settings);
    Ok(Client::with_tls(&server, token, &tls)?)
}

/// An address as messages show it.
fn shown(address: &str) -> String {
    if address.contains("://") { address.to_owned() } else { format!("http://{address}") }
}

/// Whether two addresses name one server. The names of this machine for itself count as one: the token goes
/// through the socket in any case.
fn is_same(named: &str, announced: &str) -> bool {
    let [named, announced] = [named, announced].map(|address| {
        let address = address.split_once("://").map_or(address, |(_, rest)| rest).trim_end_matches('/');
        address.rsplit_once(':').map(|(host, port)| (host.to_ascii_lowercase(), port))
    });
    let (Some((host, port)), Some((other_host, other_port))) = (named, announced) else { return false };
    let is_here = |host: &str| {
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
    };
    port == other_port && (host == other_host || is_here(&host) && is_here(&other_host))
}

/// Certificates say that the connection is to be encrypted.
fn with_scheme(server: String, settings: &ClientSettings) -> String {
    if settings.names_certificates() && !server.contains("://") {
        format!("https://{server}")
    } else {
        server
    }
}

fn tls(settings: &ClientSettings, origin: impl Fn(&str) -> String) -> Result<ClientTls, CliError> {
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

/// Says at the first wait why the command waits, and for how long at most.
fn say_once(retry_time: Duration) -> impl Fn(&Problem, Duration) + Send + Sync {
    let once = Once::new();
    move |problem, pause| {
        once.call_once(|| {
            let wait = Duration::from_secs(problem.retry_after_secs.unwrap_or(pause.as_secs()).max(1));
            let [wait, limit] = [wait, retry_time].map(Span::from);
            tell(&format!(
                "note: {}; the server asks to wait {wait}, retrying for up to {limit}",
                problem.title
            ));
        });
    }
}

fn wrong(place: &str, problem: &dyn std::fmt::Display) -> CliError {
    CliError { exit: Exit::Misunderstood, message: format!("{place}: {problem}") }
}

/// The content of a file in a data directory, if it is a token. Whatever else is in the file must not be sent.
fn as_token(text: String, file: &Path) -> Result<String, CliError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if text.starts_with(TOKEN_PREFIX) && text.bytes().all(is_part) {
        return Ok(text);
    }
    Err(CliError {
        exit: Exit::Misunderstood,
        message: format!(
            "{} does not contain a token of Punctual, which begins with {TOKEN_PREFIX}: restore the file, or start the server \
             with --new-admin-token",
            file.display()
        ),
    })
}

/// The token in a file: one line.
pub fn read_token(file: &Path) -> Result<String, CliError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_is_taken_for_one() {
        let file = Path::new("data/admin.token");
        for token in ["pt_admin_0aZ", "pt_build-1.x_0"] {
            assert_eq!(as_token(token.to_owned(), file).unwrap(), token);
        }
        for other in ["hello", "root:x:0:0", "pt_admin_a\nb", "pt admin"] {
            let refused = as_token(other.to_owned(), file).unwrap_err().message;
            assert!(refused.starts_with("data/admin.token does not contain a token"), "{refused}");
            assert!(!refused.contains(other), "{refused}");
        }
    }

    #[test]
    fn a_server_is_known_by_host_and_port() {
        for (named, announced) in [
            ("127.0.0.1:7070", "127.0.0.1:7070"),
            ("http://127.0.0.1:7070/", "127.0.0.1:7070"),
            ("https://localhost:7070", "https://127.0.0.1:7070"),
            ("localhost:7070", "0.0.0.0:7070"),
            ("[::1]:7070", "[::]:7070"),
            ("10.0.0.5:7070", "10.0.0.5:7070"),
        ] {
            assert!(is_same(named, announced), "{named} {announced}");
        }
        for (named, announced) in [
            ("127.0.0.1:7071", "127.0.0.1:7070"),
            ("jobs.example.org:7070", "127.0.0.1:7070"),
            ("127.0.0.1.example.org:7070", "127.0.0.1:7070"),
            ("10.0.0.5:7070", "0.0.0.0:7070"),
            ("localhost", "127.0.0.1:7070"),
        ] {
            assert!(!is_same(named, announced), "{named} {announced}");
        }
    }
}
