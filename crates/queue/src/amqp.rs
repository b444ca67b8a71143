//! RabbitMQ: a fanout exchange, and an exclusive queue for each process that ends with its connection.
//!
//! A queue that workers share would hand each hint to one of them, which may have no free slot for it. The exclusive
//! queues are bounded: the broker drops their oldest messages when a process does not read. Messages need no
//! acknowledgement; publishing waits for the broker's confirmation.

use crate::amqp_tls;
use crate::options::{BrokerOpenError, BrokerOptions, SettingNames};
use crate::transport::{BrokerSubscription, BrokerTransport};
use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ErrorKind, ExchangeKind};
use punctual_core::limits::READY_MESSAGES_MERGED_MAX;
use punctual_core::ports::ReadyQueueError;
use punctual_core::service_url::advice;
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The virtual host and the user of a RabbitMQ that was just installed.
const DEFAULT_VIRTUAL_HOST: &str = "/";
const DEFAULT_USER: &str = "guest";
/// The code of RabbitMQ for a rejected login, and for a missing permission.
const ACCESS_REFUSED: u16 = 403;

pub(crate) struct AmqpTransport {
    hosts: AmqpHosts,
    publisher: Mutex<Option<OpenChannel>>,
    exchange: ShortString,
}

/// The configured servers.
pub(crate) struct AmqpHosts {
    options: BrokerOptions,
    tls: Option<Arc<ClientConfig>>,
    /// The permissions that the user needs, for error messages.
    needs: String,
    /// For messages.
    pub address: String,
}

pub(crate) struct OpenChannel {
    pub channel: Channel,
    /// Keeps the channel open.
    pub connection: Connection,
}

struct AmqpSubscription {
    messages: Consumer,
    _open: OpenChannel,
    address: String,
}

impl AmqpTransport {
    pub fn new(options: &BrokerOptions) -> Result<Self, BrokerOpenError> {
        let exchange = format!("{}.ready", options.prefix);
        Ok(AmqpTransport {
            hosts: AmqpHosts::new(options, exchange.clone())?,
            exchange: exchange.into(),
            publisher: Mutex::default(),
        })
    }

    /// A channel, after the exchange exists.
    async fn open(&self) -> Result<OpenChannel, ReadyQueueError> {
        let open = self.hosts.open().await?;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let (exchange, none) = (self.exchange.clone(), FieldTable::default());
        let declared = open.channel.exchange_declare(exchange, ExchangeKind::Fanout, durable, none).await;
        declared.map_err(|error| self.hosts.failed(&error))?;
        Ok(open)
    }

    async fn consume(&self, channel: &Channel) -> lapin::Result<Consumer> {
        let own =
            QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let mut bounds = FieldTable::default();
        bounds.insert("x-max-length".into(), AMQPValue::LongInt(READY_MESSAGES_MERGED_MAX as i32));
        bounds.insert("x-overflow".into(), AMQPValue::LongString("drop-head".into()));
        let queue = channel.queue_declare("".into(), own, bounds).await?;
        let (name, exchange) = (queue.name().clone(), self.exchange.clone());
        let none = FieldTable::default();
        channel
            .queue_bind(name.clone(), exchange, "".into(), QueueBindOptions::default(), none.clone())
            .await?;
        let without_acknowledgement = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        channel.basic_consume(name, "".into(), without_acknowledgement, none).await
    }
}

impl AmqpHosts {
    pub fn new(options: &BrokerOptions, needs: String) -> Result<Self, BrokerOpenError> {
        let tls = options.tls.as_ref().map(punctual_tls::client_config).transpose()?.map(Arc::new);
        Ok(AmqpHosts { address: options.address(), options: options.clone(), tls, needs })
    }

    /// A channel to the first host that answers.
    pub async fn open(&self) -> Result<OpenChannel, ReadyQueueError> {
        let mut last = None;
        for number in 0..self.options.hosts.len() {
            match self.open_at(number).await {
                Ok(open) => return Ok(open),
                Err(error) => last = Some(self.failed(&error)),
            }
            // All hosts have the same users.
            if matches!(last, Some(ReadyQueueError::Rejected(_))) {
                break;
            }
        }
        Err(last.unwrap_or_else(|| {
            ReadyQueueError::Rejected(format!("{} names no host", self.options.names.url))
        }))
    }

    async fn open_at(&self, number: usize) -> lapin::Result<OpenChannel> {
        let properties = ConnectionProperties::default().with_connection_name("punctual".into());
        let uri = self.uri(number);
        let connection = match &self.tls {
            None => Connection::connect_uri(uri, properties).await?,
            Some(config) => {
                let runtime = amqp_tls::runtime(config, &uri.authority.host)?;
                Connection::connect_uri_with_runtime(uri, properties, runtime).await?
            }
        };
        let channel = connection.create_channel().await?;
        Ok(OpenChannel { channel, connection })
    }

    fn uri(&self, number: usize) -> AMQPUri {
        let host = &self.options.hosts[number];
        let (username, password) = match &self.options.login {
            Some(login) => (login.user.clone(), login.password.0.clone()),
            None => (DEFAULT_USER.to_owned(), DEFAULT_USER.to_owned()),
        };
        let virtual_host = Some(self.options.virtual_host.clone()).filter(|name| !name.is_empty());
        AMQPUri {
            // Its TLS, if any, is ours.
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo { username, password },
                host: host.host.trim_matches(['[', ']']).to_owned(),
                port: host.port,
            },
            vhost: virtual_host.unwrap_or_else(|| DEFAULT_VIRTUAL_HOST.to_owned()),
            query: lapin::uri::AMQPQueryString::default(),
        }
    }

    pub fn failed(&self, error: &lapin::Error) -> ReadyQueueError {
        let (address, why) = (&self.address, error.to_string());
        let (needs, SettingNames { url, password_file }) = (&self.needs, self.options.names);
        match error.kind() {
            ErrorKind::ProtocolError(refusal) if refusal.get_id() == ACCESS_REFUSED => {
                ReadyQueueError::Rejected(format!(
                    "RabbitMQ at {address} denies access: {why}; check user and password ({url}, {password_file}), and \
                     that the user may configure, write and read {needs}"
                ))
            }
            _ => ReadyQueueError::Unavailable(format!(
                "RabbitMQ at {address} cannot be used: {why}; {}",
                advice(&why, url)
            )),
        }
    }
}

#[async_trait]
impl BrokerTransport for AmqpTransport {
    async fn publish(&self, message: Vec<u8>) -> Result<(), ReadyQueueError> {
        let mut place = self.publisher.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken connection behind.
        let open = match place.take().filter(|open| open.channel.status().connected()) {
            Some(open) => open,
            None => {
                let open = self.open().await?;
                let confirmed = open.channel.confirm_select(ConfirmSelectOptions::default()).await;
                confirmed.map_err(|error| self.hosts.failed(&error))?;
                open
            }
        };
        let exchange = self.exchange.clone();
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let sent = open.channel.basic_publish(exchange, "".into(), options, &message, properties).await;
        let confirmation = sent.map_err(|error| self.hosts.failed(&error))?.await;
        if confirmation.map_err(|error| self.hosts.failed(&error))?.is_nack() {
            return Err(ReadyQueueError::Unavailable(format!(
                "RabbitMQ at {} did not accept a message",
                self.hosts.address
            )));
        }
        *place = Some(open);
        Ok(())
    }

    async fn subscribe(&self) -> Result<Box<dyn BrokerSubscription>, ReadyQueueError> {
        let open = self.open().await?;
        let messages = self.consume(&open.channel).await.map_err(|error| self.hosts.failed(&error))?;
        Ok(Box::new(AmqpSubscription { messages, _open: open, address: self.hosts.address.clone() }))
    }
}

#[async_trait]
impl BrokerSubscription for AmqpSubscription {
    async fn next(&mut self) -> Result<Vec<u8>, ReadyQueueError> {
        let ended = |why: String| {
            ReadyQueueError::Unavailable(format!("RabbitMQ at {} has ended the queue: {why}", self.address))
        };
        match self.messages.next().await {
            Some(Ok(delivery)) => Ok(delivery.data),
            Some(Err(error)) => Err(ended(error.to_string())),
            None => Err(ended("it was deleted, or the connection was closed".to_owned())),
        }
    }
}
