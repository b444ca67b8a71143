//! Detects command lines that the shell has split or expanded, from what is left of them.

use clap::error::ErrorKind;

/// A hint about what the shell did, to follow clap's error.
pub fn hint(error: &clap::Error, arguments: &[String]) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict) {
        return None;
    }
    let expression = unquoted_cron(arguments)?;
    let example = if expression.is_empty() { "30 2 * * *".to_owned() } else { expression };
    Some(format!(
        "  put the cron expression in quotes, such as --cron \"{example}\": without them the shell splits it \
         and replaces * with file names"
    ))
}

/// The words that follow `--cron` where its value is only the first of them. Empty if a word, such as the
/// name of a file, cannot be part of an expression: then the intended expression is unknown.
fn unquoted_cron(arguments: &[String]) -> Option<String> {
    let place =
        arguments.iter().position(|argument| argument == "--cron" || argument.starts_with("--cron="))?;
    let first = match arguments[place].strip_prefix("--cron=") {
        Some(value) => Some(value),
        None => arguments.get(place + 1).map(String::as_str),
    }?;
    if first.contains(' ') || first.starts_with('@') {
        return None;
    }
    let rest_at = if arguments[place].contains('=') { place + 1 } else { place + 2 };
    let rest: Vec<&str> =
        arguments[rest_at..].iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
    if rest.is_empty() {
        return None;
    }
    let words: Vec<&str> = std::iter::once(first).chain(rest).collect();
    let is_field = |word: &&str| {
        let is_letter = |letter: char| letter.is_ascii_digit() || "*/,-?#LWH".contains(letter);
        word.chars().all(is_letter) || word.split(['-', ',']).all(|name| name.len() == 3)
    };
    let is_expression = words.len() >= 5 && words.iter().take(5).all(is_field);
    Some(if is_expression {
        words.iter().take(5).copied().collect::<Vec<_>>().join(" ")
    } else {
        String::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<String> {
        unquoted_cron(&line.split('|').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn an_expression_that_the_shell_took_apart_is_noticed() {
        for (line, meant) in [
            ("submit|x|--cron|30|2|*|*|MON-FRI|--type|noop", Some("30 2 * * MON-FRI")),
            ("submit|x|--cron|30|2|Cargo.toml|README.md|Cargo.toml|README.md", Some("")),
            ("submit|x|--cron|README.md|README.md|README.md", Some("")),
            ("submit|x|--cron=0|2|*|*|*", Some("0 2 * * *")),
            ("submit|x|--cron|30 2 * * *|--type|noop", None),
            ("submit|x|--cron|@daily|y", None),
            ("submit|x|--every|1h", None),
            ("submit|x|--cron", None),
        ] {
            assert_eq!(found(line).as_deref(), meant, "{line}");
        }
    }
}
