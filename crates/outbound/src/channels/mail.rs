//! Mail over SMTP. The address of the server is resolved and checked here, and the connection goes to that address.

use super::{ALLOW_ADVICE, failed, template};
use crate::AddressGuard;
use crate::connect::passed;
use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use punctual_core::job::InvalidField;
use punctual_core::limits;
use punctual_core::notify::{Channel, MailTls, OutgoingMessage, default_title};
use punctual_core::ports::SendError;
use std::error::Error;
use std::net::SocketAddr;

const SUBJECT_CHARS_MAX: usize = 200;

pub(super) fn problems(channel: &Channel) -> Vec<InvalidField> {
    let fix = "must be an address such as ops@example.org or Ops <ops@example.org>";
    let from = channel.from.iter().filter(|from| from.parse::<Mailbox>().is_err());
    let from = from.map(|_| InvalidField::new("from", fix));
    let to = channel.to.iter().enumerate().filter(|(_, to)| to.parse::<Mailbox>().is_err());
    from.chain(to.map(|(place, _)| InvalidField::new(format!("to[{place}]"), fix))).collect()
}

pub(super) async fn send(
    message: &OutgoingMessage,
    guard: &AddressGuard,
    roots_pem: &[u8],
) -> Result<(), SendError> {
    let channel = &message.channel;
    let host = channel.host.as_deref().unwrap_or_default();
    let tls = channel.tls.unwrap_or(MailTls::StartTls);
    let port = channel.port.unwrap_or(match tls {
        MailTls::Tls => 465,
        MailTls::StartTls => 587,
        MailTls::None => 25,
    });
    let address = address_of(host, port, guard).await?;
    let parameters = || -> Result<TlsParameters, SendError> {
        let mut builder = TlsParameters::builder(host.to_owned());
        if !roots_pem.is_empty() {
            let roots = Certificate::from_pem(roots_pem).map_err(|error| failed(chained(&error)))?;
            builder = builder.add_root_certificate(roots);
        }
        builder.build_rustls().map_err(|error| failed(chained(&error)))
    };
    let tls = match tls {
        MailTls::StartTls => Tls::Required(parameters()?),
        MailTls::Tls => Tls::Wrapper(parameters()?),
        MailTls::None => Tls::None,
    };
    let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(address.ip().to_string())
        .port(port)
        .tls(tls)
        .timeout(Some(limits::DELIVERY_TIMEOUT));
    if let Some(user) = &channel.username {
        let password = channel.value("password").to_owned();
        transport = transport.credentials(Credentials::new(user.clone(), password));
    }
    let mail = mail(message)?;
    transport.build().send(mail).await.map_err(|error| failed(chained(&error)))?;
    Ok(())
}

fn mail(message: &OutgoingMessage) -> Result<Message, SendError> {
    let channel = &message.channel;
    let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|error| failed(format!("{text}: {error}")));
    let from = mailbox(channel.from.as_deref().unwrap_or_default())?;
    let domain = from.email.domain().to_owned();
    let title = default_title(&message.events, message.count);
    let subject: String = title.chars().take(SUBJECT_CHARS_MAX).collect();
    let mut mail = Message::builder()
        .from(from)
        .subject(format!("[punctual] {subject}"))
        // The same for a repeated message, so that mail programs can join them.
        .message_id(Some(format!("<{}@{domain}>", message.id)));
    for to in &channel.to {
        mail = mail.to(mailbox(to)?);
    }
    mail.body(template::text(message)).map_err(|error| failed(chained(&error)))
}

/// The address to connect to: one that the guard permits, unless the operator has allowed the host.
async fn address_of(host: &str, port: u16, guard: &AddressGuard) -> Result<SocketAddr, SendError> {
    let resolved = tokio::net::lookup_host((host, port)).await;
    let resolved: Vec<SocketAddr> =
        resolved.map_err(|error| failed(format!("{host} cannot be resolved: {error}")))?.collect();
    let resolved = if guard.allows_host(host, port) {
        resolved
    } else {
        passed(guard, resolved).map_err(|refused| failed(format!("{refused}{ALLOW_ADVICE}")))?
    };
    resolved.into_iter().next().ok_or_else(|| failed(format!("{host} has no address")))
}

fn chained(error: &(dyn Error + 'static)) -> String {
    super::chain(error)
}
