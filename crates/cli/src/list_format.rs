//! How the lists of jobs, executions, queues and workers are printed: for people, for programs, and as lines for other
//! commands.

use crate::json_path::JsonPath;
use crate::pages;
use clap::ValueEnum;
use punctual_config::output::{Format, OutputArgs, TimeChoice, choose_times, print_text, shortened};
use punctual_config::suggest::did_you_mean;
use serde::Serialize;

#[derive(Debug, Clone, clap::Args)]
pub struct ListOutput {
    /// Output format: table, wide, name (one id per line), json, yaml, or jsonpath=PATH such as jsonpath='{.items[*].name}'
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table", env = "PUNCTUAL_OUTPUT", value_parser = parse_format)]
    format: ListFormat,
    #[command(flatten)]
    times: TimeChoice,
}

#[derive(Debug, Clone)]
enum ListFormat {
    Plain(Format),
    /// The table with all texts in full, and more columns where there are any.
    Wide,
    /// One id per line, for other commands.
    Name,
    JsonPath(JsonPath),
}

/// The formats that have a name.
const FORMATS: [&str; 5] = ["table", "wide", "name", "json", "yaml"];

fn parse_format(text: &str) -> Result<ListFormat, String> {
    if let Some(path) = text.strip_prefix("jsonpath=") {
        return path.parse().map(ListFormat::JsonPath);
    }
    match text {
        "wide" => Ok(ListFormat::Wide),
        "name" => Ok(ListFormat::Name),
        _ => Format::from_str(text, true).map(ListFormat::Plain).map_err(|_| {
            let meant = did_you_mean(text, FORMATS);
            format!("must be table, wide, name, json, yaml or jsonpath=PATH{meant}")
        }),
    }
}

/// The texts of a list.
pub struct ListTexts<T> {
    pub table: fn(&T, Cut) -> String,
    /// The ids or names of the items, one per line.
    pub names: fn(&T) -> Vec<String>,
}

/// Whether long texts of a table are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Long,
    /// Also shows the columns that only a wide table has.
    Nothing,
}

impl Cut {
    pub fn text(self, text: &str, limit: usize) -> String {
        match self {
            Cut::Long => shortened(text, limit),
            Cut::Nothing => text.to_owned(),
        }
    }
}

impl ListOutput {
    pub fn print<T: Serialize>(&self, list: &T, texts: &ListTexts<T>) -> anyhow::Result<()> {
        choose_times(self.times);
        match &self.format {
            ListFormat::Plain(format) => {
                let output = OutputArgs { format: *format, times: self.times };
                output.print(list, |list| (texts.table)(list, Cut::Long))
            }
            ListFormat::Wide => print_text(&(texts.table)(list, Cut::Nothing)),
            ListFormat::Name => print_lines(&(texts.names)(list)),
            ListFormat::JsonPath(path) => print_lines(&path.texts(&serde_json::to_value(list)?)),
        }
    }

    /// Says how to continue a list that has more items, unless the output contains the cursor.
    pub fn tell_more(&self, cursor: Option<&str>) {
        if !matches!(self.format, ListFormat::Plain(Format::Json | Format::Yaml)) {
            pages::tell_cursor(cursor);
        }
    }
}

fn print_lines(lines: &[String]) -> anyhow::Result<()> {
    if lines.is_empty() { Ok(()) } else { print_text(&lines.join("\n")) }
}
