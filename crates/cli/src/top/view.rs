//! Draws the live view: a function of the model and the size of the terminal.

use crate::job::live::rough;
use crate::top::model::{ConnectionStatus, CountedRate, Model, Pane, TopSnapshot};
use crate::top::rows::{self, Row, Tone};
use punctual_config::output::time;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Sparkline, Table, Widget};
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

pub fn draw(model: &Model, area: Rect, buffer: &mut Buffer) {
    let [header, rates, upper, running, failures, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Fill(3),
        Constraint::Fill(3),
        Constraint::Fill(3),
        Constraint::Length(1),
    ])
    .areas(area);
    let [queues, workers] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(upper);
    draw_header(model, header, buffer);
    draw_rates(model, rates, buffer);
    for (pane, area) in Pane::ALL.into_iter().zip([queues, workers, running, failures]) {
        draw_pane(model, pane, area, buffer);
    }
    draw_footer(model, footer, buffer);
    if model.shows_help {
        draw_help(area, buffer);
    }
}

fn draw_header(model: &Model, area: Rect, buffer: &mut Buffer) {
    let TopSnapshot { version, now, started_at, .. } = &model.snapshot;
    let server = model.server.trim_start_matches("http://");
    let up = started_at.map_or_else(String::new, |since| format!(", up {}", uptime(now.since(since))));
    let left = format!("punctual {version} at {server}{up}  {}", time(*now));
    let (right, style) = match &model.connection {
        ConnectionStatus::Reconnecting { .. } => ("reconnecting…", Style::new().fg(Color::Red)),
        ConnectionStatus::Connected if model.is_paused => ("held", Style::new().fg(Color::Yellow)),
        ConnectionStatus::Connected => ("live", Style::new().fg(Color::Green)),
    };
    Line::from(left).style(Modifier::BOLD).render(area, buffer);
    Line::styled(right, style).right_aligned().render(area, buffer);
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
fn draw_rates(model: &Model, area: Rect, buffer: &mut Buffer) {
    // By the length of their names, so that all of them are readable in 80 columns.
    let columns = Layout::horizontal([17, 15, 17, 13, 14].map(Constraint::Fill)).spacing(1).split(area);
    for (rate, column) in CountedRate::ALL.into_iter().zip(columns.iter()) {
        let [text, graph] = Layout::vertical([Constraint::Length(1); 2]).areas(*column);
        let history = model.rate(rate);
        let latest = history.back().map_or_else(|| "-".to_owned(), |latest| per_second(*latest));
        let style = match (rate, history.back()) {
            (CountedRate::Failed, Some(latest)) if *latest > 0.0 => Style::new().fg(Color::Red),
            _ => Style::new(),
        };
        Line::styled(format!("{} {latest}", rate.name()), style).render(text, buffer);
        let width = usize::from(graph.width);
        let shown = history.iter().skip(history.len().saturating_sub(width));
        // In tenths: a graph has only whole numbers, and one job in ten seconds should be visible.
        let data: Vec<u64> = shown.map(|rate| (rate * 10.0).round() as u64).collect();
        Sparkline::default().data(data).style(Style::new().fg(Color::Cyan)).render(graph, buffer);
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

fn draw_pane(model: &Model, pane: Pane, area: Rect, buffer: &mut Buffer) {
    let rows = rows::rows(model, pane);
    let is_chosen = model.pane == pane;
    let style = if is_chosen { Style::new().fg(Color::Cyan) } else { Style::new().fg(Color::DarkGray) };
    let block = Block::new().borders(Borders::TOP).border_style(style).title(title(model, pane, rows.len()));
    let inner = block.inner(area);
    block.render(area, buffer);
    if rows.is_empty() {
        Paragraph::new(nothing(model, pane)).render(inner, buffer);
        return;
    }
    let header: Vec<Span> = pane
        .columns()
        .iter()
        .map(|(name, _)| Span::styled(*name, Style::new().add_modifier(Modifier::DIM)))
        .collect();
    let last = pane.columns().len() - 1;
    let widths = pane.columns().iter().enumerate().map(|(place, (_, width))| match place {
        place if place == last => Constraint::Fill(1),
        0 if pane != Pane::Failures => Constraint::Fill(1),
        _ => Constraint::Length(*width),
    });
    let shown = rows.iter().skip(model.scroll(pane).min(rows.len() - 1)).map(table_row);
    let table = Table::new(shown, widths).header(ratatui::widgets::Row::new(header)).column_spacing(1);
    Widget::render(table, inner, buffer);
}

fn table_row(row: &Row) -> ratatui::widgets::Row<'_> {
    let style = match row.tone {
        Tone::Plain => Style::new(),
        Tone::Warning => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    };
    ratatui::widgets::Row::new(row.cells.iter().map(String::as_str)).style(style)
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

fn draw_footer(model: &Model, area: Rect, buffer: &mut Buffer) {
    let line = match (&model.connection, model.is_filtering) {
        (_, true) => Line::from(format!("/{}_", model.filter)),
        (ConnectionStatus::Reconnecting { reason }, _) => {
            Line::styled(format!("this data is outdated: {reason}"), Style::new().fg(Color::Red))
        }
        _ if !model.filter.is_empty() => Line::from(format!("only \"{}\", Esc shows all", model.filter)),
        _ => Line::styled(
            "q quit  p pause  tab pane  s sort  / filter  ? help",
            Style::new().add_modifier(Modifier::DIM),
        ),
    };
    line.render(area, buffer);
}

fn draw_help(area: Rect, buffer: &mut Buffer) {
    let (width, height) = (64.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, buffer);
    let lines: Vec<Line> = HELP.iter().map(|(key, what)| Line::from(format!(" {key:<10} {what}"))).collect();
    Paragraph::new(lines).block(Block::bordered().title(" Keys ")).render(place, buffer);
}

/// A frame as text, without colours.
pub fn plain(model: &Model, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(model, area, &mut buffer);
    let line = |y: u16| {
        let cells: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        cells.trim_end().to_owned()
    };
    (0..height).map(line).collect::<Vec<_>>().join("\n")
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
