//! `punctual man`: the manual, a page per command.

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use punctual_config::exit::{Exit, MEANINGS};
use punctual_config::output::{print_raw, print_text};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct ManArgs {
    /// Write one page per command to this directory, such as ~/.local/share/man/man1; without it, print the main page
    dir: Option<PathBuf>,
}

pub fn run(args: ManArgs, command: Command) -> anyhow::Result<Exit> {
    let command = command.disable_help_subcommand(true);
    match args.dir {
        None => {
            let page = page(&command, "punctual")?;
            print_raw(std::str::from_utf8(&page).context("the page is not text")?)?;
        }
        Some(dir) => {
            fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
            let count = write_all(&command, "punctual", &dir)?;
            print_text(&format!("wrote {count} pages to {}", dir.display()))?;
        }
    }
    Ok(Exit::Done)
}

/// Writes the page of a command and those of all its subcommands. Returns how many.
fn write_all(command: &Command, name: &str, dir: &Path) -> anyhow::Result<usize> {
    let file = dir.join(format!("{name}.1"));
    fs::write(&file, page(command, name)?).with_context(|| format!("cannot write {}", file.display()))?;
    let mut count = 1;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        count += write_all(sub, &format!("{name}-{}", sub.get_name()), dir)?;
    }
    Ok(count)
}

fn page(command: &Command, name: &str) -> anyhow::Result<Vec<u8>> {
    let spelled = name.replace('-', " ");
    // The exit codes appear only once on the page, further below.
    let command = command.clone().display_name(name).bin_name(spelled).after_help("");
    let man = Man::new(command).manual("Punctual").source(concat!("punctual ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    man.render_subcommands_section(&mut page)?;
    exit_codes().to_writer(&mut page)?;
    Ok(page)
}

fn exit_codes() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (exit, meaning) in MEANINGS {
        roff.control("TP", []).text([bold((exit as u8).to_string())]).text([roman(meaning)]);
    }
    roff
}
