//! Going on with a server that goes away for a while: it is asked again, wherever it listens by then.

use crate::connect::ConnectArgs;
use crate::job::live::Live;
use punctual_client::{Client, ClientError, Span};
use std::time::{Duration, Instant};

/// How long to wait before a server that went away is asked again, and how long it may be away.
pub const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
pub const RECONNECT_TIME_MAX: Duration = Duration::from_secs(60);

/// Asks a server that may be started anew in between.
pub struct Patience<'a> {
    connect: &'a ConnectArgs,
    client: Client,
    /// How long the server may be away; whoever bounds the wait otherwise needs no such limit.
    away_max: Duration,
    heard_at: Instant,
    is_told: bool,
}

impl<'a> Patience<'a> {
    /// With a server that has just answered: one that never was there is not to be waited for.
    pub fn with(connect: &'a ConnectArgs, client: Client) -> Self {
        Patience { connect, client, away_max: RECONNECT_TIME_MAX, heard_at: Instant::now(), is_told: false }
    }

    /// For as long as whoever waits is willing to.
    pub fn without_limit(self) -> Self {
        Patience { away_max: Duration::MAX, ..self }
    }

    /// The client that was answered last.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Asks until an answer comes. What only reads can be asked as often as it takes.
    pub async fn ask<T>(
        &mut self,
        live: &Live,
        question: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        loop {
            match question(&self.client).await {
                Err(gone) if gone.is_retryable() && self.heard_at.elapsed() < self.away_max => {
                    self.tell(live, &gone);
                }
                answer => {
                    self.heard_at = Instant::now();
                    self.is_told = false;
                    return answer;
                }
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
            // A server that was started anew may listen elsewhere.
            if let Ok(client) = self.connect.client() {
                self.client = client;
            }
        }
    }

    /// Says once that the server is away.
    fn tell(&mut self, live: &Live, gone: &ClientError) {
        if self.is_told {
            return;
        }
        self.is_told = true;
        let limit = match self.away_max {
            Duration::MAX => String::new(),
            limit => format!(" for up to {}", Span::from(limit)),
        };
        live.say(&format!("note: {gone}; asking again{limit}"));
    }
}
