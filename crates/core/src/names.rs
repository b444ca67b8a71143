//! Valid names of jobs, job types, queues, owners, tags, keys and workers. A name is checked when it enters
//! the system. A name that was stored before a rule existed can still be read and used.
//!
//! Two names that look alike should be the same name, and a name should look like what it is. Invisible
//! characters are therefore rejected, and so are characters that change the direction of the surrounding
//! text, and noncharacters, which are never assigned and which some tools replace. Joiners and variation
//! selectors are part of many scripts and of emoji: they are allowed between non-ASCII characters, where they
//! are visible.

use crate::limits;
use std::fmt::Write;

/// The error in a name, to be appended to the field: "must …".
pub fn name_problem(text: &str) -> Option<String> {
    if let Some(problem) = length_problem(text) {
        return Some(problem);
    }
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let is_misplaced = match usage(character) {
            CharacterUsage::Anywhere => false,
            CharacterUsage::Nowhere(_) => true,
            CharacterUsage::AfterOthers => !is_beyond_ascii(before),
            CharacterUsage::BetweenOthers => {
                !is_beyond_ascii(before) || !is_beyond_ascii(rest.peek().copied())
            }
        };
        if is_misplaced {
            return Some(refused(character, text));
        }
        before = Some(character);
    }
    if text.chars().all(is_blank) {
        return Some(format!("must not be blank, as in {}: use a name with visible characters", shown(text)));
    }
    if text.starts_with(is_blank) || text.ends_with(is_blank) {
        return Some(format!(
            "must not begin or end with white space, as in {}: write {}",
            shown(text),
            shown(text.trim_matches(is_blank))
        ));
    }
    None
}

/// Like [`name_problem`], for a name that is part of a URL path, where `.` and `..` have another meaning.
pub fn path_name_problem(text: &str) -> Option<String> {
    match text {
        "." | ".." => {
            Some(format!("must not be {}, which cannot be part of a URL: choose another name", shown(text)))
        }
        _ => name_problem(text),
    }
}

/// Like [`path_name_problem`], for the name of one queue. Scopes have patterns of such names.
pub fn queue_name_problem(text: &str) -> Option<String> {
    path_name_problem(text).or_else(|| pattern_problem(text, "queue"))
}

/// Like [`name_problem`], for the name of one owner.
pub fn owner_name_problem(text: &str) -> Option<String> {
    name_problem(text).or_else(|| pattern_problem(text, "owner"))
}

fn pattern_problem(text: &str, object: &str) -> Option<String> {
    let fix = || format!("must not contain *, as in {}: this is a pattern; name one {object}", shown(text));
    text.contains('*').then(fix)
}

/// The error in a short text that is not a name, such as a part of an error message: it must fit on one line.
pub fn line_problem(text: &str) -> Option<String> {
    length_problem(text).or_else(|| text.chars().find(|one| is_hidden(*one)).map(|one| refused(one, text)))
}

fn length_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("must not be empty".to_owned());
    }
    let (most, bytes) = (limits::NAME_BYTES_MAX, text.len());
    (bytes > most).then(|| format!("must be at most {most} bytes, not {bytes}"))
}

/// Whether a character is invisible everywhere: a control character, a character that changes the text
/// direction, an invisible one, or a noncharacter.
pub fn is_hidden(character: char) -> bool {
    matches!(usage(character), CharacterUsage::Nowhere(_))
}

/// Where in a name a character is allowed.
enum CharacterUsage {
    Anywhere,
    /// After a non-ASCII character: variation selectors.
    AfterOthers,
    /// Between two non-ASCII characters: joiners.
    BetweenOthers,
    /// Nowhere; the text says what kind of character it is.
    Nowhere(&'static str),
}

fn usage(character: char) -> CharacterUsage {
    match character {
        ' '..='~' => CharacterUsage::Anywhere,
        '\u{2028}' | '\u{2029}' => CharacterUsage::Nowhere("control character"),
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            CharacterUsage::Nowhere("bidirectional control character")
        }
        '\u{200c}' | '\u{200d}' => CharacterUsage::BetweenOthers,
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => CharacterUsage::AfterOthers,
        // The characters that Unicode lists as default ignorable, except those above, and annotations.
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => CharacterUsage::Nowhere("invisible character"),
        '\u{fdd0}'..='\u{fdef}' => CharacterUsage::Nowhere("noncharacter"),
        // The last two code points of each plane.
        other if u32::from(other) & 0xfffe == 0xfffe => CharacterUsage::Nowhere("noncharacter"),
        other if other.is_control() => CharacterUsage::Nowhere("control character"),
        _ => CharacterUsage::Anywhere,
    }
}

/// Whether a joiner or a variation selector can apply to this character.
fn is_beyond_ascii(character: Option<char>) -> bool {
    character.is_some_and(|one| {
        !one.is_ascii()
            && !is_blank(one)
            && !matches!(usage(one), CharacterUsage::Nowhere(_) | CharacterUsage::BetweenOthers)
    })
}

/// White space, and the Braille pattern without dots.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == '\u{2800}'
}

fn refused(character: char, text: &str) -> String {
    let what = match usage(character) {
        CharacterUsage::Nowhere(what) => what,
        _ => "invisible character",
    };
    format!("must not contain the {what} {}, as in {}: remove it", code(character), shown(text))
}

fn code(character: char) -> String {
    format!("U+{:04X}", u32::from(character))
}

/// The text in quotes, with invisible characters shown as their code points.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push('"');
    for character in text.chars() {
        let is_seen = matches!(usage(character), CharacterUsage::Anywhere)
            && (character == ' ' || !is_blank(character));
        if is_seen {
            shown.push(character);
        } else {
            let _ = write!(shown, "<{}>", code(character));
        }
    }
    shown.push('"');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_of_all_scripts_are_allowed() {
        for name in [
            "report",
            "nightly report (EU)",
            "a.b/c:d@e#1",
            "Grüße",
            "日次レポート",
            "отчёт",
            "تقرير",
            "דוח",
            // Persian, with a joiner that the word requires.
            "می\u{200c}خواهم",
            // Sinhala and Devanagari, with joiners.
            "ශ\u{dca}\u{200d}රී",
            "क\u{94d}\u{200d}ष",
            "👩\u{200d}🔧",
            "❤\u{fe0f}\u{200d}🔥",
            "done ✔\u{fe0f}",
            "葛\u{e0100}城",
        ] {
            assert_eq!(name_problem(name), None, "{name}");
        }
        assert_eq!(name_problem(&"x".repeat(limits::NAME_BYTES_MAX)), None);
    }

    #[test]
    fn each_refusal_says_what_and_where_and_what_to_do() {
        let long = "must be at most 200 bytes, not 201";
        for (name, problem) in [
            ("", "must not be empty"),
            (&"x".repeat(201), long),
            (" ", "must not be blank, as in \" \": use a name with visible characters"),
            (
                "\u{3000}\u{a0}",
                "must not be blank, as in \"<U+3000><U+00A0>\": use a name with visible characters",
            ),
            ("\u{2800}", "must not be blank, as in \"<U+2800>\": use a name with visible characters"),
            (" a", "must not begin or end with white space, as in \" a\": write \"a\""),
            ("a b\u{2003}", "must not begin or end with white space, as in \"a b<U+2003>\": write \"a b\""),
            ("a\nb", "must not contain the control character U+000A, as in \"a<U+000A>b\": remove it"),
            ("a\u{85}", "must not contain the control character U+0085, as in \"a<U+0085>\": remove it"),
            ("a\u{2028}b", "must not contain the control character U+2028, as in \"a<U+2028>b\": remove it"),
            (
                "in\u{202e}voice",
                "must not contain the bidirectional control character U+202E, as in \"in<U+202E>voice\": remove it",
            ),
            ("\u{200b}", "must not contain the invisible character U+200B, as in \"<U+200B>\": remove it"),
            (
                "a\u{200d}b",
                "must not contain the invisible character U+200D, as in \"a<U+200D>b\": remove it",
            ),
            ("a\u{fe0f}", "must not contain the invisible character U+FE0F, as in \"a<U+FE0F>\": remove it"),
            ("ü\u{200d}", "must not contain the invisible character U+200D, as in \"ü<U+200D>\": remove it"),
            (
                "ü\u{200d}\u{200d}ü",
                "must not contain the invisible character U+200D, as in \"ü<U+200D><U+200D>ü\": remove it",
            ),
            ("a\u{fdd0}b", "must not contain the noncharacter U+FDD0, as in \"a<U+FDD0>b\": remove it"),
            ("\u{feff}a", "must not contain the invisible character U+FEFF, as in \"<U+FEFF>a\": remove it"),
            ("\u{e0041}", "must not contain the invisible character U+E0041, as in \"<U+E0041>\": remove it"),
        ] {
            assert_eq!(name_problem(name).as_deref(), Some(problem), "{name:?}");
        }
    }

    #[test]
    fn no_bidirectional_control_is_let_through_anywhere() {
        let controls = ['\u{61c}', '\u{200e}', '\u{200f}'];
        let controls = controls.into_iter().chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        for control in controls {
            for name in [format!("{control}a"), format!("a{control}b"), format!("ü{control}ü")] {
                assert!(name_problem(&name).is_some(), "{}", code(control));
            }
        }
    }

    #[test]
    fn no_noncharacter_is_let_through() {
        let last_of_planes = (0..=0x10).flat_map(|plane| [plane << 16 | 0xfffe, plane << 16 | 0xffff]);
        let all: Vec<u32> = (0xfdd0..=0xfdef).chain(last_of_planes).collect();
        assert_eq!(all.len(), 66);
        for one in all.into_iter().filter_map(char::from_u32) {
            assert!(name_problem(&format!("a{one}b")).is_some(), "{}", code(one));
        }
        for one in ['\u{fdcf}', '\u{fdf0}', '\u{fffd}', '\u{1fffd}', '\u{20000}'] {
            assert_eq!(name_problem(&format!("a{one}b")), None, "{}", code(one));
        }
    }

    #[test]
    fn names_in_paths_are_not_those_of_folders() {
        for name in [".", ".."] {
            assert_eq!(name_problem(name), None);
            assert!(
                path_name_problem(name).is_some_and(|problem| problem.contains("cannot be part of a URL"))
            );
        }
        assert_eq!(path_name_problem("..."), None);
        assert_eq!(path_name_problem("").as_deref(), Some("must not be empty"));
    }

    #[test]
    fn a_queue_and_an_owner_are_not_patterns() {
        let problem = |object: &str| {
            Some(format!("must not contain *, as in \"mail-*\": this is a pattern; name one {object}"))
        };
        assert_eq!(queue_name_problem("mail-*"), problem("queue"));
        assert_eq!(owner_name_problem("mail-*"), problem("owner"));
        assert_eq!((queue_name_problem("mail-1"), owner_name_problem("mail-1")), (None, None));
        assert!(queue_name_problem("..").is_some_and(|problem| problem.contains("URL")));
        assert_eq!(owner_name_problem("").as_deref(), Some("must not be empty"));
        assert_eq!(name_problem("5 * 5"), None);
    }

    #[test]
    fn a_line_of_text_may_have_space_around_it() {
        assert_eq!(line_problem("no such file: "), None);
        assert_eq!(line_problem(""), Some("must not be empty".to_owned()));
        assert!(line_problem("a\nb").is_some_and(|problem| problem.contains("U+000A")));
    }

    proptest! {
        /// An allowed name is visible, fits, and has no blank at either end.
        #[test]
        fn an_allowed_name_can_be_seen(name in ".{0,60}") {
            if name_problem(&name).is_none() {
                prop_assert!((1..=limits::NAME_BYTES_MAX).contains(&name.len()));
                prop_assert_eq!(name.trim(), &name);
                prop_assert!(name.chars().any(|one| !is_blank(one) && matches!(usage(one), CharacterUsage::Anywhere)));
                prop_assert!(!name.chars().any(|one| matches!(usage(one), CharacterUsage::Nowhere(_))));
            }
        }

        /// A message never repeats a rejected character: it shows the code point instead.
        #[test]
        fn a_message_can_be_read(name in "[a-zü \u{200b}\u{200d}\u{202e}\u{fe0f}\n\u{3000}]{0,20}") {
            if let Some(problem) = name_problem(&name) {
                prop_assert!(problem.chars().all(|one| one == ' ' || !is_blank(one)));
                prop_assert!(problem.chars().all(|one| matches!(usage(one), CharacterUsage::Anywhere)), "{}", problem);
            }
        }

        /// One character that is rejected everywhere makes every name invalid, at any position.
        #[test]
        fn one_refused_character_is_found(before in "[a-zü]{0,5}", after in "[a-zü]{0,5}", one in any::<char>()) {
            if matches!(usage(one), CharacterUsage::Nowhere(_)) {
                let problem = name_problem(&format!("{before}{one}{after}")).unwrap_or_default();
                prop_assert!(problem.contains(&code(one)), "{}", problem);
            }
        }
    }
}
