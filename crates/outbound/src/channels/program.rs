//! A program on this machine, which gets the message on its standard input. Only the operator's configuration names
//! such a channel.

use super::{failed, template, webhook};
use punctual_core::notify::OutgoingMessage;
use punctual_core::ports::SendError;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const ERROR_CHARS_SHOWN: usize = 200;

pub(super) async fn run(message: &OutgoingMessage) -> Result<(), SendError> {
    let [program, arguments @ ..] = message.channel.command.as_slice() else {
        return Err(failed("the channel has no command"));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env("PUNCTUAL_MESSAGE_ID", &message.id)
        .env("PUNCTUAL_MESSAGE_TYPE", message.kind().word())
        .env("PUNCTUAL_MESSAGE_TEXT", template::text(message))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("{program} cannot be started: {error}")))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read its input is not wrong.
        let _ = input.write_all(webhook::body(message).to_string().as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said: String = String::from_utf8_lossy(&output.stderr).chars().take(ERROR_CHARS_SHOWN).collect();
    Err(failed(format!("{program} ended with {}: {}", output.status, said.trim())))
}
