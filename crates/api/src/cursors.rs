//! Cursors: positions in lists and streams, as clients bring them back.
//!
//! A position is that of the last row which was looked at. For a caller with a limited scope, this can be a row that
//! does not exist for the caller. Its cursors are therefore encrypted, with a key that all nodes of the store share.

use crate::Api;
use crate::auth::Call;
use crate::error::ApiError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use tokio::sync::OnceCell;

const KEY_BYTES: usize = 32;
/// Positions are filled up to a multiple of this length, so that the length does not tell how large a number is.
const BLOCK_BYTES: usize = 32;

/// The key of the store, once it was needed.
#[derive(Clone, Default)]
pub struct CursorKey(Arc<OnceCell<Arc<LessSafeKey>>>);

impl CursorKey {
    async fn get(&self, api: &Api) -> Result<Arc<LessSafeKey>, ApiError> {
        let read = async || key_of(&api.access.cursor_key(random()?).await?);
        self.0.get_or_try_init(read).await.cloned()
    }
}

/// Writes the cursors of one caller.
pub struct CursorWriter(Option<Arc<LessSafeKey>>);

impl CursorWriter {
    /// A cursor of this list.
    pub fn write(&self, list: &str, place: impl Display) -> Result<String, ApiError> {
        let place = place.to_string();
        match &self.0 {
            None => Ok(format!("{list}~{place}")),
            Some(key) => sealed(key, list, &place).map(|sealed| format!("{list}.{sealed}")),
        }
    }

    /// Whether the caller must not learn where other rows are.
    pub fn is_sealing(&self) -> bool {
        self.0.is_some()
    }
}

impl Call {
    pub async fn cursors(&self) -> Result<CursorWriter, ApiError> {
        if self.cases.caller().grant.scope.is_everything() {
            return Ok(CursorWriter(None));
        }
        Ok(CursorWriter(Some(self.api.cursor_key.get(&self.api).await?)))
    }

    /// The cursor for the next page of this list.
    pub async fn next_cursor(
        &self,
        list: &str,
        place: Option<impl Display>,
    ) -> Result<Option<String>, ApiError> {
        match place {
            None => Ok(None),
            Some(place) => self.cursors().await?.write(list, place).map(Some),
        }
    }
}

/// The cursor in its readable form. A text that is no encrypted cursor of this store stays as it is.
pub async fn opened(api: &Api, text: String) -> Result<String, ApiError> {
    let parts = text.split_once('.').filter(|(list, _)| !list.contains('~'));
    let Some((list, sealed)) = parts.and_then(|(list, text)| Some((list, BASE64.decode(text).ok()?))) else {
        return Ok(text);
    };
    let key = api.cursor_key.get(api).await?;
    let place = unsealed(&key, list, sealed);
    Ok(place.map(|place| format!("{list}~{place}")).unwrap_or(text))
}

/// The position in a readable cursor of this list.
pub fn place_in<T: FromStr>(list: &str, cursor: &str) -> Option<T> {
    let (made_by, place) = cursor.split_once('~')?;
    if made_by == list { place.parse().ok() } else { None }
}

fn random<const N: usize>() -> Result<[u8; N], ApiError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| ApiError::Internal(format!("cannot read randomness: {error}")))?;
    Ok(bytes)
}

fn key_of(bytes: &[u8; KEY_BYTES]) -> Result<Arc<LessSafeKey>, ApiError> {
    let key = UnboundKey::new(&AES_256_GCM, bytes);
    let key = key.map_err(|_| ApiError::Internal("the key of cursors is invalid".to_owned()))?;
    Ok(Arc::new(LessSafeKey::new(key)))
}

/// The list belongs to what is authenticated: a cursor of another list is refused.
fn sealed(key: &LessSafeKey, list: &str, place: &str) -> Result<String, ApiError> {
    let nonce: [u8; NONCE_LEN] = random()?;
    let mut bytes = place.as_bytes().to_vec();
    bytes.resize(place.len().next_multiple_of(BLOCK_BYTES), 0);
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(list), &mut bytes)
        .map_err(|_| ApiError::Internal("a cursor cannot be encrypted".to_owned()))?;
    Ok(BASE64.encode([nonce.as_slice(), &bytes].concat()))
}

fn unsealed(key: &LessSafeKey, list: &str, mut bytes: Vec<u8>) -> Option<String> {
    let (nonce, place) = bytes.split_at_mut_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let place = key.open_in_place(nonce, Aad::from(list), place).ok()?;
    Some(std::str::from_utf8(place).ok()?.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Arc<LessSafeKey> {
        key_of(&[byte; KEY_BYTES]).unwrap()
    }

    fn read(key: &LessSafeKey, list: &str, sealed: &str) -> Option<String> {
        unsealed(key, list, BASE64.decode(sealed).unwrap())
    }

    #[test]
    fn a_sealed_place_is_read_with_its_key_and_its_list_alone() {
        let text = sealed(&key(1), "jobs", "0197e9a0-0000-7000-8000-000000000001").unwrap();
        assert!(!text.contains("0197e9a0"));
        assert_eq!(read(&key(1), "jobs", &text).unwrap(), "0197e9a0-0000-7000-8000-000000000001");
        assert_eq!(read(&key(1), "events", &text), None);
        assert_eq!(read(&key(2), "jobs", &text), None);
        assert_ne!(sealed(&key(1), "jobs", "7").unwrap(), sealed(&key(1), "jobs", "7").unwrap());
        assert_eq!(unsealed(&key(1), "jobs", vec![0; NONCE_LEN - 1]), None);
    }

    #[test]
    fn the_length_does_not_tell_how_many_digits_a_number_has() {
        let lengths = ["7", "1234567890123"].map(|place| sealed(&key(1), "events", place).unwrap().len());
        assert_eq!(lengths[0], lengths[1]);
    }

    #[test]
    fn a_readable_cursor_belongs_to_its_list() {
        let text = CursorWriter(None).write("queues", "a~b.c").unwrap();
        assert_eq!(text, "queues~a~b.c");
        assert_eq!(place_in::<String>("queues", &text).unwrap(), "a~b.c");
        assert_eq!(place_in::<String>("jobs", &text), None);
    }
}
