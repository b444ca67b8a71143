//! Splits Rust source into code, literals and tests for the rules. A small lexer without a parser, because
//! the rules need words and positions, not meaning.

use super::Violation;

/// A Rust file in several views with the same length and lines, so that a position in one is valid in all.
pub struct RustSource<'a> {
    pub path: &'a str,
    /// As written.
    pub text: &'a str,
    /// Without comments and without the contents of literals.
    pub code: String,
    /// [`RustSource::code`] without items that are compiled only for tests.
    pub product_code: String,
    /// Only the contents of literals, without those in items that are compiled only for tests.
    pub product_literals: String,
}

impl<'a> RustSource<'a> {
    pub fn new(path: &'a str, text: &'a str) -> Self {
        let Split { code, literals } = split(text);
        let is_test_file = is_test_path(path);
        let tests: Vec<_> =
            if is_test_file { std::iter::once(0..code.len()).collect() } else { test_items(&code) };
        let (mut product_code, mut product_literals) = (code.clone(), literals);
        for item in tests {
            blank(&mut product_code, item.clone());
            blank(&mut product_literals, item);
        }
        RustSource { path, text, code, product_code, product_literals }
    }

    /// The directory of the crate under `crates/`, or the first directory of the path.
    pub fn crate_name(&self) -> &'a str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or(""),
            first => first.unwrap_or(""),
        }
    }

    pub fn is_in_tests_directory(&self) -> bool {
        self.path.split('/').any(|part| part == "tests")
    }

    pub fn violation(&self, at: usize, rule: &'static str, advice: impl Into<String>) -> Violation {
        let line = 1 + self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        Violation { path: self.path.to_owned(), line, rule, advice: advice.into() }
    }
}

/// Tests, benchmarks and examples are not part of the product.
fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "tests.rs", "benches", "examples"].contains(&part))
}

/// Every position at which `needle` occurs as a whole word or path, not as part of a longer one.
pub fn find_words(haystack: &str, needle: &str) -> Vec<usize> {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let (bytes, ends_in_word) = (haystack.as_bytes(), is_word(needle.as_bytes().last()));
    let starts_in_word = is_word(needle.as_bytes().first());
    let whole = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let after = bytes.get(at + needle.len());
        !(starts_in_word && is_word(before) || ends_in_word && is_word(after))
    };
    haystack.match_indices(needle).map(|(at, _)| at).filter(|at| whole(*at)).collect()
}

/// A path in a `use`, fully expanded, and its end.
#[derive(Debug, PartialEq, Eq)]
pub struct UsedPath {
    pub path: String,
    pub at: usize,
}

/// Every path in a `use`, with groups expanded, so that `use std::{thread, time}` hides nothing.
pub fn used_paths(code: &str) -> Vec<UsedPath> {
    let mut paths = Vec::new();
    for at in find_words(code, "use") {
        let end = code[at..].find(';').map_or(code.len(), |length| at + length);
        expand(code, at + "use".len(), end, &mut String::new(), &mut paths);
    }
    paths
}

/// Expands one level of a `use` and returns where it stopped: after a closing brace or at the end.
fn expand(code: &str, mut at: usize, end: usize, prefix: &mut String, paths: &mut Vec<UsedPath>) -> usize {
    let (start, mut named_at) = (prefix.len(), at);
    while at < end {
        match code.as_bytes()[at] {
            b'{' => {
                at = expand(code, at + 1, end, &mut prefix.clone(), paths);
                prefix.truncate(start);
                continue;
            }
            closing @ (b',' | b'}') => {
                push_path(prefix, start, named_at, paths);
                prefix.truncate(start);
                if closing == b'}' {
                    return at + 1;
                }
            }
            space if space.is_ascii_whitespace() => {
                if code[at..end].trim_start().starts_with("as ") && !prefix.ends_with(' ') {
                    prefix.push_str(" as ");
                    at += code[at..end].find("as").expect("it starts with it") + 1;
                }
            }
            byte => {
                named_at = at;
                prefix.push(byte as char);
            }
        }
        at += 1;
    }
    push_path(prefix, start, named_at, paths);
    at
}

fn push_path(path: &str, start: usize, at: usize, paths: &mut Vec<UsedPath>) {
    if path.len() > start {
        paths.push(UsedPath { path: path.trim_start_matches("::").to_owned(), at });
    }
}

struct Split {
    code: String,
    literals: String,
}

/// Separates code from the contents of literals; comments are dropped.
fn split(text: &str) -> Split {
    let bytes = text.as_bytes();
    let (mut code, mut literals) = (spaces(bytes), spaces(bytes));
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") {
            at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        } else if rest.starts_with(b"/*") {
            at += block_comment_length(rest);
        } else if let Some(literal) = Literal::at_start(rest, at.checked_sub(1).map(|before| bytes[before])) {
            let content = at + literal.opening..at + literal.length - literal.closing;
            literals[content.clone()].copy_from_slice(&bytes[content.clone()]);
            code[at..content.start].copy_from_slice(&bytes[at..content.start]);
            code[content.end..at + literal.length].copy_from_slice(&bytes[content.end..at + literal.length]);
            at += literal.length;
        } else {
            code[at] = bytes[at];
            at += 1;
        }
    }
    let into_text = |bytes| String::from_utf8(bytes).expect("whole characters are copied or left out");
    Split { code: into_text(code), literals: into_text(literals) }
}

fn spaces(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }).collect()
}

fn block_comment_length(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// A string or character literal: the lengths in bytes of its opening, of the whole, and of its closing.
struct Literal {
    opening: usize,
    length: usize,
    closing: usize,
}

impl Literal {
    fn at_start(bytes: &[u8], before: Option<u8>) -> Option<Literal> {
        let is_prefix_of_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match bytes[0] {
            b'"' => Some(Literal::quoted(bytes)),
            b'\'' => Literal::character(bytes),
            b'r' | b'b' | b'c' if !is_prefix_of_word => Literal::raw(bytes),
            _ => None,
        }
    }

    fn quoted(bytes: &[u8]) -> Literal {
        let mut at = 1;
        while at < bytes.len() && bytes[at] != b'"' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        Literal::ending_at(bytes, 1, at, 1)
    }

    /// Not every apostrophe opens a character: most open a lifetime.
    fn character(bytes: &[u8]) -> Option<Literal> {
        let length = match bytes.get(1)? {
            b'\\' => 3 + bytes.get(3..)?.iter().position(|byte| *byte == b'\'')?,
            _ => {
                let width = std::str::from_utf8(&bytes[1..bytes.len().min(5)])
                    .or_else(|error| std::str::from_utf8(&bytes[1..1 + error.valid_up_to()]))
                    .ok()?
                    .chars()
                    .next()?
                    .len_utf8();
                (bytes.get(1 + width) == Some(&b'\'')).then_some(1 + width)?
            }
        };
        Some(Literal { opening: 1, length: length + 1, closing: 1 })
    }

    fn raw(bytes: &[u8]) -> Option<Literal> {
        let letters = bytes.iter().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
        let hashes = bytes[letters..].iter().take_while(|byte| **byte == b'#').count();
        let is_raw = bytes[..letters].contains(&b'r');
        if letters > 2 || !is_raw || bytes.get(letters + hashes) != Some(&b'"') {
            return None;
        }
        let opening = letters + hashes + 1;
        let closing = [&b"\""[..], &b"#".repeat(hashes)].concat();
        let content = bytes[opening..].windows(closing.len()).position(|window| window == closing);
        let end = content.map_or(bytes.len(), |length| opening + length);
        Some(Literal::ending_at(bytes, opening, end, closing.len()))
    }

    /// A literal whose content ends at `end`, or with the file if it is not closed.
    fn ending_at(bytes: &[u8], opening: usize, end: usize, closing: usize) -> Literal {
        if end + closing <= bytes.len() {
            Literal { opening, length: end + closing, closing }
        } else {
            Literal { opening, length: bytes.len(), closing: 0 }
        }
    }
}

/// The ranges of items under `#[cfg(test)]`, from the attribute to the closing brace or semicolon.
fn test_items(code: &str) -> Vec<std::ops::Range<usize>> {
    code.match_indices("#[cfg(test)]").map(|(at, _)| at..item_end(code, at)).collect()
}

fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn blank(text: &mut String, range: std::ops::Range<usize>) {
    let blanks: String =
        text.as_bytes()[range.clone()].iter().map(|byte| if *byte == b'\n' { '\n' } else { ' ' }).collect();
    text.replace_range(range, &blanks);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        RustSource::new("crates/core/src/a.rs", text).code
    }

    #[test]
    fn comments_and_contents_of_literals_are_not_code() {
        assert_eq!(code("a // b\nc /* /* d */ */ e"), "a     \nc               e");
        assert_eq!(code(r#"f("a \" b", 'x', '\'', '\u{41}')"#), r#"f("      ", ' ', '  ', '      ')"#);
        assert_eq!(code("r#\"a \" b\"# c br\"d\""), "r#\"     \"# c br\" \"");
        assert_eq!(code("fn f<'a>(x: &'a str) -> 'static {}"), "fn f<'a>(x: &'a str) -> 'static {}");
        assert_eq!(code("let for_r = \"– ü\"; var\"x\""), "let for_r = \"      \"; var\" \"");
    }

    #[test]
    fn literals_are_kept_apart() {
        let source = RustSource::new("crates/core/src/a.rs", "query(\"SELECT 1\") // \"SELECT 2\"");
        assert_eq!(source.product_literals.trim(), "SELECT 1");
    }

    #[test]
    fn test_only_items_are_not_product_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { \"}\" } }\nfn c() {}\n#[cfg(test)]\nmod d;\nfn e() {}";
        let source = RustSource::new("crates/core/src/a.rs", text);
        let words: Vec<&str> = source.product_code.split_whitespace().collect();
        assert_eq!(words, ["fn", "a()", "{}", "fn", "c()", "{}", "fn", "e()", "{}"]);
        assert_eq!(RustSource::new("crates/core/tests/a.rs", text).product_code.trim(), "");
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(find_words("rand::x operand::x rand::", "rand::"), [0, 19]);
        assert_eq!(find_words("MyInstant Instant Instants", "Instant"), [10]);
    }

    #[test]
    fn groups_of_a_use_are_expanded() {
        let code = "use std::{thread, time::{Duration, Instant as I}, self};\npub use ::tokio::time;\nfn use_it() {}";
        let paths: Vec<String> = used_paths(code).into_iter().map(|used| used.path).collect();
        assert_eq!(
            paths,
            ["std::thread", "std::time::Duration", "std::time::Instant as I", "std::self", "tokio::time"]
        );
    }

    #[test]
    fn a_file_belongs_to_its_crate() {
        assert_eq!(RustSource::new("crates/core/src/a.rs", "").crate_name(), "core");
        assert_eq!(RustSource::new("xtask/src/main.rs", "").crate_name(), "xtask");
    }
}
