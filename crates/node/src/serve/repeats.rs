//! A full disk fails every request and every tick of every loop: the log reports it once in a while, with a
//! count, instead of filling the rest of the disk.

use punctual_client::host;
use punctual_config::LogFormat;
use punctual_core::ports::DISK_FULL;
use serde_json::json;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How often the same error is logged.
const PAUSE: Duration = Duration::from_secs(30);
/// Errors remembered. When there are more, all are forgotten, and each is logged once more.
const TROUBLES_MAX: usize = 1_000;

/// Logs an event unless the same error was logged within the last [`PAUSE`].
pub struct Limited<F> {
    inner: F,
    format: LogFormat,
    troubles: Mutex<Troubles>,
}

impl<F> Limited<F> {
    pub fn new(inner: F, format: LogFormat) -> Self {
        Limited { inner, format, troubles: Mutex::default() }
    }

    fn note(&self, writer: &mut Writer<'_>, held_back: u64) -> fmt::Result {
        match self.format {
            LogFormat::Text => writeln!(writer, "  … and {held_back} similar ones before, not shown"),
            LogFormat::Json => {
                let note = json!({
                    "timestamp": host::wall_time().to_string(),
                    "level": "WARN",
                    "message": "the previous event occurred more often than shown",
                    "held_back": held_back,
                });
                writeln!(writer, "{note}")
            }
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let shown = match trouble(event) {
            None => LogDecision::With { held_back: 0 },
            Some(trouble) => {
                let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
                troubles.seen(trouble, Instant::now())
            }
        };
        let LogDecision::With { held_back } = shown else { return Ok(()) };
        self.inner.format_event(context, writer.by_ref(), event)?;
        if held_back > 0 { self.note(&mut writer, held_back) } else { Ok(()) }
    }
}

/// The code location and the error. A full disk is the same error everywhere.
type Trouble = (&'static str, String);

/// The error of an event: only warnings with an error occur in floods.
fn trouble(event: &Event<'_>) -> Option<Trouble> {
    if *event.metadata().level() > Level::WARN {
        return None;
    }
    let mut error = ErrorField(None);
    event.record(&mut error);
    let error = error.0?;
    if error.contains(DISK_FULL) {
        return Some(("", DISK_FULL.to_owned()));
    }
    Some((event.metadata().name(), error))
}

struct ErrorField(Option<String>);

impl Visit for ErrorField {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "error" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum LogDecision {
    With { held_back: u64 },
    HeldBack,
}

/// When each error was last logged, and how often it was suppressed since.
#[derive(Default)]
struct Troubles(HashMap<Trouble, (Instant, u64)>);

impl Troubles {
    fn seen(&mut self, trouble: Trouble, now: Instant) -> LogDecision {
        if let Some((shown_at, held_back)) = self.0.get_mut(&trouble) {
            if now.duration_since(*shown_at) < PAUSE {
                *held_back += 1;
                return LogDecision::HeldBack;
            }
            let before = std::mem::take(held_back);
            *shown_at = now;
            return LogDecision::With { held_back: before };
        }
        if self.0.len() >= TROUBLES_MAX {
            self.0.clear();
        }
        self.0.insert(trouble, (now, 0));
        LogDecision::With { held_back: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::StoreError;
    use std::io;
    use std::sync::Arc;

    #[test]
    fn the_same_trouble_is_shown_once_in_a_while_with_a_count() {
        let mut troubles = Troubles::default();
        let mut seen = |error: &str, at: Instant| troubles.seen(("here", error.to_owned()), at);
        let start = Instant::now();
        assert_eq!(seen("full", start), LogDecision::With { held_back: 0 });
        assert_eq!(seen("full", start + PAUSE / 2), LogDecision::HeldBack);
        assert_eq!(seen("locked", start + PAUSE / 2), LogDecision::With { held_back: 0 });
        assert_eq!(seen("full", start + PAUSE - Duration::from_millis(1)), LogDecision::HeldBack);
        assert_eq!(seen("full", start + PAUSE), LogDecision::With { held_back: 2 });
        assert_eq!(seen("full", start + PAUSE * 2), LogDecision::With { held_back: 0 });
    }

    #[test]
    fn the_count_is_told_in_the_format_of_the_log() {
        let note = |format| {
            let mut text = String::new();
            Limited::new((), format).note(&mut Writer::new(&mut text), 7).unwrap();
            text
        };
        assert_eq!(note(LogFormat::Text), "  … and 7 similar ones before, not shown\n");
        let json: serde_json::Value = serde_json::from_str(&note(LogFormat::Json)).unwrap();
        assert_eq!((&json["held_back"], &json["level"]), (&7.into(), &"WARN".into()));
    }

    #[test]
    fn floods_of_errors_are_held_back_and_other_lines_are_not() {
        let written = Written::default();
        let lines = Limited::new(tracing_subscriber::fmt::format(), LogFormat::Text);
        let writer = written.clone();
        let log = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .event_format(lines)
            .finish();
        tracing::subscriber::with_default(log, || {
            for count in 0..3 {
                tracing::warn!(error = "the disk is slow", count, "a request failed");
                tracing::warn!(error = %StoreError::DiskFull, count, "a submit failed");
                tracing::error!(error = %StoreError::DiskFull, count, "a scan failed");
                tracing::warn!(count, "a session was lost");
                tracing::info!(error = "none", "as told");
            }
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let count = |text: &str| written.lines().filter(|line| line.contains(text)).count();
        assert_eq!((count("a request failed"), count("a session was lost"), count("as told")), (1, 3, 3));
        assert_eq!((count("a submit failed"), count("a scan failed")), (1, 0), "a full disk is named once");
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
