//! Redis and Valkey: one publish/subscribe channel. Redis keeps no messages, so nothing grows and nothing has to be
//! deleted; `FLUSHALL` does not touch channels.
//!
//! If several hosts are configured, a primary and its replicas, the primary is used: a replica does not pass messages
//! on to the others. Sentinels say which server is the primary. In a cluster, every node passes messages on.

use crate::options::{BrokerOpenError, BrokerOptions, SettingNames};
use crate::transport::{BrokerSubscription, BrokerTransport};
use async_trait::async_trait;
use futures_util::StreamExt;
use punctual_core::limits::BROKER_ANSWER_MAX;
use punctual_core::ports::ReadyQueueError;
use punctual_core::service_url::{ClientCertificate, HostAndPort, Login, Tls, advice};
use punctual_tls::{TlsFileError, pem_file};
use redis::aio::{MultiplexedConnection, PubSubStream};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};
use tokio::sync::Mutex;

pub(crate) struct RedisTransport {
    hosts: RedisHosts,
    publisher: Mutex<Option<MultiplexedConnection>>,
    channel: String,
}

/// The configured servers, of which the primary is used, or the sentinels that know it.
pub(crate) struct RedisHosts {
    /// One for each host.
    clients: Vec<Client>,
    options: BrokerOptions,
    certificates: Option<TlsCertificates>,
    /// For messages.
    address: String,
    names: SettingNames,
    /// The permissions that the user needs, for error messages.
    needs: String,
}

struct RedisSubscription {
    messages: PubSubStream,
    address: String,
}

impl RedisTransport {
    pub fn new(options: &BrokerOptions) -> Result<Self, BrokerOpenError> {
        let channel = format!("{}:ready", options.prefix);
        let needs = format!("PUBLISH and SUBSCRIBE on the channel {channel}");
        Ok(RedisTransport { hosts: RedisHosts::new(options, needs)?, publisher: Mutex::default(), channel })
    }
}

impl RedisHosts {
    pub fn new(options: &BrokerOptions, needs: String) -> Result<Self, BrokerOpenError> {
        let certificates = options.tls.as_ref().map(certificates).transpose()?;
        // Most sentinels have no users; those that do are asked again.
        let login = options.login.as_ref().filter(|_| options.sentinel.is_none());
        let clients = options.hosts.iter().map(|host| client(host, login, certificates.clone()));
        Ok(RedisHosts {
            clients: clients.collect::<Result<_, _>>()?,
            options: options.clone(),
            certificates,
            address: options.address(),
            names: options.names,
            needs,
        })
    }

    /// The first host that is a primary, with a connection to it.
    pub async fn primary(&self) -> Result<(Client, MultiplexedConnection), ReadyQueueError> {
        if let Some(name) = &self.options.sentinel {
            let primary = self.named_by_sentinels(name).await?;
            return self.primary_among(std::slice::from_ref(&primary)).await;
        }
        self.primary_among(&self.clients).await
    }

    /// Which of these is a primary. A single one is used as it is, unless a sentinel has named it: then another one
    /// becomes the primary at this moment.
    async fn primary_among(
        &self,
        clients: &[Client],
    ) -> Result<(Client, MultiplexedConnection), ReadyQueueError> {
        let is_trusted = clients.len() == 1 && self.options.sentinel.is_none();
        let mut last = ReadyQueueError::Unavailable(format!(
            "no Redis at {} is a primary: name the primary in {}, alone or beside its replicas, or wait for the end of a \
             failover",
            self.address, self.names.url
        ));
        for client in clients {
            match self.connect(client).await {
                Ok(mut connection) => {
                    if is_trusted || !is_replica(&mut connection).await {
                        return Ok((client.clone(), connection));
                    }
                }
                Err(error) => last = self.said(&error),
            }
        }
        Err(last)
    }

    /// The primary with this name, from the first sentinel that answers.
    async fn named_by_sentinels(&self, name: &str) -> Result<Client, ReadyQueueError> {
        let mut last = None;
        for (host, sentinel) in self.options.hosts.iter().zip(&self.clients) {
            let mut answer = self.ask_sentinel(sentinel, name).await;
            if answer.as_ref().is_err_and(|error| error.code() == Some("NOAUTH")) {
                let with_login = self.client_of(host.clone())?;
                answer = self.ask_sentinel(&with_login, name).await;
            }
            match answer {
                Ok(Some((host, port))) => return self.client_of(HostAndPort { host, port }),
                Ok(None) => {
                    last = Some(ReadyQueueError::Rejected(format!(
                        "the Redis sentinel at {host} knows no primary {name}: check ?sentinel= in {}",
                        self.names.url
                    )));
                }
                Err(error) => last = Some(self.said(&error)),
            }
        }
        Err(last.unwrap_or_else(|| ReadyQueueError::Rejected(format!("{} names no host", self.names.url))))
    }

    async fn ask_sentinel(&self, sentinel: &Client, name: &str) -> RedisResult<Option<(String, u16)>> {
        let mut connection = self.connect(sentinel).await?;
        redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).query_async(&mut connection).await
    }

    /// A connection to the node that a cluster has named, as `HOST:PORT`.
    pub async fn node(&self, address: &str) -> Result<MultiplexedConnection, ReadyQueueError> {
        let place = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = place else {
            return Err(ReadyQueueError::Unavailable(format!(
                "the Redis cluster at {} names a node without a port: {address}",
                self.address
            )));
        };
        let client = self.client_of(HostAndPort { host: host.to_owned(), port })?;
        self.connect(&client).await.map_err(|error| self.said(&error))
    }

    fn client_of(&self, host: HostAndPort) -> Result<Client, ReadyQueueError> {
        client(&host, self.options.login.as_ref(), self.certificates.clone())
            .map_err(|error| ReadyQueueError::Unavailable(error.to_string()))
    }

    async fn connect(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(BROKER_ANSWER_MAX))
            .set_response_timeout(Some(BROKER_ANSWER_MAX));
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    pub fn said(&self, error: &RedisError) -> ReadyQueueError {
        let (address, needs, SettingNames { url, password_file }) = (&self.address, &self.needs, self.names);
        if error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("WRONGPASS") {
            return ReadyQueueError::Rejected(format!(
                "Redis at {address} rejects the login: check user and password ({url}, {password_file})"
            ));
        }
        match error.code() {
            Some("NOAUTH") => ReadyQueueError::Rejected(format!(
                "Redis at {address} requires a password: write {url} as redis://USER@HOST, or redis://@HOST if there \
                 are no users, and name a file with the password in {password_file}"
            )),
            Some("NOPERM") => ReadyQueueError::Rejected(format!(
                "Redis at {address} returned: {error}; allow the user {needs}"
            )),
            _ => {
                let why = error.to_string();
                ReadyQueueError::Unavailable(format!(
                    "Redis at {address} cannot be used: {why}; {}",
                    advice(&why, url)
                ))
            }
        }
    }
}

/// A server that does not report its role counts as a primary.
async fn is_replica(connection: &mut MultiplexedConnection) -> bool {
    let role: Result<Vec<Value>, RedisError> = redis::cmd("ROLE").query_async(connection).await;
    let is_slave = |word: &Value| matches!(word, Value::BulkString(bytes) if bytes == b"slave");
    role.is_ok_and(|role| role.first().is_some_and(is_slave))
}

#[async_trait]
impl BrokerTransport for RedisTransport {
    async fn publish(&self, message: Vec<u8>) -> Result<(), ReadyQueueError> {
        let mut place = self.publisher.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken connection behind.
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.hosts.primary().await?.1,
        };
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channel).arg(message);
        let sent: Result<i64, RedisError> = publish.query_async(&mut connection).await;
        sent.map_err(|error| self.hosts.said(&error))?;
        *place = Some(connection);
        Ok(())
    }

    async fn subscribe(&self) -> Result<Box<dyn BrokerSubscription>, ReadyQueueError> {
        // The other connection may be to a server that is no longer the primary.
        self.publisher.lock().await.take();
        let (client, _) = self.hosts.primary().await?;
        let mut pubsub = client.get_async_pubsub().await.map_err(|error| self.hosts.said(&error))?;
        pubsub.subscribe(&self.channel).await.map_err(|error| self.hosts.said(&error))?;
        let messages = pubsub.into_on_message();
        Ok(Box::new(RedisSubscription { messages, address: self.hosts.address.clone() }))
    }
}

#[async_trait]
impl BrokerSubscription for RedisSubscription {
    async fn next(&mut self) -> Result<Vec<u8>, ReadyQueueError> {
        let message = self.messages.next().await.ok_or_else(|| {
            ReadyQueueError::Unavailable(format!("Redis at {} has closed the connection", self.address))
        })?;
        Ok(message.get_payload_bytes().to_vec())
    }
}

fn client(
    host: &HostAndPort,
    login: Option<&Login>,
    tls: Option<TlsCertificates>,
) -> Result<Client, BrokerOpenError> {
    let (host, port) = (host.host.trim_matches(['[', ']']).to_owned(), host.port);
    let address = match tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let mut settings = RedisConnectionInfo::default();
    // An empty login is written as `redis://@host`, for a password that comes from another source.
    if let Some(given) = login.filter(|given| !given.password.0.is_empty()) {
        settings = settings.set_password(&given.password.0);
        if !given.user.is_empty() {
            settings = settings.set_username(&given.user);
        }
    }
    let wrong =
        |error: RedisError| BrokerOpenError::Options(format!("Redis cannot be used with this URL: {error}"));
    let info = address.into_connection_info().map_err(wrong)?.set_redis_settings(settings);
    match tls {
        None => Client::open(info).map_err(wrong),
        Some(certificates) => Client::build_with_tls(info, certificates).map_err(wrong),
    }
}

fn certificates(tls: &Tls) -> Result<TlsCertificates, BrokerOpenError> {
    let identity = |ClientCertificate { certificate, key }: &ClientCertificate| {
        Ok::<_, TlsFileError>(ClientTlsConfig {
            client_cert: pem_file(certificate)?,
            client_key: pem_file(key)?,
        })
    };
    Ok(TlsCertificates {
        client_tls: tls.identity.as_ref().map(identity).transpose()?,
        root_cert: tls.ca.as_deref().map(pem_file).transpose()?,
    })
}
