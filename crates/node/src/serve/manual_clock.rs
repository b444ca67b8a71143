//! A clock that moves only when it is driven over the API.

use punctual_core::ports::{Clock, DrivenClock, Task};
use punctual_core::time::{Monotonic, Timestamp};
use std::time::Duration;
use tokio::sync::watch;

pub struct ManualClock {
    started_at: Timestamp,
    now: watch::Sender<Timestamp>,
}

impl ManualClock {
    pub fn starting_at(start: Timestamp) -> Self {
        ManualClock { started_at: start, now: watch::Sender::new(start) }
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::default().plus(self.wall().since(self.started_at))
    }

    fn sleep(&self, duration: Duration) -> Task {
        let wake_at = self.wall().plus(duration);
        let mut now = self.now.subscribe();
        Box::pin(async move {
            // Without the clock there is nothing left to wait for.
            let _ = now.wait_for(|now| *now >= wake_at).await;
        })
    }
}

impl DrivenClock for ManualClock {
    fn set(&self, to: Timestamp) {
        self.now.send_if_modified(|now| {
            let is_ahead = to > *now;
            if is_ahead {
                *now = to;
            }
            is_ahead
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_772_323_200_000_000 + seconds * 1_000_000)
    }

    #[test]
    fn it_stands_still_until_it_is_set_and_never_goes_back() {
        let clock = ManualClock::starting_at(at(0));
        assert_eq!((clock.wall(), clock.monotonic()), (at(0), Monotonic::default()));
        clock.set(at(60));
        clock.set(at(30));
        assert_eq!(clock.wall(), at(60));
        assert_eq!(clock.monotonic(), Monotonic::from_micros(60_000_000));
    }

    #[tokio::test]
    async fn a_sleep_ends_when_the_driven_time_is_reached() {
        let clock = ManualClock::starting_at(at(0));
        let mut sleep = clock.sleep(Duration::from_secs(10));
        clock.set(at(9));
        assert!(poll_once(&mut sleep).await.is_pending());
        clock.set(at(10));
        assert!(poll_once(&mut sleep).await.is_ready());
        assert!(poll_once(&mut clock.sleep(Duration::ZERO)).await.is_ready());
    }

    async fn poll_once(task: &mut Task) -> std::task::Poll<()> {
        std::future::poll_fn(|context| std::task::Poll::Ready(task.as_mut().poll(context))).await
    }
}
