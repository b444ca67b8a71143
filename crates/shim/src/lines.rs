//! Splits bytes into lines of bounded length.

/// Bytes kept of a line: the maximum of a result, and one more to detect longer lines.
pub const LINE_BYTES_MAX: usize = punctual_core::limits::RESULT_BYTES_MAX + 1;

/// An unfinished line.
pub struct PartialLine {
    rest: Vec<u8>,
    bytes_max: usize,
}

impl Default for PartialLine {
    fn default() -> Self {
        PartialLine::up_to(LINE_BYTES_MAX)
    }
}

impl PartialLine {
    /// Lines of which at most this many bytes are kept.
    pub fn up_to(bytes_max: usize) -> Self {
        PartialLine { rest: Vec::new(), bytes_max }
    }

    /// Adds bytes and passes on every line that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = self.bytes_max - self.rest.len();
            self.rest.extend_from_slice(&part[..part.len().min(room)]);
            if parts.peek().is_some() {
                line(&self.rest);
                self.rest.clear();
            }
        }
    }

    /// Passes on the last line if it has no line break.
    pub fn finish(self, line: impl FnOnce(&[u8])) {
        if !self.rest.is_empty() {
            line(&self.rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        let mut add = |line: &[u8]| found.push(String::from_utf8_lossy(line).into_owned());
        let mut lines = PartialLine::default();
        for chunk in chunks {
            lines.feed(chunk, &mut add);
        }
        lines.finish(&mut add);
        found
    }

    #[test]
    fn lines_are_split_however_the_bytes_arrive() {
        assert_eq!(lines(&[b"one\ntwo\n\nfour"]), ["one", "two", "", "four"]);
        assert_eq!(lines(&[b"o", b"ne\nt", b"wo\n", b"\nfo", b"ur"]), ["one", "two", "", "four"]);
        assert_eq!(lines(&[b"", b"\n"]), [""]);
        assert_eq!(lines(&[]), [""; 0]);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_complete() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        let found = lines(&[&long, &long, b"\nnext\n"]);
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX, 4]);
    }
}
