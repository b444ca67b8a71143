//! A frame as a grid of characters with styles, and the terminal that shows frames.

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, ContentStyle, PrintStyledContent, ResetColor, SetAttribute};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use std::io::{self, Write};
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    pub x: u16,
    pub y: u16,
    pub width: u16,
    pub height: u16,
}

impl Area {
    /// One of its lines; empty if it has fewer.
    pub fn line(self, number: u16) -> Area {
        self.lines(number..number.saturating_add(1))
    }

    /// Some of its lines, as far as it has them.
    pub fn lines(self, lines: Range<u16>) -> Area {
        let start = lines.start.min(self.height);
        let end = lines.end.clamp(start, self.height);
        Area { y: self.y + start, height: end - start, ..self }
    }

    /// Its columns from `x` on, as far as it has them.
    pub fn columns(self, x: u16, width: u16) -> Area {
        let x = x.min(self.width);
        Area { x: self.x + x, width: width.min(self.width - x), ..self }
    }
}

/// Divides a length by shares, with gaps between the parts. The parts take all of it.
pub fn divided(length: u16, shares: &[u16], gap: u16) -> Vec<Range<u16>> {
    let free = u32::from(length.saturating_sub(gap * (shares.len() as u16).saturating_sub(1)));
    let all: u32 = shares.iter().copied().map(u32::from).sum();
    // Rounded to the nearest column.
    let end_of = |taken: u32| ((free * taken * 2 + all) / (all * 2)) as u16;
    let mut taken = 0;
    let mut parts = Vec::with_capacity(shares.len());
    for (number, share) in shares.iter().enumerate() {
        let gaps = gap * number as u16;
        let start = end_of(taken) + gaps;
        taken += u32::from(*share);
        let end = end_of(taken) + gaps;
        parts.push(start.min(length)..end.min(length));
    }
    parts
}

/// A character with its style. What follows a wide character is empty.
#[derive(Debug, Clone, PartialEq)]
struct CanvasCell {
    text: String,
    style: ContentStyle,
}

/// A frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Canvas {
    width: u16,
    height: u16,
    cells: Vec<CanvasCell>,
}

impl Canvas {
    pub fn new(width: u16, height: u16) -> Self {
        let blank = CanvasCell { text: " ".to_owned(), style: ContentStyle::new() };
        Canvas { width, height, cells: vec![blank; usize::from(width) * usize::from(height)] }
    }

    pub fn area(&self) -> Area {
        Area { x: 0, y: 0, width: self.width, height: self.height }
    }

    /// Writes a text into the first line of an area and cuts it off at its end. Control characters are left out.
    pub fn write(&mut self, area: Area, text: &str, style: ContentStyle) {
        if area.height == 0 {
            return;
        }
        let mut x = area.x;
        let end = area.x + area.width;
        for character in text.graphemes(true) {
            let width = character.width() as u16;
            if width == 0 || character.chars().any(char::is_control) {
                continue;
            }
            if x + width > end {
                return;
            }
            for column in x..x + width {
                let text = if column == x { character.to_owned() } else { String::new() };
                self.put(column, area.y, CanvasCell { text, style });
            }
            x += width;
        }
    }

    pub fn write_right(&mut self, area: Area, text: &str, style: ContentStyle) {
        let width = (text.width() as u16).min(area.width);
        self.write(area.columns(area.width - width, width), text, style);
    }

    /// Writes the same character into each column of the first line of an area.
    pub fn fill(&mut self, area: Area, character: &str, style: ContentStyle) {
        self.write(area, &character.repeat(usize::from(area.width)), style);
    }

    fn put(&mut self, x: u16, y: u16, cell: CanvasCell) {
        if x >= self.width || y >= self.height {
            return;
        }
        let place = usize::from(y) * usize::from(self.width) + usize::from(x);
        // Half of a wide character is none.
        if self.cells[place].text.is_empty() && !cell.text.is_empty() {
            self.cells[place - 1].text = " ".to_owned();
        }
        self.cells[place] = cell;
    }

    fn line(&self, y: u16) -> &[CanvasCell] {
        let start = usize::from(y) * usize::from(self.width);
        &self.cells[start..start + usize::from(self.width)]
    }

    /// The frame as text, without colours.
    pub fn plain(&self) -> String {
        let line = |y: u16| {
            let line: String = self.line(y).iter().map(|cell| cell.text.as_str()).collect();
            line.trim_end().to_owned()
        };
        (0..self.height).map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The terminal while it shows frames. It is restored in the end, also after a panic.
pub struct Screen {
    shown: Option<Canvas>,
}

impl Screen {
    pub fn take_over() -> io::Result<Self> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        terminal::enable_raw_mode()?;
        let screen = Screen { shown: None };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Shows a frame of the terminal's size. Writes only the lines that differ from the last frame.
    pub fn show(&mut self, draw: impl FnOnce(&mut Canvas)) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let mut canvas = Canvas::new(width, height);
        draw(&mut canvas);
        let shown = self.shown.take().filter(|shown| shown.area() == canvas.area());
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        if shown.is_none() {
            queue!(out, Clear(ClearType::All))?;
        }
        for y in 0..height {
            if shown.as_ref().is_none_or(|shown| shown.line(y) != canvas.line(y)) {
                write_line(&mut out, y, canvas.line(y))?;
            }
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()?;
        self.shown = Some(canvas);
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // Nothing can be done if the terminal is gone.
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}

fn write_line(out: &mut impl Write, y: u16, line: &[CanvasCell]) -> io::Result<()> {
    queue!(out, MoveTo(0, y))?;
    for run in line.chunk_by(|cell, next| cell.style == next.style) {
        let text: String = run.iter().map(|cell| cell.text.as_str()).collect();
        queue!(out, PrintStyledContent(run[0].style.apply(text)))?;
    }
    queue!(out, ResetColor, SetAttribute(Attribute::Reset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_take_the_whole_length() {
        assert_eq!(divided(80, &[1, 1], 0), [0..40, 40..80]);
        assert_eq!(divided(20, &[1, 1, 1], 1), [0..6, 7..13, 14..20]);
        assert_eq!(divided(5, &[1, 1], 0), [0..3, 3..5]);
        assert_eq!(divided(1, &[1, 1, 1], 1), [0..0, 1..1, 1..1]);
    }

    #[test]
    fn wide_characters_are_not_cut_and_control_characters_are_left_out() {
        let mut canvas = Canvas::new(5, 1);
        canvas.write(canvas.area(), "a\u{1b}[中文文", ContentStyle::new());
        assert_eq!(canvas.plain(), "a[中");
        canvas.write_right(canvas.area(), "中", ContentStyle::new());
        assert_eq!(canvas.plain(), "a[ 中");
    }
}
