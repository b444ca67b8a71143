//! Continues with a server that is unavailable for a while: retries, at whatever address it listens by then.

use crate::job::live::LiveJobView;
use punctual_client::{Client, ClientError, Span};
use punctual_config::connect::ConnectArgs;
use std::time::{Duration, Instant};

/// How long to wait before retrying an unavailable server, and how long it may be unavailable.
pub const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
pub const RECONNECT_TIME_MAX: Duration = Duration::from_secs(60);

/// Makes requests to a server that may be restarted in between.
pub struct Reconnect<'a> {
    connect: &'a ConnectArgs,
    client: Client,
    /// How long the server may be unavailable; a caller with its own timeout needs no such limit.
    away_max: Duration,
    heard_at: Instant,
    is_told: bool,
}

impl<'a> Reconnect<'a> {
    /// For a server that has just answered: a server that never answered is not waited for.
    pub fn with(connect: &'a ConnectArgs, client: Client) -> Self {
        // It repeats requests itself, at whatever address.
        let client = client.without_retries();
        Reconnect { connect, client, away_max: RECONNECT_TIME_MAX, heard_at: Instant::now(), is_told: false }
    }

    /// Without a limit: the caller applies its own timeout.
    pub fn without_limit(self) -> Self {
        Reconnect { away_max: Duration::MAX, ..self }
    }

    /// The last client that got an answer.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Retries until there is an answer. Only for reads, which can be repeated.
    pub async fn ask<T>(
        &mut self,
        live: &LiveJobView,
        question: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        loop {
            let pause = match question(&self.client).await {
                Err(gone) if gone.is_retryable() && self.heard_at.elapsed() < self.away_max => {
                    self.tell(live, &gone);
                    gone.retry_after().unwrap_or_default().clamp(RECONNECT_PAUSE, RECONNECT_TIME_MAX)
                }
                answer => {
                    self.heard_at = Instant::now();
                    self.is_told = false;
                    return answer;
                }
            };
            tokio::time::sleep(pause).await;
            // A restarted server may listen on another address.
            if let Ok(client) = self.connect.client() {
                self.client = client.without_retries();
            }
        }
    }

    /// Prints once that the server is unavailable.
    fn tell(&mut self, live: &LiveJobView, gone: &ClientError) {
        if self.is_told {
            return;
        }
        self.is_told = true;
        let limit = match self.away_max {
            Duration::MAX => String::new(),
            limit => format!(" for up to {}", Span::from(limit)),
        };
        live.say(&format!("note: {gone}; retrying{limit}"));
    }
}
