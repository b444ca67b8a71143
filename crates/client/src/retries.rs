//! When a client sends a request again because the server asks for it: after 429, and after 503 if that cannot
//! do anything twice.
//!
//! A 429 always means that nothing was done. After a 503 that is unknown, so only requests are repeated of
//! which a second one changes nothing.

use crate::IDEMPOTENCY_KEY;
use crate::problem::Problem;
use reqwest::header::IF_MATCH;
use reqwest::{Method, Request};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// How long a client repeats one request by default.
pub const RETRY_TIME_DEFAULT: Duration = Duration::from_secs(30);
/// The shortest pauses before the first repeats, each twice the one before, up to the longest. The server may
/// ask for longer ones.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Pauses are longer by up to this part (one in so many), so that many clients do not return at the same time.
const JITTER_PART: u32 = 4;

type Notice = dyn Fn(&Problem, Duration) + Send + Sync;

/// How a client repeats requests.
#[derive(Clone)]
pub(crate) struct Retries {
    /// How long one request is repeated. A pause that would end later is not begun.
    pub time_max: Duration,
    /// Called before each pause.
    pub notice: Option<Arc<Notice>>,
}

impl Default for Retries {
    fn default() -> Self {
        Retries { time_max: RETRY_TIME_DEFAULT, notice: None }
    }
}

impl fmt::Debug for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retries").field("time_max", &self.time_max).finish_non_exhaustive()
    }
}

impl Retries {
    /// The same request, to send it again, if that may be necessary.
    pub fn copy(&self, request: &Request) -> Option<Request> {
        if self.time_max.is_zero() { None } else { request.try_clone() }
    }

    /// The pause before this request is sent again, if it may be. `sent` is how often it was sent, and `spent`
    /// the time since the first of them.
    pub fn pause(
        &self,
        request: &Request,
        problem: &Problem,
        sent: u32,
        spent: Duration,
    ) -> Option<Duration> {
        let may_repeat = match problem.status {
            429 => true,
            503 => is_repeatable(request),
            _ => false,
        };
        let random = RandomState::new().hash_one(sent);
        let pause = pause(problem.retry_after_secs.map(Duration::from_secs), sent, random);
        (may_repeat && spent.saturating_add(pause) <= self.time_max).then_some(pause)
    }

    pub fn tell(&self, problem: &Problem, pause: Duration) {
        if let Some(notice) = &self.notice {
            notice(problem, pause);
        }
    }
}

/// Whether a second request changes nothing, whatever became of the first. With a condition, it would fail
/// because of the change that the first one made.
fn is_repeatable(request: &Request) -> bool {
    let is_idempotent = [Method::GET, Method::HEAD, Method::PUT, Method::DELETE].contains(request.method());
    let has = |name: &str| request.headers().contains_key(name);
    (is_idempotent || has(IDEMPOTENCY_KEY)) && !has(IF_MATCH.as_str())
}

/// At least as long as the server asks for.
fn pause(asked: Option<Duration>, sent: u32, random: u64) -> Duration {
    let doublings = sent.saturating_sub(1).min(16);
    let least = PAUSE_MIN.saturating_mul(1 << doublings).min(PAUSE_MAX);
    let pause = asked.unwrap_or_default().max(least);
    // The upper half of the number as a fraction.
    let part = f64::from((random >> 32) as u32) / f64::from(u32::MAX);
    pause.saturating_add((pause / JITTER_PART).mul_f64(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, ClientError};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::Mutex;

    const SECOND: Duration = Duration::from_secs(1);

    fn request(method: Method, headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::new(method, "http://127.0.0.1/".parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    }

    fn problem(status: u16, retry_after_secs: Option<u64>) -> Problem {
        Problem { retry_after_secs, ..Problem::new(status, "later") }
    }

    #[test]
    fn only_what_cannot_happen_twice_is_repeated() {
        let repeats = |request: &Request, status| {
            Retries::default().pause(request, &problem(status, None), 1, Duration::ZERO).is_some()
        };
        let key = [(IDEMPOTENCY_KEY, "order-17")];
        for (request, after_503) in [
            (request(Method::GET, &[]), true),
            (request(Method::PUT, &[]), true),
            (request(Method::DELETE, &[]), true),
            (request(Method::POST, &key), true),
            (request(Method::POST, &[]), false),
            (request(Method::PATCH, &[]), false),
            (request(Method::PUT, &[("If-Match", "\"3\"")]), false),
        ] {
            assert!(repeats(&request, 429), "{request:?}");
            assert_eq!(repeats(&request, 503), after_503, "{request:?}");
            assert!([400, 404, 409, 412, 500, 502].iter().all(|status| !repeats(&request, *status)));
        }
    }

    #[test]
    fn pauses_grow_and_are_never_shorter_than_the_server_asks() {
        let longest = |asked, sent| pause(asked, sent, u64::MAX);
        let shortest = |asked, sent| pause(asked, sent, 0);
        assert_eq!(shortest(None, 1), PAUSE_MIN);
        assert_eq!(shortest(None, 3), 4 * PAUSE_MIN);
        assert_eq!(shortest(None, 1_000), PAUSE_MAX);
        assert_eq!(shortest(Some(2 * SECOND), 1), 2 * SECOND);
        assert_eq!(shortest(Some(60 * SECOND), 9), 60 * SECOND);
        assert_eq!(longest(Some(2 * SECOND), 1), 2 * SECOND + SECOND / 2);
    }

    #[test]
    fn the_whole_time_is_bounded() {
        let get = request(Method::GET, &[]);
        let retries = Retries { time_max: 10 * SECOND, notice: None };
        let pause = |asked, spent| retries.pause(&get, &problem(429, Some(asked)), 1, spent);
        assert!(pause(1, Duration::ZERO).is_some());
        assert_eq!(pause(1, 10 * SECOND), None);
        assert_eq!(pause(11, Duration::ZERO), None, "the server asks for more than there is");
        assert_eq!(pause(u64::MAX, Duration::ZERO), None);
        let never = Retries { time_max: Duration::ZERO, notice: None };
        assert!(never.copy(&get).is_none() && retries.copy(&get).is_some());
    }

    /// Gives these answers, one for each request, and returns the bodies of the requests.
    fn server(answers: &'static [&'static str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = std::thread::spawn(move || {
            let answer = |answer: &&str| {
                let mut connection = BufReader::new(listener.accept().unwrap().0);
                let (mut length, mut line) = (0, String::new());
                while connection.read_line(&mut line).unwrap() > 2 {
                    if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                connection.read_exact(&mut body).unwrap();
                let answer = format!("HTTP/1.1 {answer}");
                connection.get_mut().write_all(answer.as_bytes()).unwrap();
                String::from_utf8(body).unwrap()
            };
            answers.iter().map(answer).collect()
        });
        (address, heard)
    }

    const LATER: &str =
        "429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const AWAY: &str = "503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const VERSION: &str = "200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"version\":\"1\"}";

    #[tokio::test]
    async fn a_client_goes_on_when_the_server_has_room_again_and_says_so() {
        let (address, heard) = server(&[LATER, AWAY, VERSION]);
        let told = Arc::<Mutex<Vec<u16>>>::default();
        let listening = told.clone();
        let client = Client::new(&address, "pt_a_b").unwrap();
        let client = client.when_waiting(move |problem, _| listening.lock().unwrap().push(problem.status));
        assert_eq!(client.version().await.unwrap(), "1");
        assert_eq!(*told.lock().unwrap(), [429, 503]);
        assert_eq!(heard.join().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_repeated_request_has_the_same_body() {
        let (address, heard) = server(&[LATER, AWAY]);
        let client = Client::new(&address, "pt_a_b").unwrap();
        let refused = client.submit(&crate::SubmitJob::named("report")).await.unwrap_err();
        // A submit without a key is repeated only after 429.
        let ClientError::Refused(problem) = refused else { panic!("{refused}") };
        assert_eq!(problem.status, 503);
        let bodies = heard.join().unwrap();
        assert!(bodies[0].contains("report") && bodies[0] == bodies[1], "{bodies:?}");
    }

    #[tokio::test]
    async fn a_client_without_retries_passes_the_answer_on() {
        let (address, heard) = server(&[LATER]);
        let client = Client::new(&address, "pt_a_b").unwrap().without_retries();
        let refused = client.version().await.unwrap_err();
        assert_eq!(refused.retry_after(), Some(Duration::ZERO));
        assert_eq!(heard.join().unwrap().len(), 1);
    }
}
