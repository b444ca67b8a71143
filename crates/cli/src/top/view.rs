//! Draws the live view: a function of the model and the size of the terminal.

use crate::job::live::rough;
use crate::top::canvas::{Area, Canvas, divided};
use crate::top::model::{ConnectionStatus, CountedRate, Model, Pane, TopSnapshot};
use crate::top::rows::{self, Row, Tone};
use crossterm::style::{ContentStyle, Stylize};
use punctual_config::output::time;
use std::time::Duration;

const HELP: [(&str, &str); 8] = [
    ("q, Ctrl-C", "quit"),
    ("p, space", "pause or resume the display"),
    ("tab", "next pane; with shift the previous one"),
    ("s", "sort the pane by its next column"),
    ("up, down", "scroll the pane"),
    ("/", "show only what contains a text; Esc clears it"),
    ("?", "this help; any key closes it"),
    ("2/4", "in the column ATTEMPT: the second of at most four"),
];

/// Lines of the header with the rates, and of the footer.
const HEADER_LINES: u16 = 3;
const FOOTER_LINES: u16 = 1;
/// Columns of the rates, by the length of their names, so that all of them are readable in 80 columns.
const RATE_SHARES: [u16; 5] = [17, 15, 17, 13, 14];
/// The parts of a bar, in eighths.
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

pub fn draw(model: &Model, canvas: &mut Canvas) {
    let area = canvas.area();
    draw_header(model, area.line(0), canvas);
    draw_rates(model, area.lines(1..HEADER_LINES), canvas);
    let panes = area.lines(HEADER_LINES..area.height.saturating_sub(FOOTER_LINES));
    let thirds = divided(panes.height, &[1; 3], 0);
    let [upper, running, failures] = [0, 1, 2].map(|third: usize| panes.lines(thirds[third].clone()));
    let halves = divided(upper.width, &[1; 2], 0);
    let [queues, workers] =
        [0, 1].map(|half: usize| upper.columns(halves[half].start, halves[half].len() as u16));
    for (pane, area) in Pane::ALL.into_iter().zip([queues, workers, running, failures]) {
        draw_pane(model, pane, area, canvas);
    }
    draw_footer(model, area.line(area.height.saturating_sub(FOOTER_LINES)), canvas);
    if model.shows_help {
        draw_help(canvas);
    }
}

fn plain_style() -> ContentStyle {
    ContentStyle::new()
}

fn draw_header(model: &Model, area: Area, canvas: &mut Canvas) {
    let TopSnapshot { version, now, started_at, .. } = &model.snapshot;
    let server = model.server.trim_start_matches("http://");
    let up = started_at.map_or_else(String::new, |since| format!(", up {}", uptime(now.since(since))));
    let left = format!("punctual {version} at {server}{up}  {}", time(*now));
    let (right, style) = match &model.connection {
        ConnectionStatus::Reconnecting { .. } => ("reconnecting…", plain_style().red()),
        ConnectionStatus::Connected if model.is_paused => ("held", plain_style().yellow()),
        ConnectionStatus::Connected => ("live", plain_style().green()),
    };
    canvas.write(area, &left, plain_style().bold());
    canvas.write_right(area, right, style);
}

/// At most two units, because the line has no room for more.
fn uptime(length: Duration) -> String {
    let unit_secs = match length.as_secs() {
        ..3_600 => 1,
        3_600..86_400 => 60,
        _ => 3_600,
    };
    rough(Duration::from_secs(length.as_secs() / unit_secs * unit_secs))
}

/// Each rate above its graph.
fn draw_rates(model: &Model, area: Area, canvas: &mut Canvas) {
    let columns = divided(area.width, &RATE_SHARES, 1);
    for (rate, column) in CountedRate::ALL.into_iter().zip(columns) {
        let column = area.columns(column.start, column.len() as u16);
        let history = model.rate(rate);
        let latest = history.back().map_or_else(|| "-".to_owned(), |latest| per_second(*latest));
        let style = match (rate, history.back()) {
            (CountedRate::Failed, Some(latest)) if *latest > 0.0 => plain_style().red(),
            _ => plain_style(),
        };
        canvas.write(column.line(0), &format!("{} {latest}", rate.name()), style);
        let shown = history.iter().skip(history.len().saturating_sub(usize::from(column.width)));
        // In tenths: one job in ten seconds should be visible.
        let tenths: Vec<u64> = shown.map(|rate| (rate * 10.0).round() as u64).collect();
        let highest = tenths.iter().copied().max().unwrap_or_default().max(1);
        let graph: String = tenths.iter().map(|value| BARS[(value * 8 / highest) as usize]).collect();
        canvas.write(column.line(1), &graph, plain_style().cyan());
    }
}

fn per_second(rate: f64) -> String {
    match rate {
        ..100.0 => format!("{rate:.1}/s"),
        ..1_000.0 => format!("{rate:.0}/s"),
        ..100_000.0 => format!("{:.1}k/s", rate / 1_000.0),
        _ => format!("{:.0}k/s", rate / 1_000.0),
    }
}

fn draw_pane(model: &Model, pane: Pane, area: Area, canvas: &mut Canvas) {
    let rows = rows::rows(model, pane);
    let style = if model.pane == pane { plain_style().cyan() } else { plain_style().dark_grey() };
    canvas.fill(area.line(0), "─", style);
    canvas.write(area.line(0), &title(model, pane, rows.len()), style);
    let inner = area.lines(1..area.height);
    if rows.is_empty() {
        canvas.write(inner, nothing(model, pane), plain_style());
        return;
    }
    let columns = columns(pane, inner.width);
    for ((name, _), (x, width)) in pane.columns().iter().zip(&columns) {
        canvas.write(inner.columns(*x, *width), name, plain_style().dim());
    }
    let shown = rows.iter().skip(model.scroll(pane).min(rows.len() - 1));
    for (line, row) in (1..inner.height).zip(shown) {
        for (cell, (x, width)) in row.cells.iter().zip(&columns) {
            canvas.write(inner.line(line).columns(*x, *width), cell, row_style(row));
        }
    }
}

/// Where the columns of a pane begin, and their widths. The last one, and the first one of most panes, share what the
/// others leave.
fn columns(pane: Pane, width: u16) -> Vec<(u16, u16)> {
    let columns = pane.columns();
    let last = columns.len() - 1;
    let is_wide = |number: usize| number == last || number == 0 && pane != Pane::Failures;
    let fixed: u16 =
        columns.iter().enumerate().filter(|(number, _)| !is_wide(*number)).map(|(_, (_, width))| width).sum();
    let free = width.saturating_sub(fixed + last as u16);
    let wide = (0..=last).filter(|number| is_wide(*number)).count();
    let mut shares = divided(free, &vec![1; wide], 0).into_iter().map(|share| share.len() as u16);
    let mut x = 0;
    let mut placed = Vec::with_capacity(columns.len());
    for (number, (_, fixed)) in columns.iter().enumerate() {
        let width = if is_wide(number) { shares.next().unwrap_or_default() } else { *fixed };
        placed.push((x, width));
        x += width + 1;
    }
    placed
}

fn row_style(row: &Row) -> ContentStyle {
    match row.tone {
        Tone::Plain => plain_style(),
        Tone::Warning => plain_style().yellow(),
        Tone::Bad => plain_style().red(),
    }
}

fn title(model: &Model, pane: Pane, listed: usize) -> String {
    let all = match pane {
        Pane::Running => model.snapshot.running_count,
        _ => listed as u64,
    };
    let count = if all == listed as u64 { all.to_string() } else { format!("{listed} of {all}") };
    let sort = match model.pane == pane {
        true => format!(", by {}", pane.sorts()[model.sort(pane)]),
        false => String::new(),
    };
    format!("{} ({count}{sort}) ", pane.title())
}

fn nothing(model: &Model, pane: Pane) -> &'static str {
    match pane {
        _ if !model.filter.is_empty() => "nothing that contains the filter",
        Pane::Queues => "nothing is waiting or running",
        Pane::Workers => "no worker is connected",
        Pane::Running => "nothing runs",
        Pane::Failures => "nothing has failed lately",
    }
}

fn draw_footer(model: &Model, area: Area, canvas: &mut Canvas) {
    let (line, style) = match (&model.connection, model.is_filtering) {
        (_, true) => (format!("/{}_", model.filter), plain_style()),
        (ConnectionStatus::Reconnecting { reason }, _) => {
            (format!("this data is outdated: {reason}"), plain_style().red())
        }
        _ if !model.filter.is_empty() => (format!("only \"{}\", Esc shows all", model.filter), plain_style()),
        _ => ("q quit  p pause  tab pane  s sort  / filter  ? help".to_owned(), plain_style().dim()),
    };
    canvas.write(area, &line, style);
}

fn draw_help(canvas: &mut Canvas) {
    let area = canvas.area();
    let (width, height) = (64.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let (x, y) = ((area.width - width) / 2, (area.height - height) / 2);
    let place = area.lines(y..y + height).columns(x, width);
    let inner = usize::from(width.saturating_sub(2));
    let rule = |left: &str, right: &str| format!("{left}{}{right}", "─".repeat(inner));
    canvas.write(place.line(0), &rule("┌", "┐"), plain_style());
    canvas.write(place.line(0).columns(1, width.saturating_sub(2)), " Keys ", plain_style());
    for (number, (key, what)) in (1..).zip(HELP) {
        let text = format!(" {key:<10} {what}");
        canvas.write(place.line(number), &format!("│{:inner$}│", ""), plain_style());
        canvas.write(place.line(number).columns(1, width.saturating_sub(2)), &text, plain_style());
    }
    canvas.write(place.line(height.saturating_sub(1)), &rule("└", "┘"), plain_style());
}

/// A frame as text, without colours.
pub fn plain(model: &Model, width: u16, height: u16) -> String {
    let mut canvas = Canvas::new(width, height);
    draw(model, &mut canvas);
    canvas.plain()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::ViewKey;
    use crate::top::samples;

    fn model() -> Model {
        let mut model = Model::new("http://127.0.0.1:7070", samples::snapshot());
        for step in 1..=9 {
            model.take(samples::later(step), Duration::from_secs(1));
        }
        model
    }

    #[test]
    fn a_busy_server_fits_into_a_small_terminal() {
        insta::assert_snapshot!(plain(&model(), 80, 24));
    }

    #[test]
    fn a_large_terminal_shows_more() {
        insta::assert_snapshot!(plain(&model(), 140, 40));
    }

    #[test]
    fn an_idle_server_says_so() {
        insta::assert_snapshot!(plain(&Model::new("server", samples::idle()), 80, 24));
    }

    #[test]
    fn a_lost_server_is_told_and_what_was_known_stays() {
        let mut model = model();
        model.lose("connection refused".to_owned());
        insta::assert_snapshot!(plain(&model, 80, 24));
    }

    #[test]
    fn a_filter_and_the_help_are_seen() {
        let mut model = model();
        for key in ["/", "m", "a", "i", "l"] {
            model.press(ViewKey::Letter(key.chars().next().unwrap()), 1, 1);
        }
        insta::assert_snapshot!("filter", plain(&model, 80, 24));
        model.press(ViewKey::Escape, 1, 1);
        model.press(ViewKey::Letter('?'), 1, 1);
        insta::assert_snapshot!("help", plain(&model, 80, 24));
    }

    #[test]
    fn no_terminal_is_too_small_to_be_drawn() {
        let mut model = model();
        for (width, height) in [(1, 1), (10, 3), (20, 5), (80, 1), (3, 40)] {
            plain(&model, width, height);
        }
        model.press(ViewKey::Letter('?'), 1, 1);
        plain(&model, 5, 2);
    }
}
