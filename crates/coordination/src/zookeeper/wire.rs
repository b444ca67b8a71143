//! The records of ZooKeeper's protocol that this adapter uses, in ZooKeeper's encoding (jute): big-endian
//! numbers, and texts, bytes and lists after their length.

use super::client::Error;

pub const CREATE: i32 = 15;
pub const DELETE: i32 = 2;
pub const GET_DATA: i32 = 4;
pub const SET_DATA: i32 = 5;
pub const GET_CHILDREN: i32 = 8;
pub const SYNC: i32 = 9;
pub const PING: i32 = 11;
pub const AUTH: i32 = 100;
pub const CLOSE: i32 = -11;

/// The numbers of requests that are not counted.
pub const PING_XID: i32 = -2;
pub const AUTH_XID: i32 = -4;
/// The number of a notification, which belongs to no request.
pub const NOTIFICATION_XID: i32 = -1;

/// Maximum bytes of a frame. ZooKeeper itself rejects frames over 1 MiB.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// A record to send, after room for its length.
pub struct RecordWriter(Vec<u8>);

impl RecordWriter {
    pub fn new() -> Self {
        RecordWriter(vec![0; 4])
    }

    pub fn request(xid: i32, operation: i32) -> Self {
        RecordWriter::new().int(xid).int(operation)
    }

    pub fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn flag(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    /// A text, or bytes.
    pub fn bytes(self, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let mut written = self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        written.0.extend(value);
        written
    }

    /// Bytes of further fields.
    pub fn fields(mut self, fields: &[u8]) -> Self {
        self.0.extend(fields);
        self
    }

    /// The frame.
    pub fn frame(mut self) -> Vec<u8> {
        let length = i32::try_from(self.0.len() - 4).unwrap_or(i32::MAX);
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }

    /// The fields alone.
    pub fn into_fields(mut self) -> Vec<u8> {
        self.0.split_off(4)
    }
}

/// The next frame that was received completely.
pub fn take_frame(received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
    let Some(head) = received.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*head)).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let end = 4 + length.ok_or(Error::Malformed("the length of a frame"))?;
    if received.len() < end {
        return Ok(None);
    }
    let rest = received.split_off(end);
    Ok(Some(std::mem::replace(received, rest).split_off(4)))
}

/// Reads the fields of a record.
pub struct RecordReader<'a>(pub &'a [u8]);

impl<'a> RecordReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Malformed("the end of a record"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn int(&mut self) -> Result<i32, Error> {
        Ok(self.take(4)?.iter().fold(0, |value, byte| (value << 8) | i32::from(*byte)))
    }

    pub fn long(&mut self) -> Result<i64, Error> {
        Ok(self.take(8)?.iter().fold(0, |value, byte| (value << 8) | i64::from(*byte)))
    }

    /// Empty if there are none: ZooKeeper writes the length -1.
    pub fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        let length = usize::try_from(self.int()?).unwrap_or(0);
        self.take(length).map(<[u8]>::to_vec)
    }

    pub fn text(&mut self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|_| Error::Malformed("a text"))
    }

    pub fn texts(&mut self) -> Result<Vec<String>, Error> {
        let count = self.int()?;
        (0..count).map(|_| self.text()).collect()
    }

    pub fn stat(&mut self) -> Result<NodeStat, Error> {
        let czxid = self.long()?;
        let [_mzxid, _ctime, _mtime] = [self.long()?, self.long()?, self.long()?];
        let version = self.int()?;
        let [_cversion, _aversion] = [self.int()?, self.int()?];
        let ephemeral_owner = self.long()?;
        Ok(NodeStat { czxid, version, ephemeral_owner })
    }
}

/// What ZooKeeper knows about a node besides its data; the rest is not used.
#[derive(Debug, Clone, Copy)]
pub struct NodeStat {
    /// The number of the transaction that created it.
    pub czxid: i64,
    /// How often its data was changed.
    pub version: i32,
    /// The session that it belongs to; 0 for a persistent one.
    pub ephemeral_owner: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_parsed_when_they_are_complete() {
        let mut received = RecordWriter::request(7, SYNC).bytes("/a").frame();
        received.extend([0, 0]);
        let frame = take_frame(&mut received).unwrap().unwrap();
        let mut fields = RecordReader(&frame);
        assert_eq!(
            (fields.int().unwrap(), fields.int().unwrap(), fields.text().unwrap()),
            (7, SYNC, "/a".into())
        );
        assert_eq!((take_frame(&mut received).unwrap(), received.as_slice()), (None, &[0, 0][..]));
        assert!(fields.int().is_err(), "nothing is left");
    }

    #[test]
    fn numbers_keep_their_sign_and_bytes_may_be_missing() {
        let fields = RecordWriter::new().long(-5).int(-1).int(2).bytes("a").bytes("b").into_fields();
        let mut fields = RecordReader(&fields);
        assert_eq!((fields.long().unwrap(), fields.bytes().unwrap()), (-5, vec![]));
        assert_eq!(fields.texts().unwrap(), ["a", "b"]);
    }

    #[test]
    fn bytes_of_another_service_are_not_a_frame() {
        assert!(take_frame(&mut b"HTTP/1.1 400 Bad Request".to_vec()).is_err());
    }
}
