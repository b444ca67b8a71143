//! Makes untrusted text harmless for a terminal: nothing in it may move the cursor, or hide or reorder text.

use punctual_core::names::is_hidden;
use std::borrow::Cow;

/// The character that begins terminal escape sequences.
const ESCAPE: char = '\u{1b}';
/// Resets all colours.
const RESET: &str = "\u{1b}[0m";

/// The text with hidden characters escaped, except for line breaks and tabs.
pub fn visible(text: &str) -> Cow<'_, str> {
    spelled(text, |character| is_hidden(character) && !matches!(character, '\n' | '\t'))
}

/// The text with hidden characters escaped, including line breaks: for use in a sentence.
pub fn one_line(text: &str) -> Cow<'_, str> {
    spelled(text, is_hidden)
}

fn spelled(text: &str, is_spelled: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_spelled) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        if is_spelled(character) {
            visible.extend(character.escape_default());
        } else {
            visible.push(character);
        }
    }
    Cow::Owned(visible)
}

/// The same JSON, with hidden characters as JSON escapes. Outside of strings there are only line breaks.
pub fn spelled_in_json(json: &str) -> Cow<'_, str> {
    let is_spelled = |character: char| is_hidden(character) && character != '\n';
    if !json.contains(is_spelled) {
        return Cow::Borrowed(json);
    }
    let mut spelled = String::with_capacity(json.len());
    for character in json.chars() {
        if is_spelled(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                spelled += &format!("\\u{unit:04x}");
            }
        } else {
            spelled.push(character);
        }
    }
    Cow::Owned(spelled)
}

/// The text for a terminal: colours stay and are reset at the end of the line; everything else is escaped.
pub fn tamed(text: &str) -> Cow<'_, str> {
    if !text.contains(ESCAPE) {
        return visible(text);
    }
    let mut tamed = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_coloured = false;
    while let Some(place) = rest.find(ESCAPE) {
        let (before, sequence) = rest.split_at(place);
        tamed += &visible(before);
        let length = colour_length(sequence);
        is_coloured |= length.is_some();
        let (sequence, after) = sequence.split_at(length.unwrap_or(ESCAPE.len_utf8()));
        match length {
            Some(_) => tamed += sequence,
            None => tamed += &visible(sequence),
        }
        rest = after;
    }
    tamed += &visible(rest);
    if is_coloured {
        tamed += RESET;
    }
    Cow::Owned(tamed)
}

/// The length in bytes of the escape sequence at the beginning of the text, if it only sets colours and the
/// like.
fn colour_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
    let is_colour = parameters[end..].starts_with('m') && are_harmless(&parameters[..end]);
    is_colour.then_some("\u{1b}[".len() + end + "m".len())
}

/// Whether none of these parameters hides the text (8) or makes it blink (5, 6).
fn are_harmless(parameters: &str) -> bool {
    let mut parameters = parameters.split(';');
    while let Some(parameter) = parameters.next() {
        match parameter {
            "5" | "05" | "6" | "06" | "8" | "08" => return false,
            // A palette index or RGB values follow.
            "38" | "48" => match parameters.next() {
                Some("5") => drop(parameters.next()),
                Some("2") => drop(parameters.nth(2)),
                _ => return false,
            },
            _ if parameter.len() > 3 => return false,
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_spelled_out() {
        assert_eq!(visible("a\tb\nc ü 👩\u{200d}🔧"), "a\tb\nc ü 👩\u{200d}🔧");
        assert_eq!(visible("\u{1b}[2J\u{7}\u{9b}x\0"), r"\u{1b}[2J\u{7}\u{9b}x\u{0}");
        assert_eq!(visible("a\u{202e}b\u{2066}\u{200b}\u{2028}"), r"a\u{202e}b\u{2066}\u{200b}\u{2028}");
        assert_eq!(visible("\u{200f}\u{feff}\u{e0041}"), r"\u{200f}\u{feff}\u{e0041}");
        assert_eq!(one_line("a\nb\t"), r"a\nb\t");
    }

    #[test]
    fn json_means_the_same_afterwards() {
        let text = "\u{202e}\u{9b}\u{7f}\u{e0041}\n";
        let json = serde_json::to_string(text).unwrap();
        let spelled = spelled_in_json(&json);
        assert_eq!(spelled, r#""\u202e\u009b\u007f\udb40\udc41\n""#);
        assert_eq!(serde_json::from_str::<String>(&spelled).unwrap(), text);
    }

    #[test]
    fn only_colours_reach_a_terminal() {
        for (written, shown) in [
            ("a\tb", "a\tb"),
            ("\u{1b}]0;pwn\u{7}\u{1b}[2Jx", r"\u{1b}]0;pwn\u{7}\u{1b}[2Jx"),
            ("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m\u{1b}[0m"),
            ("\u{1b}[38;5;8mgrey", "\u{1b}[38;5;8mgrey\u{1b}[0m"),
            ("\u{1b}[48;2;1;8;5mx", "\u{1b}[48;2;1;8;5mx\u{1b}[0m"),
            ("\u{1b}[8mhidden", r"\u{1b}[8mhidden"),
            ("\u{1b}[38;5", r"\u{1b}[38;5"),
            ("\u{1b}\u{1b}[31;5mx\u{9b}31m", r"\u{1b}\u{1b}[31;5mx\u{9b}31m"),
            ("50%\r60%", r"50%\r60%"),
        ] {
            assert_eq!(tamed(written), shown, "{written:?}");
        }
    }
}
