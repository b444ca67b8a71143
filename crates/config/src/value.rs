//! Types of setting values: their syntax in a file, a variable or a flag, and how they are printed.

use crate::args::{self, RetentionTime, SLOTS_MAX};
use clap::ValueEnum;
use punctual_client::Span;
use punctual_core::health::FreeMin;
use punctual_core::limits;
use punctual_core::names::{name_problem, path_name_problem, queue_name_problem};
use punctual_core::slots::SlotRange;
use punctual_core::time::Timestamp;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Characters of an invalid value that an error repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// A value as written, before it is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raw {
    /// From a flag, one item per use, or from a variable. Both contain only text.
    Words(Vec<String>),
    /// The rest comes from a file, which distinguishes strings, numbers and lists.
    Text(String),
    Number(String),
    List(Vec<String>),
    Other(String),
}

impl Raw {
    pub fn word(text: impl Into<String>) -> Self {
        Raw::Words(vec![text.into()])
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Raw::Words(words) => words.last().map(String::as_str),
            Raw::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn number(&self) -> Option<u64> {
        match self {
            Raw::Words(words) => words.last()?.parse().ok(),
            Raw::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// The items of a list. Flags and variables separate them by commas; an empty one has no items.
    fn items(&self) -> Option<Vec<&str>> {
        let named = |text: &&str| !text.is_empty();
        match self {
            Raw::Words(words) => {
                Some(words.iter().flat_map(|word| word.split(',')).map(str::trim).filter(named).collect())
            }
            Raw::List(items) => Some(items.iter().map(String::as_str).collect()),
            _ => None,
        }
    }

    /// As an error repeats it.
    fn shown(&self) -> String {
        match self {
            Raw::Words(words) => words.iter().map(|word| shortened(word)).collect::<Vec<_>>().join(" and "),
            Raw::Text(text) => shortened(text),
            Raw::Number(number) => format!("the number {number}"),
            Raw::List(_) => "a list".to_owned(),
            Raw::Other(what) => what.clone(),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The value, or a sentence about what was written and what is expected.
pub fn read<T: Value>(raw: &Raw) -> Result<T, String> {
    T::read(raw).map_err(|must| match T::found(raw) {
        Some(found) => format!("{must}, but {found}"),
        None => must,
    })
}

/// A type of value.
pub trait Value: Sized {
    /// Whether a flag without a value means `true`.
    const IS_SWITCH: bool = false;

    /// The accepted values, as in "must be …".
    fn kind() -> String;

    /// The placeholder in a flag's help.
    fn placeholder() -> String;

    /// The value, or the requirement, beginning with "must".
    fn read(raw: &Raw) -> Result<Self, String>;

    /// How an error describes a value that cannot be parsed, as in "but is …"; `None` if it must not be
    /// repeated.
    fn found(raw: &Raw) -> Option<String> {
        Some(format!("is {}", raw.shown()))
    }

    /// As written in a file; null if it is not set.
    fn written(&self) -> Json;

    /// The unset value, if the type has one.
    fn unset() -> Option<Self> {
        None
    }

    /// Resolves the value relative to the directory of its file.
    fn seen_from(self, _directory: &Path) -> Self {
        self
    }
}

fn must_be<T: Value>() -> String {
    format!("must be {}", T::kind())
}

/// Unset by default.
impl<T: Value> Value for Option<T> {
    fn kind() -> String {
        T::kind()
    }

    fn placeholder() -> String {
        T::placeholder()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        T::read(raw).map(Some)
    }

    fn found(raw: &Raw) -> Option<String> {
        T::found(raw)
    }

    fn written(&self) -> Json {
        self.as_ref().map_or(Json::Null, Value::written)
    }

    fn unset() -> Option<Self> {
        Some(None)
    }

    fn seen_from(self, directory: &Path) -> Self {
        self.map(|value| value.seen_from(directory))
    }
}

/// A number within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    pub fn get(self) -> u64 {
        self.0
    }

    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    pub fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl<const MIN: u64, const MAX: u64> Value for Count<MIN, MAX> {
    fn kind() -> String {
        format!("a number from {MIN} to {MAX}")
    }

    fn placeholder() -> String {
        "N".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        match raw.number() {
            Some(number) if (MIN..=MAX).contains(&number) => Ok(Count(number)),
            _ => Err(must_be::<Self>()),
        }
    }

    fn written(&self) -> Json {
        self.0.into()
    }
}

/// A number of slots, or the minimum and the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCount(pub SlotRange);

impl Value for SlotCount {
    fn kind() -> String {
        format!("a number from 1 to {SLOTS_MAX}, or a minimum and a maximum, such as \"4..64\"")
    }

    fn placeholder() -> String {
        "N|MIN..MAX".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let most = u64::try_from(SLOTS_MAX).unwrap_or(u64::MAX);
        let slots = |number: u64| (1..=most).contains(&number).then(|| u32::try_from(number).ok()).flatten();
        let range = match raw.number() {
            Some(number) => slots(number).map(SlotRange::fixed),
            None => raw.text().and_then(|text| {
                let (min, max) = text.split_once("..")?;
                let bound = |text: &str| slots(text.trim().parse().ok()?);
                SlotRange::new(bound(min)?, bound(max)?)
            }),
        };
        range.map(SlotCount).ok_or_else(must_be::<Self>)
    }

    fn written(&self) -> Json {
        match self.0.is_fixed() {
            true => self.0.min().into(),
            false => format!("{}..{}", self.0.min(), self.0.max()).into(),
        }
    }
}

/// The minimum of a free resource; `None` if it is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeastFree(pub Option<FreeMin>);

const OFF: &str = "off";

impl Value for LeastFree {
    fn kind() -> String {
        "a percentage such as 5%, a size such as 512MiB or 2GiB, or off".to_owned()
    }

    fn placeholder() -> String {
        "SIZE|PERCENT|off".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().map(str::trim).ok_or_else(must_be::<Self>)?;
        if text == OFF {
            return Ok(LeastFree(None));
        }
        let least = match text.strip_suffix('%') {
            Some(percent) => {
                percent.trim().parse().ok().filter(|pct| (1..=99).contains(pct)).map(FreeMin::Percent)
            }
            None => size(text).map(FreeMin::Bytes),
        };
        least.map(|least| LeastFree(Some(least))).ok_or_else(must_be::<Self>)
    }

    fn written(&self) -> Json {
        self.0.map_or(OFF.to_owned(), |least| least.to_string().replace(' ', "")).into()
    }
}

/// A maximum size; unlimited if it is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeMax(pub Option<u64>);

impl Default for SizeMax {
    fn default() -> Self {
        SizeMax(Some(limits::LOGS_BYTES_DEFAULT))
    }
}

impl Value for SizeMax {
    fn kind() -> String {
        "a size of at least 1MiB, such as 512MiB or 2GiB, or off".to_owned()
    }

    fn placeholder() -> String {
        "SIZE|off".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().map(str::trim).ok_or_else(must_be::<Self>)?;
        if text == OFF {
            return Ok(SizeMax(None));
        }
        let bytes = size(text).filter(|bytes| *bytes >= limits::LOGS_BYTES_MIN);
        bytes.map(|bytes| SizeMax(Some(bytes))).ok_or_else(must_be::<Self>)
    }

    fn written(&self) -> Json {
        self.0.map_or(OFF.to_owned(), |bytes| FreeMin::Bytes(bytes).to_string().replace(' ', "")).into()
    }
}

/// Bytes with a unit, in powers of 1024.
fn size(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let (number, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    let number: u64 = number.trim().parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// A maximum in percent; `None` if it is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MostPercent(pub Option<u8>);

impl Value for MostPercent {
    fn kind() -> String {
        "a percentage such as 90%, or off".to_owned()
    }

    fn placeholder() -> String {
        "PERCENT|off".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().map(str::trim).ok_or_else(must_be::<Self>)?;
        if text == OFF {
            return Ok(MostPercent(None));
        }
        let percent = text.strip_suffix('%').and_then(|percent| percent.trim().parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        percent.map(|percent| MostPercent(Some(percent))).ok_or_else(must_be::<Self>)
    }

    fn written(&self) -> Json {
        self.0.map_or(OFF.to_owned(), |percent| format!("{percent}%")).into()
    }
}

/// A duration within bounds, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length<const MIN_MS: u64, const MAX_MS: u64>(Span);

impl<const MIN_MS: u64, const MAX_MS: u64> Length<MIN_MS, MAX_MS> {
    pub fn get(self) -> Duration {
        self.0.get()
    }
}

impl<const MIN_MS: u64, const MAX_MS: u64> Value for Length<MIN_MS, MAX_MS> {
    fn kind() -> String {
        let [min, max] = [MIN_MS, MAX_MS].map(|millis| Span::from(Duration::from_millis(millis)));
        format!("a duration from {min} to {max}, such as 30s, 5m or PT1M")
    }

    fn placeholder() -> String {
        "DURATION".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let span: Span = raw.text().and_then(|text| text.parse().ok()).ok_or_else(must_be::<Self>)?;
        let bounds = Duration::from_millis(MIN_MS)..=Duration::from_millis(MAX_MS);
        if bounds.contains(&span.get()) { Ok(Length(span)) } else { Err(must_be::<Self>()) }
    }

    fn written(&self) -> Json {
        self.0.to_string().into()
    }
}

impl Value for RetentionTime {
    fn kind() -> String {
        "a duration such as 30d or 12h, or forever".to_owned()
    }

    fn placeholder() -> String {
        "DURATION|forever".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        raw.text().ok_or_else(must_be::<Self>).and_then(args::kept)
    }

    fn written(&self) -> Json {
        match self {
            RetentionTime::For(time) => Span::from(*time).to_string().into(),
            RetentionTime::Forever => "forever".into(),
        }
    }
}

/// A host or address, and a port to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(pub String);

impl Value for Address {
    fn kind() -> String {
        "an address with a port, such as 127.0.0.1:7070 or [::1]:7070".to_owned()
    }

    fn placeholder() -> String {
        "ADDRESS".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        raw.text().ok_or_else(must_be::<Self>).and_then(args::address).map(Address)
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

/// The address of a server; checked further when it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress(pub String);

impl Value for ServerAddress {
    fn kind() -> String {
        "an address with a port or a URL, such as 127.0.0.1:7070 or https://jobs.example.org".to_owned()
    }

    fn placeholder() -> String {
        "ADDRESS".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        match raw.text().map(str::trim) {
            Some(text) if holds_more_than_an_address(text) => Err(format!(
                "{}, without a user, a password or a query: put the token in a file, and set \
                 client.token_file to its path",
                must_be::<Self>()
            )),
            Some(text) if !text.is_empty() => Ok(ServerAddress(text.to_owned())),
            _ => Err(must_be::<Self>()),
        }
    }

    fn found(raw: &Raw) -> Option<String> {
        let is_secret = raw.text().is_some_and(holds_more_than_an_address);
        (!is_secret).then(|| format!("is {}", raw.shown()))
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

/// Whether an address contains a user, a password, a query or a fragment. They may be secret.
fn holds_more_than_an_address(text: &str) -> bool {
    text.contains(['@', '?', '#'])
}

/// A name, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(pub String);

impl Value for Name {
    fn kind() -> String {
        format!("a name of 1 to {} bytes in one line", limits::NAME_BYTES_MAX)
    }

    fn placeholder() -> String {
        "NAME".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let name = raw.text().map(str::trim).ok_or_else(must_be::<Self>)?;
        match path_name_problem(name) {
            _ if name.is_empty() => Err(must_be::<Self>()),
            Some(problem) => Err(problem),
            None => Ok(Name(name.to_owned())),
        }
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

impl Value for PathBuf {
    fn kind() -> String {
        "a path".to_owned()
    }

    fn placeholder() -> String {
        "PATH".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        match raw.text() {
            Some(text) if text.contains('\0') => Err("must be a path without a NUL character".to_owned()),
            Some(text) if !text.is_empty() => Ok(PathBuf::from(text)),
            _ => Err(must_be::<Self>()),
        }
    }

    fn written(&self) -> Json {
        self.to_string_lossy().into()
    }

    fn seen_from(self, directory: &Path) -> Self {
        directory.join(self)
    }
}

impl Value for Timestamp {
    fn kind() -> String {
        "a time with its offset before 9999-12-30, such as 2026-03-29T03:00:00Z".to_owned()
    }

    fn placeholder() -> String {
        "TIME".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().ok_or_else(must_be::<Self>)?;
        let time = args::time(text)?;
        if time <= Timestamp::MAX { Ok(time) } else { Err(must_be::<Self>()) }
    }

    fn written(&self) -> Json {
        self.to_string().into()
    }
}

/// A value of a list.
pub trait ListItem: Sized {
    /// The description of a list of them.
    fn kind_of_list() -> String;

    /// The placeholder of one in a flag's help.
    fn placeholder() -> String;

    /// The item, or the requirement, beginning with "must".
    fn read(text: &str) -> Result<Self, String>;

    fn written(&self) -> String;

    /// Resolves paths in it relative to the directory of its file.
    fn seen_from(self, _directory: &Path) -> Self {
        self
    }
}

impl<T: ListItem> Value for Vec<T> {
    fn kind() -> String {
        T::kind_of_list()
    }

    fn placeholder() -> String {
        T::placeholder()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let items = raw.items().ok_or_else(must_be::<Self>)?;
        items.into_iter().map(T::read).collect()
    }

    fn found(raw: &Raw) -> Option<String> {
        let wrong = raw.items().into_iter().flatten().find(|item| T::read(item).is_err());
        Some(match wrong {
            Some(item) => format!("has {}", shortened(item)),
            None => format!("is {}", raw.shown()),
        })
    }

    fn written(&self) -> Json {
        self.iter().map(|item| Json::from(item.written())).collect()
    }

    fn seen_from(self, directory: &Path) -> Self {
        self.into_iter().map(|item| item.seen_from(directory)).collect()
    }
}

/// The name of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueName(pub String);

impl ListItem for QueueName {
    fn kind_of_list() -> String {
        "a list of queues, such as [\"mail\", \"reports\"]".to_owned()
    }

    fn placeholder() -> String {
        "QUEUE".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let queue = args::queue(text)?;
        match queue_name_problem(&queue).filter(|_| queue.contains('*')) {
            Some(problem) => Err(problem),
            None => Ok(QueueName(queue)),
        }
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}

/// The name of a job type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTypeName(pub String);

impl ListItem for JobTypeName {
    fn kind_of_list() -> String {
        "a list of job types, such as [\"http\", \"shell\"]".to_owned()
    }

    fn placeholder() -> String {
        "JOB_TYPE".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        match name_problem(text) {
            Some(_) => Err("must be the name of a job type".to_owned()),
            None => Ok(JobTypeName(text.to_owned())),
        }
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}

/// One of a few words.
pub fn one_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, true).map_err(|_| format!("must be {}", words::<T>(" or ")))
}

/// The words of an enum.
pub fn words<T: ValueEnum>(separator: &str) -> String {
    T::value_variants().iter().map(word).collect::<Vec<_>>().join(separator)
}

pub fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Makes an enum a type of setting values.
macro_rules! choice {
    ($($choice:ty),+) => {$(
        impl $crate::value::Value for $choice {
            fn kind() -> String {
                $crate::value::words::<$choice>(" or ")
            }

            fn placeholder() -> String {
                $crate::value::words::<$choice>("|")
            }

            fn read(raw: &$crate::value::Raw) -> Result<Self, String> {
                match raw.text() {
                    Some(text) => $crate::value::one_of(text),
                    None => Err(format!("must be {}", <$choice as $crate::value::Value>::kind())),
                }
            }

            fn written(&self) -> serde_json::Value {
                $crate::value::word(self).into()
            }
        }
    )+};
}
pub(crate) use choice;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_number_or_two_bounds() {
        let slots = |raw: Raw| read::<SlotCount>(&raw).map(|slots| slots.written().to_string()).ok();
        assert_eq!(slots(Raw::word("8")).as_deref(), Some("8"));
        assert_eq!(slots(Raw::Number("8".to_owned())).as_deref(), Some("8"));
        assert_eq!(slots(Raw::Text("4..64".to_owned())).as_deref(), Some("\"4..64\""));
        assert_eq!(slots(Raw::word("4 .. 4")).as_deref(), Some("4"));
        for wrong in ["0", "0..4", "8..4", "4..", "..4", "4..10001", "many"] {
            assert_eq!(slots(Raw::word(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn limits_of_health_are_sizes_shares_or_off() {
        let least = |text: &str| read::<LeastFree>(&Raw::word(text)).map(|least| least.0).ok();
        assert_eq!(least("off"), Some(None));
        assert_eq!(least("3%"), Some(Some(FreeMin::Percent(3))));
        assert_eq!(least("512MiB"), Some(Some(FreeMin::Bytes(512 << 20))));
        for wrong in ["", "0%", "100%", "3", "512MB", "0GiB", "-1GiB", "99999999999TiB"] {
            assert_eq!(least(wrong), None, "{wrong}");
        }
        let most = |text: &str| read::<MostPercent>(&Raw::word(text)).map(|most| most.0).ok();
        assert_eq!(
            (most("off"), most("90%"), most("90"), most("0%")),
            (Some(None), Some(Some(90)), None, None)
        );
    }
}
