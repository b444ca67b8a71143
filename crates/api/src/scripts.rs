//! Scripts of the dashboard as they are sent: without indentation and lines of comments. Lines keep their numbers, and
//! the text of template literals stays as it is.

/// What a line of a script begins in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// The number of open braces since the `${` that leads here, or since the beginning.
    Code {
        braces: usize,
    },
    Template,
    Comment,
}

/// Removes comments that fill whole lines, and indentation, outside of template literals.
pub fn compact(script: &str) -> String {
    let mut compacted = String::with_capacity(script.len());
    let mut open = vec![Inside::Code { braces: 0 }];
    for line in script.split_inclusive('\n') {
        let (begins_in, text) = (open.last().copied(), line.trim_start());
        read_line(line, &mut open);
        let is_comment = text.starts_with("//") || text.starts_with("/*") && is_whole_comment(text);
        match begins_in {
            Some(Inside::Template) => compacted.push_str(line),
            Some(Inside::Comment) => match text.split_once("*/") {
                Some((_, rest)) => compacted.push_str(rest),
                None => compacted.push('\n'),
            },
            _ if is_comment => compacted.push('\n'),
            // A line break that was trimmed with its indentation.
            _ if text.is_empty() => compacted.push('\n'),
            _ => compacted.push_str(text),
        }
    }
    compacted
}

/// Whether a line that begins with a comment has nothing after it.
fn is_whole_comment(text: &str) -> bool {
    text.split_once("*/").is_none_or(|(_, rest)| rest.trim().is_empty())
}

/// Follows what is open from the beginning of a line to its end.
fn read_line(line: &str, open: &mut Vec<Inside>) {
    let bytes = line.as_bytes();
    let mut at = 0;
    // A slash after an operand divides; after anything else it begins a regular expression.
    let mut is_after_operand = false;
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        at += 1;
        match open.last_mut() {
            Some(Inside::Comment) => {
                if (byte, next) == (b'*', Some(b'/')) {
                    open.pop();
                    at += 1;
                }
            }
            Some(Inside::Template) => match (byte, next) {
                (b'\\', _) => at += 1,
                (b'`', _) => {
                    open.pop();
                    is_after_operand = true;
                }
                (b'$', Some(b'{')) => {
                    open.push(Inside::Code { braces: 0 });
                    at += 1;
                    is_after_operand = false;
                }
                _ => {}
            },
            Some(Inside::Code { braces }) => {
                match (byte, next) {
                    (b'/', Some(b'/')) => return,
                    (b'/', Some(b'*')) => {
                        open.push(Inside::Comment);
                        at += 1;
                        continue;
                    }
                    (b'/', _) if !is_after_operand => at = end_of(bytes, at, b'/'),
                    (b'"' | b'\'', _) => at = end_of(bytes, at, byte),
                    (b'`', _) => open.push(Inside::Template),
                    (b'{', _) => *braces += 1,
                    (b'}', _) if *braces == 0 => drop(open.pop()),
                    (b'}', _) => *braces -= 1,
                    _ => {}
                }
                let is_operand = byte.is_ascii_alphanumeric() || b")]_$\"'".contains(&byte);
                is_after_operand = if byte.is_ascii_whitespace() {
                    is_after_operand && !ends_with_keyword(&bytes[..at])
                } else {
                    is_operand
                };
            }
            None => return,
        }
    }
}

fn ends_with_keyword(code: &[u8]) -> bool {
    let code = code.trim_ascii_end();
    ["return", "typeof", "case"].iter().any(|word| code.ends_with(word.as_bytes()))
}

/// The place after the end of a text or a regular expression, in which a class may contain a slash.
fn end_of(bytes: &[u8], mut at: usize, end: u8) -> usize {
    let mut is_class = false;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'[' if end == b'/' => is_class = true,
            b']' => is_class = false,
            _ if byte == end && !is_class => return at,
            _ => {}
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_indentation_go_and_texts_stay() {
        let script = "  // A comment.\n  /** Types.\n   * More. */\n  const a = '//'; // kept\n\n  f(`\n    // text\n  ${ {\n    b: `\n  c` }.b }\n    /* text */\n  `);\n    /[`/*]/.test(a); /* kept */ d / e; `\n  f`;\n    return /'/;\n    g();\n";
        let expected = "\n\n\nconst a = '//'; // kept\n\nf(`\n    // text\n  ${ {\nb: `\n  c` }.b }\n    /* text */\n  `);\n/[`/*]/.test(a); /* kept */ d / e; `\n  f`;\nreturn /'/;\ng();\n";
        assert_eq!(compact(script), expected);
    }
}
