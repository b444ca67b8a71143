//! Cron expressions of Quartz: the second first, and days of the week from 1 for Sunday.

const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// The pattern of Punctual with the same times.
pub fn pattern(expression: &str) -> Result<String, String> {
    let mut fields: Vec<String> = expression.split_whitespace().map(str::to_ascii_uppercase).collect();
    if !(6..=7).contains(&fields.len()) {
        return Err(format!("a cron expression of Quartz has 6 or 7 fields, this one has {}", fields.len()));
    }
    fields[5] = week_days(&fields[5])?;
    if fields.len() == 7 && fields[6] == "*" {
        fields.pop();
    }
    // Without seconds, it is a pattern of five fields.
    if fields.len() == 6 && fields[0] == "0" {
        fields.remove(0);
    }
    Ok(fields.join(" "))
}

/// The day of the week with names in place of numbers.
fn week_days(field: &str) -> Result<String, String> {
    if field == "L" {
        return Ok("SAT".to_owned());
    }
    let day = |text: &str| match text.parse::<usize>() {
        Ok(number) => {
            let name = number.checked_sub(1).and_then(|place| DAYS.get(place));
            name.map(|name| (*name).to_owned())
                .ok_or_else(|| format!("day of the week {number} is not from 1 to 7"))
        }
        Err(_) => Ok(text.to_owned()),
    };
    let item = |item: &str| {
        if let Some((text, number)) = item.split_once('#') {
            return Ok(format!("{}#{number}", day(text)?));
        }
        if let Some((range, step)) = item.split_once('/') {
            let range = match range {
                "*" => return Ok(item.to_owned()),
                range => match range.split_once('-') {
                    Some((low, high)) => format!("{}-{}", day(low)?, day(high)?),
                    // Quartz counts to the end of the week, which is Saturday there.
                    None => format!("{}-SAT", day(range)?),
                },
            };
            return Ok(format!("{range}/{step}"));
        }
        if let Some((low, high)) = item.split_once('-') {
            return Ok(format!("{}-{}", day(low)?, day(high)?));
        }
        match item.strip_suffix('L').filter(|day| !day.is_empty()) {
            Some(text) => Ok(format!("{}L", day(text)?)),
            None => day(item),
        }
    };
    Ok(field.split(',').map(item).collect::<Result<Vec<String>, String>>()?.join(","))
}

#[cfg(test)]
mod tests {
    use super::pattern;
    use punctual_core::recurrence::{Recurrence, RecurrenceSpec};

    #[test]
    fn days_of_the_week_count_from_sunday() {
        for (quartz, punctual) in [
            ("0 0 12 * * ?", "0 12 * * ?"),
            ("0 15 10 ? * 2-6", "15 10 ? * MON-FRI"),
            ("0 15 10 ? * MON-FRI *", "15 10 ? * MON-FRI"),
            ("0 15 10 ? * 6L", "15 10 ? * FRIL"),
            ("0 15 10 ? * 6#3", "15 10 ? * FRI#3"),
            ("0 0 6 ? * L", "0 6 ? * SAT"),
            ("0 0 6 ? * 1/2", "0 6 ? * SUN-SAT/2"),
            ("30 0/5 14 * * ?", "30 0/5 14 * * ?"),
            ("0 15 10 L-2 * ? 2027-2030", "0 15 10 L-2 * ? 2027-2030"),
            ("0 15 10 LW * ?", "15 10 LW * ?"),
        ] {
            assert_eq!(pattern(quartz).as_deref(), Ok(punctual), "{quartz}");
            assert!(Recurrence::new(RecurrenceSpec::cron(punctual, 0)).is_ok(), "{punctual}");
        }
        assert!(pattern("0 12 * * ?").unwrap_err().contains("this one has 5"));
        assert!(pattern("0 0 12 ? * 8").unwrap_err().contains("8 is not from 1 to 7"));
    }
}
