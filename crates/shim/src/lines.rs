//! Splits bytes into lines of bounded length.

/// Bytes kept of a line: the maximum of a result, and one more to detect longer lines.
pub const LINE_BYTES_MAX: usize = punctual_core::limits::RESULT_BYTES_MAX + 1;

/// An unfinished line.
pub struct PartialLine {
    rest: Vec<u8>,
    bytes_max: usize,
}

/// What [`PartialLine`] passes on.
pub enum LinePiece<'a> {
    /// A line, as much of it as is kept.
    Line(&'a [u8]),
    /// Bytes of a line beyond those that are kept.
    Beyond { kept: &'a [u8], beyond: &'a [u8] },
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
        self.feed_whole(bytes, |piece| match piece {
            LinePiece::Line(whole) => line(whole),
            LinePiece::Beyond { .. } => {}
        });
    }

    /// The same, with the bytes that are not kept, before the line that they belong to.
    pub fn feed_whole(&mut self, bytes: &[u8], mut pass: impl FnMut(LinePiece<'_>)) {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = self.bytes_max - self.rest.len();
            let (kept, beyond) = part.split_at(part.len().min(room));
            self.rest.extend_from_slice(kept);
            if !beyond.is_empty() {
                pass(LinePiece::Beyond { kept: &self.rest, beyond });
            }
            if parts.peek().is_some() {
                pass(LinePiece::Line(&self.rest));
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
    fn every_byte_of_a_long_line_can_be_had() {
        let (mut seen, mut pieces) = (Vec::new(), 0);
        let mut lines = PartialLine::up_to(3);
        for chunk in [&b"a\nlon"[..], b"g", b"er", b"\nb\n"] {
            lines.feed_whole(chunk, |piece| match piece {
                LinePiece::Beyond { kept, beyond } => {
                    assert_eq!(kept, b"lon");
                    pieces += 1;
                    seen.extend_from_slice(beyond);
                }
                LinePiece::Line(line) => seen.extend_from_slice(line),
            });
        }
        assert_eq!((seen.as_slice(), pieces), (&b"agerlonb"[..], 2));
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_complete() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        let found = lines(&[&long, &long, b"\nnext\n"]);
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX, 4]);
    }
}
