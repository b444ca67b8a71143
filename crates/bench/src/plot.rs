//! Small text plots: a row of blocks for a value over time, and bars for a distribution. Uses plain ASCII if stdout
//! is not a terminal or the user has disabled colour.

use std::io::IsTerminal;

/// The characters that a plot may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlotMark {
    Blocks,
    Ascii,
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
/// Width of the longest bar, and of the longest row of blocks.
const BAR_COLUMNS: usize = 40;
const ROW_COLUMNS: usize = 60;

impl PlotMark {
    /// The characters that suit stdout.
    pub fn of_stdout() -> Self {
        let asked_for_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if std::io::stdout().is_terminal() && !asked_for_plain { PlotMark::Blocks } else { PlotMark::Ascii }
    }

    /// One column per value, with the highest value at full height. A level row means a steady value. Many values are
    /// averaged into fewer columns.
    pub fn row(self, values: &[f64]) -> String {
        let columns = gathered(values);
        let highest = columns.iter().copied().fold(0.0, f64::max);
        let letters = match self {
            PlotMark::Blocks => BLOCKS,
            PlotMark::Ascii => ASCII,
        };
        let letter = |value: f64| {
            let place = if highest > 0.0 { (value / highest * 8.0).ceil() as usize } else { 0 };
            letters[place.clamp(1, 8) - 1]
        };
        columns.into_iter().map(letter).collect()
    }

    /// One bar per line, with its name in front and its number behind.
    pub fn bars(self, bars: &[(String, u64)]) -> String {
        let highest = bars.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        let names = bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let block = if self == PlotMark::Blocks { "█" } else { "#" };
        let line = |(name, count): &(String, u64)| {
            let full = BAR_COLUMNS as u64 * count;
            // A bin that is not empty gets at least one column.
            let columns = full.div_ceil(highest) as usize;
            format!("  {name:>names$}  {} {count}", block.repeat(columns))
        };
        bars.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn gathered(values: &[f64]) -> Vec<f64> {
    let per_column = values.len().div_ceil(ROW_COLUMNS).max(1);
    values.chunks(per_column).map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_each_value_as_a_share_of_the_highest() {
        assert_eq!(PlotMark::Blocks.row(&[8.0, 4.0, 1.0, 0.0]), "█▄▁▁");
        assert_eq!(PlotMark::Ascii.row(&[8.0, 4.0, 1.0, 0.0]), "#-__");
        assert_eq!(PlotMark::Blocks.row(&[0.0, 0.0]), "▁▁");
        assert_eq!(PlotMark::Blocks.row(&[]), "");
        assert_eq!(PlotMark::Blocks.row(&vec![1.0; 601]).chars().count(), 55);
    }

    #[test]
    fn a_bar_that_is_not_empty_is_visible() {
        let bars = [("1 ms".to_owned(), 4_000), ("10 ms".to_owned(), 1), ("20 ms".to_owned(), 0)];
        let shown = PlotMark::Ascii.bars(&bars);
        assert_eq!(shown, format!("   1 ms  {} 4000\n  10 ms  # 1\n  20 ms   0", "#".repeat(40)));
    }
}
