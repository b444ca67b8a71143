//! Calendar events and time spans of systemd, such as `Mon..Fri *-*-* 02:30` and `1h 30min`.

use super::schedule::{both_days, check_zone};

/// A calendar event as a pattern of cron, with its zone if it names one.
#[derive(Debug, PartialEq)]
pub struct CalendarEvent {
    pub pattern: String,
    pub zone: Option<String>,
}

const WEEKDAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];

/// The pattern of an event, or why no pattern has the same times.
pub fn parsed(text: &str) -> Result<CalendarEvent, String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let is_zone = |word: &str| {
        word.starts_with(|one: char| one.is_ascii_alphabetic())
            && weekday(word).is_none()
            && check_zone(word).is_ok()
    };
    let zone = words.last().copied().filter(|word| words.len() > 1 && is_zone(word)).map(str::to_owned);
    if zone.is_some() {
        words.pop();
    }
    if let [word] = words[..]
        && let Some(pattern) = shorthand(word)
    {
        return Ok(CalendarEvent { pattern: pattern.to_owned(), zone });
    }
    let (mut week_day, mut date, mut time) = ("*".to_owned(), None, None);
    for word in words {
        if word.starts_with(|one: char| one.is_ascii_alphabetic()) {
            week_day = weekdays(word)?;
        } else if word.contains(':') {
            time = Some(word);
        } else if word.contains(['-', '~']) {
            date = Some(word);
        } else {
            return Err(format!("{word} is not a part of a calendar event of systemd that can be read"));
        }
    }
    let [year, month, day] = date_fields(date.unwrap_or("*-*-*"))?;
    let [hour, minute, second] = time_fields(time.unwrap_or("00:00:00"))?;
    let (day, week_day) = both_days(&day, &week_day).ok_or_else(|| {
        format!(
            "systemd runs it on days that match both {day} and {week_day}; a cron expression with both means either of \
             them. Write two conditions in the script, or use a form such as MON#1"
        )
    })?;
    let fields = match (second.as_str(), year.as_str()) {
        ("0", "*") => vec![minute, hour, day, month, week_day],
        (_, "*") => vec![second, minute, hour, day, month, week_day],
        _ => vec![second, minute, hour, day, month, week_day, year],
    };
    Ok(CalendarEvent { pattern: fields.join(" "), zone })
}

fn shorthand(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "minutely" => "* * * * *",
        "hourly" => "0 * * * *",
        "daily" => "0 0 * * *",
        "weekly" => "0 0 * * MON",
        "monthly" => "0 0 1 * *",
        "quarterly" => "0 0 1 1,4,7,10 *",
        "semiannually" | "semi-annually" => "0 0 1 1,7 *",
        "yearly" | "annually" => "0 0 1 1 *",
        _ => return None,
    })
}

fn weekday(word: &str) -> Option<&'static str> {
    const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let lower = word.to_ascii_lowercase();
    let place = NAMES.iter().position(|name| *name == lower || name[..3] == lower)?;
    Some(WEEKDAYS[place])
}

fn weekdays(word: &str) -> Result<String, String> {
    let day = |name: &str| {
        weekday(name).map(str::to_owned).ok_or_else(|| format!("{name} is not a day of the week or a zone"))
    };
    let item = |item: &str| {
        let range = item.split_once("..").or_else(|| item.split_once('-'));
        range.map_or_else(|| day(item), |(low, high)| Ok(format!("{}-{}", day(low)?, day(high)?)))
    };
    let items = word.split(',').filter(|item| !item.is_empty()).map(item).collect::<Result<Vec<_>, _>>()?;
    Ok(items.join(","))
}

/// Year, month and day.
fn date_fields(text: &str) -> Result<[String; 3], String> {
    if let Some((date, from_end)) = text.split_once('~') {
        let (year, month) = date.split_once('-').unwrap_or(("*", date));
        let number = |text: &str| text.parse::<u8>().ok().filter(|day| (1..=31).contains(day));
        let day = match (number(from_end), from_end) {
            (Some(1), _) => "L".to_owned(),
            (Some(day), _) => format!("L-{}", day - 1),
            // The last seven days, to be combined with one day of the week.
            (None, "07/1" | "7/1" | "07..01" | "7..1") => "L-6-L".to_owned(),
            _ => {
                return Err(format!(
                    "several days counted from the end of the month (~{from_end}) have no cron expression"
                ));
            }
        };
        return Ok([component(year)?, component(month)?, day]);
    }
    match text.split('-').collect::<Vec<_>>()[..] {
        [year, month, day] => Ok([component(year)?, component(month)?, component(day)?]),
        [month, day] => Ok(["*".to_owned(), component(month)?, component(day)?]),
        _ => Err(format!("{text} is not a date")),
    }
}

/// Hour, minute and second.
fn time_fields(text: &str) -> Result<[String; 3], String> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [hour, minute] => Ok([component(hour)?, component(minute)?, "0".to_owned()]),
        [hour, minute, second] => Ok([component(hour)?, component(minute)?, component(second)?]),
        _ => Err(format!("{text} is not a time of day")),
    }
}

/// `*`, values, ranges with `..` and steps as cron writes them.
fn component(text: &str) -> Result<String, String> {
    let number = |text: &str| {
        let whole = text.split_once('.').map_or(text, |(whole, part)| match part.trim_matches('0') {
            "" => whole,
            _ => text,
        });
        whole.parse::<u32>().map(|value| value.to_string()).map_err(|_| {
            format!("{text} has no equivalent in a cron expression, which has whole seconds only")
        })
    };
    let item = |item: &str| {
        let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
        let range = match (range, range.split_once("..")) {
            ("*", _) => "*".to_owned(),
            (_, Some((low, high))) => format!("{}-{}", number(low)?, number(high)?),
            (value, None) => number(value)?,
        };
        Ok::<_, String>(match step {
            Some(step) => format!("{range}/{}", number(step)?),
            None => range,
        })
    };
    Ok(text.split(',').map(item).collect::<Result<Vec<_>, _>>()?.join(","))
}

/// A time span such as `1h 30min` in seconds.
pub fn span_seconds(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(rest.len());
        let value: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|one: char| !one.is_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "ms" | "msec" => 0.001,
            "us" | "usec" => 0.000_001,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            "w" | "week" | "weeks" => 7.0 * 86_400.0,
            "M" | "month" | "months" => 30.44 * 86_400.0,
            "y" | "year" | "years" => 365.25 * 86_400.0,
            _ => return None,
        };
        seconds += value * unit;
        rest = rest[letters..].trim_start();
    }
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_cron_expressions() {
        for (event, pattern) in [
            ("daily", "0 0 * * *"),
            ("weekly", "0 0 * * MON"),
            ("*-*-* 02:30:00", "30 2 * * *"),
            ("02:30", "30 2 * * *"),
            ("Mon..Fri 09:00", "0 9 * * MON-FRI"),
            ("Mon,Wed,Sat..Sun *-*-* 9..17:00/15", "0/15 9-17 * * MON,WED,SAT-SUN"),
            ("*:0/15", "0/15 * * * *"),
            ("*-*-1,15 06:00:30", "30 0 6 1,15 * *"),
            ("2027-*-01 00:00", "0 0 0 1 * * 2027"),
            ("12-24", "0 0 24 12 *"),
            ("*-*~01 23:00", "0 23 L * *"),
            ("*-02~03", "0 0 L-2 2 *"),
            ("Mon *-*-1..7 04:00", "0 4 * * MON#1"),
            ("Mon *-05~07/1", "0 0 * 5 MONL"),
            ("Fri *-*-1/2 04:00", "0 4 */2 * FRI"),
        ] {
            let expected = CalendarEvent { pattern: pattern.to_owned(), zone: None };
            assert_eq!(parsed(event), Ok(expected), "{event}");
        }
        let zoned = parsed("Sun 03:00 Europe/Berlin").unwrap();
        assert_eq!(zoned.zone.as_deref(), Some("Europe/Berlin"));
        assert_eq!(parsed("*-*-* 01:00 UTC").unwrap().zone.as_deref(), Some("UTC"));
    }

    #[test]
    fn events_without_an_equivalent_say_why() {
        for (event, said) in [
            ("Mon,Tue *-*-1..7", "match both 1-7 and MON,TUE"),
            ("*-*~3..1", "several days counted from the end"),
            ("*:*:0.5", "whole seconds only"),
            ("Foo 03:00", "Foo is not a day of the week"),
            ("@1700000000", "is not a part"),
        ] {
            let error = parsed(event).unwrap_err();
            assert!(error.contains(said), "{event}: {error}");
        }
    }

    #[test]
    fn spans_have_units() {
        let spans = ["90", "1h 30min", "5min", "1.5h", "2 days", "500ms", "x", "3 parsecs"].map(span_seconds);
        let values = [90.0, 5_400.0, 300.0, 5_400.0, 172_800.0, 0.5].map(Some);
        assert_eq!(spans[..6], values);
        assert_eq!(spans[6..], [None, None]);
    }
}
