//! Texts with the escapes of JSON strings decoded, to find values in whatever form a program has written them.

/// How often escapes are decoded: JSON may be a string in other JSON, and that again.
const LEVELS_MAX: usize = 3;
/// The bytes of the longest escape: two halves of a character beyond the Basic Multilingual Plane.
const ESCAPE_BYTES_MAX: usize = 12;

/// A text in which escapes are decoded. An escape that the end of the text cuts short is left out, and everything
/// that is no escape of JSON stays as it is.
pub(super) struct Unescaped {
    pub text: String,
    /// Where each byte of the text, and its end, is in the source.
    pub places: Vec<usize>,
}

impl Unescaped {
    /// The source with its escapes decoded once, twice, and so on, as long as it has any.
    pub fn levels(source: &str) -> Vec<Unescaped> {
        let mut levels: Vec<Unescaped> = Vec::new();
        while levels.len() < LEVELS_MAX {
            let next = match levels.last() {
                None => Unescaped::decoded(source, |at| at),
                Some(last) => Unescaped::decoded(&last.text, |at| last.places[at]),
            };
            match next {
                Some(next) => levels.push(next),
                None => break,
            }
        }
        levels
    }

    /// `None` if the text has no escapes.
    fn decoded(escaped: &str, place: impl Fn(usize) -> usize) -> Option<Self> {
        if !escaped.contains('\\') {
            return None;
        }
        let (mut text, mut places) = (String::with_capacity(escaped.len()), Vec::new());
        let mut at = 0;
        while let Some(first) = escaped[at..].chars().next() {
            let rest = &escaped[at..];
            let (character, length) = match first {
                '\\' if is_cut_short(rest) => break,
                '\\' => escape(rest).unwrap_or((first, 1)),
                _ => (first, first.len_utf8()),
            };
            text.push(character);
            places.resize(text.len(), place(at));
            at += length;
        }
        places.push(place(escaped.len()));
        Some(Unescaped { text, places })
    }
}

/// The character of the escape with which a text begins, and the bytes of the escape.
fn escape(text: &str) -> Option<(char, usize)> {
    let character = match text.as_bytes().get(1)? {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        same @ (b'"' | b'\\' | b'/') => char::from(*same),
        b'u' => {
            let first = unit(text)?;
            if let Some(character) = char::from_u32(first.into()) {
                return Some((character, 6));
            }
            let second = text.get(6..).and_then(unit)?;
            let pair = char::decode_utf16([first, second]).next()?.ok()?;
            return Some((pair, ESCAPE_BYTES_MAX));
        }
        _ => return None,
    };
    Some((character, 2))
}

/// The code unit of an escape such as `\u00e9` at the beginning of a text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// Whether a text that begins with a backslash is the beginning of an escape and nothing else.
fn is_cut_short(text: &str) -> bool {
    let is_of_escape = |byte: u8| byte.is_ascii_hexdigit() || byte == b'\\' || byte == b'u';
    match text.strip_prefix("\\u") {
        Some(rest) => {
            text.len() < ESCAPE_BYTES_MAX && escape(text).is_none() && rest.bytes().all(is_of_escape)
        }
        None => text.len() == 1,
    }
}
