//! NATS: one subject of its core protocol, without JetStream. A stream would keep hints that are useless once a
//! process has scanned the database, which it does after each connection.
//!
//! The client would reconnect by itself and hide that it has. Here the watchdog decides: a connection that is lost is
//! replaced, so that its process knows when hints were missing.

use crate::options::{BrokerOpenError, BrokerOptions, SettingNames};
use crate::transport::{BrokerSubscription, BrokerTransport};
use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Subscriber};
use async_trait::async_trait;
use futures_util::StreamExt;
use punctual_core::causes::in_full;
use punctual_core::limits::BROKER_ANSWER_MAX;
use punctual_core::ports::ReadyQueueError;
use punctual_core::service_url::{Login, advice};
use rustls::ClientConfig;
use std::error::Error;
use tokio::sync::Mutex;

pub(crate) struct NatsTransport {
    servers: NatsServers,
    publisher: Mutex<Option<Client>>,
    subject: String,
}

/// The configured servers.
pub(crate) struct NatsServers {
    servers: Vec<String>,
    login: Option<Login>,
    tls: Option<ClientConfig>,
    /// For messages.
    pub address: String,
    names: SettingNames,
}

struct NatsSubscription {
    /// Keeps the connection open.
    client: Client,
    messages: Subscriber,
    address: String,
}

impl NatsTransport {
    pub fn new(options: &BrokerOptions) -> Result<Self, BrokerOpenError> {
        Ok(NatsTransport {
            servers: NatsServers::new(options)?,
            publisher: Mutex::default(),
            // Dots separate the parts of a subject.
            subject: format!("{}.ready", options.prefix.replace('.', "_").replace('/', ".")),
        })
    }
}

impl NatsServers {
    pub fn new(options: &BrokerOptions) -> Result<Self, BrokerOpenError> {
        let tls = options.tls.as_ref().map(punctual_tls::client_config).transpose()?;
        let scheme = if tls.is_some() { "tls" } else { "nats" };
        Ok(NatsServers {
            servers: options.hosts.iter().map(|host| format!("{scheme}://{host}")).collect(),
            login: options.login.clone(),
            tls,
            address: options.address(),
            names: options.names,
        })
    }

    pub async fn connect(&self) -> Result<Client, ReadyQueueError> {
        let mut options = ConnectOptions::new().name("punctual").connection_timeout(BROKER_ANSWER_MAX);
        if let Some(Login { user, password }) = &self.login {
            options = match (user.is_empty(), password.0.is_empty()) {
                (false, _) => options.user_and_password(user.clone(), password.0.clone()),
                (true, false) => options.token(password.0.clone()),
                (true, true) => options,
            };
        }
        if let Some(tls) = &self.tls {
            options = options.require_tls(true).tls_client_config(tls.clone());
        }
        options.connect(self.servers.clone()).await.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                ReadyQueueError::Rejected(format!(
                    "NATS at {} rejects the login: check user and password, or the token ({}, {})",
                    self.address, self.names.url, self.names.password_file
                ))
            }
            _ => self.failed(&error),
        })
    }

    pub fn failed(&self, error: &(dyn Error + 'static)) -> ReadyQueueError {
        let why = in_full(error);
        ReadyQueueError::Unavailable(format!(
            "NATS at {} cannot be used: {why}; {}",
            self.address,
            advice(&why, self.names.url)
        ))
    }
}

#[async_trait]
impl BrokerTransport for NatsTransport {
    async fn publish(&self, message: Vec<u8>) -> Result<(), ReadyQueueError> {
        let mut place = self.publisher.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken connection behind.
        let client = match place.take().filter(|client| client.connection_state() == State::Connected) {
            Some(client) => client,
            None => self.servers.connect().await?,
        };
        client
            .publish(self.subject.clone(), message.into())
            .await
            .map_err(|error| self.servers.failed(&error))?;
        client.flush().await.map_err(|error| self.servers.failed(&error))?;
        *place = Some(client);
        Ok(())
    }

    async fn subscribe(&self) -> Result<Box<dyn BrokerSubscription>, ReadyQueueError> {
        let client = self.servers.connect().await?;
        let messages =
            client.subscribe(self.subject.clone()).await.map_err(|error| self.servers.failed(&error))?;
        client.flush().await.map_err(|error| self.servers.failed(&error))?;
        Ok(Box::new(NatsSubscription { client, messages, address: self.servers.address.clone() }))
    }
}

#[async_trait]
impl BrokerSubscription for NatsSubscription {
    async fn next(&mut self) -> Result<Vec<u8>, ReadyQueueError> {
        match self.messages.next().await {
            Some(message) => Ok(message.payload.to_vec()),
            None => Err(ReadyQueueError::Unavailable(format!(
                "NATS at {} has closed the subscription ({})",
                self.address,
                self.client.connection_state()
            ))),
        }
    }
}
