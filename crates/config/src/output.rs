//! Tables for people, JSON and YAML for programs.

mod terminal;
mod times;

pub use terminal::{one_line, visible};
pub(crate) use times::TIMES_VARIABLE;
pub use times::{TimeChoice, choose_times};

use comfy_table::{Cell, ContentArrangement, Table, presets};
use punctual_client::Span;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use terminal::spelled_in_json;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t, env = "PUNCTUAL_OUTPUT")]
    pub format: Format,
    #[command(flatten)]
    pub times: TimeChoice,
}

impl From<Format> for OutputArgs {
    fn from(format: Format) -> Self {
        OutputArgs { format, times: TimeChoice::default() }
    }
}

impl OutputArgs {
    /// Prints the answer: serialized for programs, or with `table` for people.
    pub fn print<T: Serialize>(self, answer: &T, table: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        match self.format {
            Format::Json => print_raw(&spelled_in_json(&serde_json::to_string_pretty(answer)?)),
            Format::Yaml => print_line(yaml(answer)?.trim_end()),
            Format::Table => {
                choose_times(self.times);
                print_text(&table(answer))
            }
        }
    }

    /// Whether the output is for people.
    pub fn is_table(self) -> bool {
        choose_times(self.times);
        self.format == Format::Table
    }
}

/// As YAML, converted from JSON: payloads and results are raw JSON, and the conversion keeps the order of
/// their keys.
pub fn yaml(answer: &impl Serialize) -> anyhow::Result<String> {
    let json = serde_json::to_string(answer)?;
    let mut reader = serde_json::Deserializer::from_str(&json);
    Ok(serde_saphyr::to_string(&serde_transcode::Transcoder::new(&mut reader))?)
}

/// Prints a text. It may contain output of jobs, so control sequences in it are made harmless.
pub fn print_text(text: &str) -> anyhow::Result<()> {
    print_raw(&visible(text))
}

/// Prints a text unchanged. A reader that closes the pipe, such as `head`, is not an error.
pub fn print_raw(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a line of a handler or of a machine-readable format: unchanged, except on a terminal, which must
/// not interpret it.
pub fn print_line(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let text = if stdout.is_terminal() { terminal::tamed(text) } else { Cow::Borrowed(text) };
    match writeln!(stdout, "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a message that may contain names to stderr.
pub fn tell(text: &str) {
    eprintln!("{}", visible(text));
}

/// One answer as one line of JSON.
pub fn json_line(answer: &impl Serialize) -> anyhow::Result<String> {
    Ok(spelled_in_json(&serde_json::to_string(answer)?).into_owned())
}

/// Rows under a header, without borders.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(Cell::new));
    for row in rows {
        table.add_row(row.iter().map(|cell| visible(cell)));
    }
    trim_lines(&table.to_string())
}

/// One object: a name and a value per line; names without a value are left out.
pub fn details(rows: impl IntoIterator<Item = (&'static str, Option<String>)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    for (name, value) in rows {
        if let Some(value) = value {
            table.add_row([Cow::Borrowed(name), visible(&value)]);
        }
    }
    trim_lines(&table.to_string())
}

/// Without the padding around the table, which would disturb copying.
fn trim_lines(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n")
}

/// A time with second precision, in UTC or with the offset of the local zone; programs that need more use JSON.
pub fn time(time: Timestamp) -> String {
    times::shown(time, 0)
}

/// A time with millisecond precision, where lateness matters.
pub fn time_to_millis(moment: Timestamp) -> String {
    times::shown(moment, 3)
}

pub fn optional_time(moment: Option<Timestamp>) -> String {
    moment.map_or_else(|| "-".to_owned(), time)
}

/// A duration: `<1ms`, `250ms`, `2.5s`, `1m30s`.
pub fn span(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match millis {
        0 => "<1ms".to_owned(),
        1..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}s", millis as f64 / 1_000.0),
        _ => Span::from(Duration::from_secs(millis / 1_000)).to_string(),
    }
}

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@".contains(letter);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// At most `limit` characters of the first line.
pub fn shortened(text: &str, limit: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_keeps_the_order_of_keys_and_quotes_what_could_be_read_as_something_else() {
        let raw = serde_json::value::RawValue::from_string(
            r#"{"z":1,"a":["no","1e3","2026-11-15T08:30:00Z","~","0x1f",""],"m":{"b":null,"a":1.5}}"#
                .to_owned(),
        );
        insta::assert_snapshot!(yaml(&raw.unwrap()).unwrap());
    }

    #[test]
    fn spans_are_short_and_say_when_they_are_tiny() {
        let shown = [0, 1, 250, 999, 1_000, 2_500, 2_053, 59_999, 90_500, 3_600_000]
            .map(|millis| span(Duration::from_millis(millis)));
        assert_eq!(
            shown,
            ["<1ms", "1ms", "250ms", "999ms", "1s", "2.5s", "2.053s", "59.999s", "1m30s", "1h"]
        );
        assert_eq!(span(Duration::from_micros(999)), "<1ms");
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_not_take_them_as_they_are() {
        for (word, pasted) in [("mail", "mail"), ("a/b c", "'a/b c'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(quoted(word), pasted);
        }
    }

    #[test]
    fn times_have_all_their_milliseconds() {
        for (given, shown) in [
            ("2026-11-15T08:30:00Z", "2026-11-15T08:30:00.000Z"),
            ("2026-11-15T08:30:00.0129Z", "2026-11-15T08:30:00.012Z"),
        ] {
            assert_eq!(time_to_millis(given.parse().unwrap()), shown);
        }
    }
}
