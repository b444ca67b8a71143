//! The text for people: the default one, or the template of the channel.

use minijinja::{Environment, context};
use punctual_core::limits;
use punctual_core::notify::{OutgoingMessage, default_text, default_title};

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(limits::CHANNEL_TEMPLATE_FUEL));
    environment
}

/// What is wrong with a template.
pub(super) fn problem(template: &str) -> Option<String> {
    let error = environment().template_from_str(template).err()?;
    Some(format!("is not a template: {error}"))
}

/// The text of a message. A template that fails must not hide the event, so the default text is sent then.
pub(super) fn text(message: &OutgoingMessage) -> String {
    let Some(template) = &message.channel.template else { return default_text(message) };
    let rendered = environment().render_str(
        template,
        context! {
            title => default_title(&message.events, message.count),
            text => default_text(message),
            type => message.kind().word(),
            event => message.events.first(),
            events => &message.events,
            count => message.count,
            logs => &message.logs,
        },
    );
    rendered.unwrap_or_else(|error| {
        tracing::warn!(%error, "the template of a channel failed: the default text is sent");
        default_text(message)
    })
}
