//! The link that a server shows to the person who has started it: one click logs their browser in.
//!
//! The link contains a code that works once and for a short time. It stands for a token, which stays in this
//! process: addresses end up in the history of browsers.

use crate::secrets::new_secret;
use punctual_core::time::Monotonic;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// How long a link works.
const LINK_TIME: Duration = Duration::from_secs(15 * 60);

/// A code for a token.
pub struct LoginLink {
    code: String,
    until: Monotonic,
    token: Mutex<Option<String>>,
}

impl LoginLink {
    pub fn new(token: String, now: Monotonic) -> Result<Self, getrandom::Error> {
        let code = format!("link_{}", new_secret()?);
        Ok(LoginLink { code, until: now.plus(LINK_TIME), token: Mutex::new(Some(token)) })
    }

    /// The address, where the dashboard is at `home`. Browsers do not send what follows `#` to any server.
    pub fn address(&self, home: &str) -> String {
        format!("{home}#login={}", self.code)
    }

    /// The token, for the first one who brings the code in time.
    pub fn redeem(&self, sent: &str, now: Monotonic) -> Option<String> {
        let is_code = bool::from(sent.as_bytes().ct_eq(self.code.as_bytes())) && now < self.until;
        self.token.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| is_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_works_once_and_in_time() {
        let now = Monotonic::from_micros(0);
        let link = LoginLink::new("pt_admin_x".to_owned(), now).unwrap();
        let code = link.address("/ui/").strip_prefix("/ui/#login=").unwrap().to_owned();
        assert_eq!(link.redeem("", now), None);
        assert_eq!(link.redeem("pt_admin_x", now), None);
        assert_eq!(link.redeem(&code, now.plus(LINK_TIME)), None, "too late");
        assert_eq!(link.redeem(&code, now).as_deref(), Some("pt_admin_x"));
        assert_eq!(link.redeem(&code, now), None, "only once");
    }
}
