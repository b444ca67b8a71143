//! The messages of ready queues: `punctual-ready/1 SIGNATURE BODY`. The reference page describes them.
//!
//! The signature is an HMAC-SHA-256 with a key of the cluster, over everything but itself. A message holds names of
//! queues and job types and nothing else of a job.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use punctual_core::limits::READY_MESSAGE_BYTES_MAX;
use punctual_core::ports::{Lane, ReadyHint};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The format and its version.
const FORMAT: &str = "punctual-ready/1";
/// Separates this use of the cluster's key from all others.
const KEY_PURPOSE: &[u8] = b"punctual ready queue messages";

/// Signs messages, and checks signatures.
pub(crate) struct MessageCodec {
    key: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReadyMessage {
    /// The process that sent it: random text, new at each start.
    pub from: String,
    /// The number of the message among those of its sender.
    pub number: u64,
    pub content: ReadyContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReadyContent {
    /// There is work in these lanes.
    Lanes(Vec<HintedLane>),
    /// There may be work in any lane.
    AnyLane,
    /// From a process to itself, to test whether the broker delivers.
    Ping,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HintedLane {
    queue: String,
    job_type: String,
}

impl ReadyContent {
    pub fn of(hint: ReadyHint) -> Self {
        match hint {
            ReadyHint::Lanes(lanes) => ReadyContent::Lanes(
                lanes
                    .iter()
                    .map(|lane| HintedLane {
                        queue: lane.queue().to_owned(),
                        job_type: lane.job_type().to_owned(),
                    })
                    .collect(),
            ),
            ReadyHint::AnyLane => ReadyContent::AnyLane,
        }
    }

    /// `None` for a ping.
    pub fn hint(self) -> Option<ReadyHint> {
        match self {
            ReadyContent::Lanes(lanes) => Some(ReadyHint::Lanes(
                lanes.into_iter().map(|lane| Lane::new(lane.queue, lane.job_type)).collect(),
            )),
            ReadyContent::AnyLane => Some(ReadyHint::AnyLane),
            ReadyContent::Ping => None,
        }
    }
}

impl MessageCodec {
    /// With the key that all processes of the cluster share.
    pub fn new(cluster_key: &[u8; 32]) -> Self {
        let mut mac = hmac(cluster_key);
        mac.update(KEY_PURPOSE);
        MessageCodec { key: mac.finalize().into_bytes().into() }
    }

    /// A message that would be too long says "any lane" instead.
    pub fn write(&self, mut message: ReadyMessage) -> Vec<u8> {
        let mut bytes = self.signed(&message);
        if bytes.len() > READY_MESSAGE_BYTES_MAX {
            message.content = ReadyContent::AnyLane;
            bytes = self.signed(&message);
        }
        bytes
    }

    fn signed(&self, message: &ReadyMessage) -> Vec<u8> {
        let body = serde_json::to_string(message).unwrap_or_default();
        let signature = BASE64.encode(self.mac(body.as_bytes()).finalize().into_bytes());
        format!("{FORMAT} {signature} {body}").into_bytes()
    }

    /// `None` if no process of this cluster wrote it, or if it has another version.
    pub fn read(&self, bytes: &[u8]) -> Option<ReadyMessage> {
        if bytes.len() > READY_MESSAGE_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let rest = text.strip_prefix(FORMAT)?.strip_prefix(' ')?;
        let (signature, body) = rest.split_once(' ')?;
        let signature = BASE64.decode(signature).ok()?;
        self.mac(body.as_bytes()).verify_slice(&signature).ok()?;
        serde_json::from_str(body).ok()
    }

    fn mac(&self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = hmac(&self.key);
        mac.update(FORMAT.as_bytes());
        mac.update(b" ");
        mac.update(body);
        mac
    }
}

fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("any length is a key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: ReadyContent) -> ReadyMessage {
        ReadyMessage { from: "5f1c".to_owned(), number: 7, content }
    }

    fn lanes(count: usize) -> ReadyHint {
        let name = "n".repeat(100);
        ReadyHint::Lanes((0..count).map(|number| Lane::new(format!("{name}{number}"), "noop")).collect())
    }

    #[test]
    fn a_message_is_read_with_the_same_key_only() {
        let codec = MessageCodec::new(&[1; 32]);
        for content in [ReadyContent::of(lanes(2)), ReadyContent::AnyLane, ReadyContent::Ping] {
            let bytes = codec.write(message(content.clone()));
            assert_eq!(codec.read(&bytes), Some(message(content)));
            assert_eq!(MessageCodec::new(&[2; 32]).read(&bytes), None, "another cluster's key");
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(codec.read(&changed), None, "byte {at} was changed");
            }
        }
    }

    /// The reference page shows this message.
    #[test]
    fn the_format_stays() {
        let hint = ReadyHint::Lanes([Lane::new("default", "noop")].into());
        let bytes = MessageCodec::new(&[1; 32]).write(message(ReadyContent::of(hint)));
        let text = String::from_utf8(bytes).unwrap();
        let parts: Vec<&str> = text.splitn(3, ' ').collect();
        let body =
            r#"{"from":"5f1c","number":7,"content":{"lanes":[{"queue":"default","job_type":"noop"}]}}"#;
        assert_eq!((parts[0], parts[1].len(), parts[2]), ("punctual-ready/1", 43, body));
    }

    #[test]
    fn a_message_is_short() {
        let codec = MessageCodec::new(&[1; 32]);
        let bytes = codec.write(message(ReadyContent::of(lanes(1_000))));
        assert_eq!(codec.read(&bytes), Some(message(ReadyContent::AnyLane)));
        let mut long = codec.write(message(ReadyContent::Ping));
        long.resize(READY_MESSAGE_BYTES_MAX + 1, b' ');
        assert_eq!(codec.read(&long), None);
    }

    #[test]
    fn other_bytes_are_not_a_message() {
        let codec = MessageCodec::new(&[1; 32]);
        for bytes in [
            &b""[..],
            b"{}",
            b"punctual-ready/1",
            b"punctual-ready/1 x y",
            b"punctual-ready/2 x y",
            &[255; 40],
        ] {
            assert_eq!(codec.read(bytes), None);
        }
    }
}
