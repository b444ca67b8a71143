//! The arguments of commands that need nothing but a server, most of them lists.

use punctual_config::connect::ConnectArgs;
use punctual_config::output::OutputArgs;

#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
