//! The location of a database on a server, and the resources to use: the same for all dialects.

use percent_encoding::percent_decode_str;
use punctual_core::limits;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

/// The location of the database and the resources to use. The URLs contain passwords and are never shown.
#[derive(Clone)]
pub struct ServerOptions<D> {
    /// `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=ca.pem`, or
    /// `mysql://user:password@host:port/database?ssl-mode=verify-identity&ssl-ca=ca.pem`. It may name several hosts,
    /// separated by commas.
    pub url: String,
    /// A standby or replica from which lists and views may be read.
    pub replica_url: Option<String>,
    /// Connections that read.
    pub readers: usize,
    /// Connections that write.
    pub writers: usize,
    /// How long opening a connection may take, including the handshake.
    pub connect_timeout: Duration,
    /// How long one statement may take before the database cancels it.
    pub statement_timeout: Duration,
    /// The time span of one partition of history and logs; retention drops whole partitions.
    pub partition_width: Duration,
    /// The limit on the total size of log lines in bytes; `None` for no limit. Beyond it the oldest are
    /// removed.
    pub log_bytes_max: Option<u64>,
    /// The seed of random pauses and shards, different in every process. PostgreSQL needs none.
    pub seed: u64,
    pub dialect: PhantomData<D>,
}

impl<D> ServerOptions<D> {
    pub fn new(url: impl Into<String>) -> Self {
        ServerOptions {
            url: url.into(),
            replica_url: None,
            readers: limits::DATABASE_READERS_DEFAULT,
            writers: limits::DATABASE_WRITERS_DEFAULT,
            connect_timeout: limits::DATABASE_CONNECT_TIMEOUT,
            statement_timeout: limits::DATABASE_STATEMENT_TIMEOUT,
            partition_width: limits::PARTITION_WIDTH,
            log_bytes_max: Some(limits::LOGS_BYTES_DEFAULT),
            seed: 0,
            dialect: PhantomData,
        }
    }
}

impl<D> fmt::Debug for ServerOptions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("readers", &self.readers)
            .field("writers", &self.writers)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("partition_width", &self.partition_width)
            .finish_non_exhaustive()
    }
}

/// The URL without the parameters that `take` accepts, given their names and values.
pub(crate) fn take_parameters<E>(
    url: &str,
    mut take: impl FnMut(&str, &str) -> Result<bool, E>,
) -> Result<String, E> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let is_taken = match pair.split_once('=') {
            Some((name, value)) => take(name, value)?,
            None => false,
        };
        if !is_taken {
            rest.push(pair);
        }
    }
    Ok(if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) })
}

/// A path from a URL; `None` if it is not UTF-8.
pub(crate) fn decoded(value: &str) -> Option<PathBuf> {
    let path = percent_decode_str(value).decode_utf8().ok()?;
    Some(PathBuf::from(path.into_owned()))
}
