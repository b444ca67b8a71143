//! Streams of server-sent events, and how a client continues after it lost its connection.

use crate::client::{Client, ClientError};
use reqwest::RequestBuilder;
use std::time::Duration;

/// How long a stream may be silent: the server sends a heartbeat every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Effectively no timeout: a stream has no time limit.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Bytes of one event. A larger one cannot come from the server.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One event as received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerEvent {
    pub kind: String,
    pub data: String,
}

/// An open stream of events.
#[derive(Debug)]
pub struct EventStream {
    response: reqwest::Response,
    server: String,
    reader: StreamReader,
    last_id: Option<String>,
}

impl EventStream {
    /// The next event; `None` when the server has ended the stream, or has been silent for too long.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>, ClientError> {
        loop {
            while let Some(read) = self.reader.next() {
                if let Some(id) = read.id {
                    self.last_id = Some(id);
                }
                if let Some(event) = read.event {
                    return Ok(Some(event));
                }
            }
            if self.reader.waiting() > EVENT_BYTES_MAX {
                return Err(ClientError::Unexpected("an event without an end".to_owned()));
            }
            match tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => self.reader.add(&bytes),
                Ok(Ok(None)) | Err(_) => return Ok(None),
                Ok(Err(source)) => {
                    return Err(ClientError::Unreachable { server: self.server.clone(), source });
                }
            }
        }
    }

    /// The id after which a new stream continues.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }
}

impl Client {
    /// Opens a stream, after the event with this id if there is one.
    pub(crate) async fn open_stream(
        &self,
        request: RequestBuilder,
        last_id: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let mut request = request.timeout(NO_TIMEOUT).header("accept", "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = self.answered(request).await?;
        let last_id = last_id.map(str::to_owned);
        Ok(EventStream {
            response,
            server: self.server().to_owned(),
            reader: StreamReader::default(),
            last_id,
        })
    }
}

/// Splits a stream of bytes into events.
#[derive(Debug, Default)]
struct StreamReader {
    bytes: Vec<u8>,
}

/// The lines between two blank lines.
struct Block {
    id: Option<String>,
    event: Option<ServerEvent>,
}

impl StreamReader {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn waiting(&self) -> usize {
        self.bytes.len()
    }

    fn next(&mut self) -> Option<Block> {
        let end = self.bytes.windows(2).position(|pair| pair == b"\n\n")?;
        let text = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        self.bytes.drain(..end + 2);
        let (mut id, mut kind, mut data) = (None, None, None::<String>);
        for line in text.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => id = Some(value.to_owned()),
                "event" => kind = Some(value.to_owned()),
                "data" => match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => data = Some(value.to_owned()),
                },
                // A comment, or a field of a later version.
                _ => {}
            }
        }
        let event = data.map(|data| ServerEvent { kind: kind.unwrap_or_else(|| "message".to_owned()), data });
        Some(Block { id, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_way_their_bytes_arrive() {
        let text = b"event: line\nid: a~1\ndata: {\"x\":1}\n\n: alive\n\nid: a~2\n\ndata: one\ndata: two\n\nevent: half";
        let mut reader = StreamReader::default();
        let mut seen = Vec::new();
        for byte in text {
            reader.add(&[*byte]);
            while let Some(block) = reader.next() {
                seen.push((block.id, block.event.map(|event| (event.kind, event.data))));
            }
        }
        let owned = |text: &str| text.to_owned();
        let event = |kind: &str, data: &str| Some((owned(kind), owned(data)));
        assert_eq!(
            seen,
            [
                (Some(owned("a~1")), event("line", "{\"x\":1}")),
                (None, None),
                (Some(owned("a~2")), None),
                (None, event("message", "one\ntwo")),
            ]
        );
    }
}
