//! The message of a server when it is ready: its addresses and files, and what to try next. Contains no
//! secrets, except for a link on a terminal that logs one browser in.

use super::admin_token::AdminToken;
use crate::store::StorePlace;
use punctual_config::data_dir::DataDir;
use punctual_config::output;
use punctual_core::time::Timestamp;
use std::io::IsTerminal;
use std::path::Path;

pub struct Welcome<'a> {
    pub data_dir: &'a DataDir,
    /// The store, if it is not in the data directory.
    pub store: Option<&'a StorePlace>,
    pub config_file: Option<&'a Path>,
    /// Where it listens.
    pub url: &'a str,
    /// The address of the dashboard; on a terminal, one that logs the first browser in.
    pub dashboard: &'a str,
    pub token: AdminToken,
    /// The time of a manual clock.
    pub manual_clock: Option<Timestamp>,
}

/// The highlighting of a text.
struct Style {
    bold: [&'static str; 2],
    faint: [&'static str; 2],
}

const PLAIN: Style = Style { bold: ["", ""], faint: ["", ""] };
const TERMINAL: Style = Style { bold: ["\x1b[1m", "\x1b[0m"], faint: ["\x1b[2m", "\x1b[0m"] };

impl Welcome<'_> {
    /// Highlighted on a terminal; plain lines for programs.
    pub fn print(&self) -> anyhow::Result<()> {
        let is_plain = !std::io::stdout().is_terminal()
            || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        output::print_raw(&self.text(if is_plain { &PLAIN } else { &TERMINAL }))
    }

    fn text(&self, style: &Style) -> String {
        let url = self.url;
        let [bold, normal] = style.bold;
        let mut text = format!("{bold}Punctual {}{normal} listens on {url}", env!("CARGO_PKG_VERSION"));
        for (name, value) in self.lines() {
            let [faint, normal] = style.faint;
            // A path may contain any characters.
            text += &format!("\n  {faint}{name:<6}{normal} {}", output::visible(&value));
        }
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let option = self.data_dir.option();
        let note = match self.token {
            AdminToken::Usual => "",
            AdminToken::Replaced => " (new; the old one no longer works)",
            AdminToken::Elsewhere => {
                " (missing: another server of this store created the token; copy its file here)"
            }
            AdminToken::Revoked => " (revoked: use another token, or start with --new-admin-token)",
        };
        let mut lines = vec![
            ("data", self.data_dir.path().display().to_string()),
            ("token", format!("{}{note}", self.data_dir.token_file().display())),
        ];
        lines.extend(self.store.map(|store| ("store", store.to_string())));
        lines.extend(self.config_file.map(|file| ("config", file.display().to_string())));
        lines.extend(self.manual_clock.map(|now| {
            ("clock", format!("manual, at {now}; advance it with punctual clock advance 1h{option}"))
        }));
        lines.extend([
            ("ui", self.dashboard.to_owned()),
            ("docs", format!("{}/docs", self.url)),
            ("try", format!("punctual job submit hello --type noop --wait{option}")),
            ("", format!("punctual job list{option}")),
            ("", format!("punctual demo{option}")),
            ("", format!("punctual top{option}")),
        ]);
        lines
    }
}
