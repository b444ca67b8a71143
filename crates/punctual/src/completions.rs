//! `punctual completions`: shell completions.

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use punctual_config::exit::Exit;
use punctual_config::output::print_raw;

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// The shell to generate the script for
    #[arg(value_enum)]
    shell: Shell,
}

const HELP: &str = "\
Where the scripts go:
  bash        punctual completions bash > ~/.local/share/bash-completion/completions/punctual
  zsh         punctual completions zsh > \"${fpath[1]}/_punctual\"
  fish        punctual completions fish > ~/.config/fish/completions/punctual.fish
  elvish      punctual completions elvish > ~/.config/elvish/lib/punctual.elv, then: use punctual
  powershell  punctual completions powershell >> $PROFILE";

pub fn run(args: CompletionsArgs, mut command: Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "punctual", &mut script);
    print_raw(std::str::from_utf8(&script).context("the script is not text")?)?;
    Ok(Exit::Done)
}
