//! Random secrets and ids of tokens and users.

use sha2::{Digest, Sha256};
use std::fmt::Write;

const SECRET_BYTES: usize = 32;
const ID_CHARS: usize = 12;
const ID_ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Bytes from here on are skipped, so that every character is equally likely.
const ID_BYTES_USED: usize = 256 - 256 % ID_ALPHABET.len();

/// A new secret of a token: 64 letters and digits.
pub fn new_secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::with_capacity(SECRET_BYTES * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// A new id of a token or user: 12 lower-case letters and digits.
pub fn new_id() -> Result<String, getrandom::Error> {
    let mut id = String::with_capacity(ID_CHARS);
    while id.len() < ID_CHARS {
        let mut bytes = [0; ID_CHARS];
        getrandom::fill(&mut bytes)?;
        let usable = bytes.into_iter().map(usize::from).filter(|byte| *byte < ID_BYTES_USED);
        id.extend(
            usable.take(ID_CHARS - id.len()).map(|byte| char::from(ID_ALPHABET[byte % ID_ALPHABET.len()])),
        );
    }
    Ok(id)
}

/// The SHA-256 of a token's secret, the only form in which a store may keep it.
pub fn secret_sha256(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_ids_are_letters_and_digits_and_never_the_same() {
        let (secret, id) = (new_secret().unwrap(), new_id().unwrap());
        assert_eq!((secret.len(), id.len()), (64, 12));
        assert!(secret.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{secret}");
        assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{id}");
        assert!(secret != new_secret().unwrap() && id != new_id().unwrap());
    }
}
