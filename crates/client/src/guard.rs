//! A check before each request: whether the server may have it, and the token with it.

use crate::Client;
use std::fmt;
use std::sync::Arc;

type Check = dyn Fn() -> Result<(), String> + Send + Sync;

/// The check of a client, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Guard(Option<Arc<Check>>);

impl Guard {
    /// An error says why the server must not have the request.
    pub fn check(&self) -> Result<(), String> {
        self.0.as_ref().map_or(Ok(()), |check| check())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Client {
    /// The same client, but it calls `check` before each request, and sends nothing if that fails. The error is the
    /// message for people.
    pub fn with_guard(&self, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Client {
        let mut client = self.clone();
        client.guard = Guard(Some(Arc::new(check)));
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientError;
    use std::net::TcpListener;

    #[tokio::test]
    async fn nothing_is_sent_to_a_server_that_fails_the_check() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let client = Client::new(&listener.local_addr().unwrap().to_string(), "pt_a_b").unwrap();
        let guarded = client.with_guard(|| Err("not this one".to_owned()));
        let refused = guarded.me().await.unwrap_err();
        assert!(matches!(&refused, ClientError::Untrusted(why) if why == "not this one"), "{refused}");
        assert!(!refused.is_retryable());
        assert!(listener.accept().is_err(), "it did not even connect");
    }
}
