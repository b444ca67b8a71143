//! Settings of notifications.

use super::{HOUR, SECOND, Setting, SettingsTable, is, millis, unset};
use crate::allowed::{AllowedNetwork, CommandChannel, ConfiguredChannel};
use crate::layers::Layers;
use crate::oidc::{PublicUrl, Text};
use crate::value::{self, Length, Value};
use punctual_core::limits;
use std::path::PathBuf;

const NOTIFY_WINDOW_MIN: u64 = millis(limits::NOTIFY_WINDOW_MIN);
const NOTIFY_WINDOW_MAX: u64 = millis(limits::NOTIFY_WINDOW_MAX);

settings! {
    /// How notifications are sent.
    pub struct NotificationSettings {
        /// Private networks and hosts that channels may call, such as 10.0.0.0/8 or mail.example:587
        allow: Vec<AllowedNetwork> = "notify.allow", is(""),
            "Messages to other private addresses are not sent, and are tried again for a day.";
        /// A file with CA certificates (PEM) that channels trust in addition to the well-known ones
        ca_file: Option<PathBuf> = "notify.ca_file", unset("/etc/punctual/ca.pem"),
            "Read at startup.";
        /// How long events of one kind are collected before they are sent together
        window: Length<NOTIFY_WINDOW_MIN, NOTIFY_WINDOW_MAX> = "notify.window", is("5s"),
            "A long window sends fewer messages, and sends them later.";
        /// How often a notification about a lasting problem is repeated until it is acknowledged or resolved
        repeat: Length<{60 * SECOND}, {30 * 24 * HOUR}> = "notify.repeat", is("4h"),
            "A recurring job that fails each minute causes one notification in this time.";
        /// Channels that requests cannot change, as tables [[notify.channels]] of the configuration file
        channels: Vec<ConfiguredChannel> = "notify.channels", is(""),
            "The fields are those of `POST /api/v1/channels`. A secret value is in a file of its own, such as url_file = \"slack-url\", or is a reference such as url = { \"$secret\" = \"slack-url\" }.";
        /// Channels that run a program with a message on its standard input, such as pager=/usr/local/bin/page
        commands: Vec<CommandChannel> = "notify.commands", is(""),
            "The programs run as the user of the server. Only the configuration can name them, never a request.";
        /// A URL that the leading server calls every minute, so that a monitor elsewhere notices when it stops
        heartbeat_url: Option<Text> = "notify.heartbeat_url", unset("https://hc.example.org/ping/4f2a"),
            "It is called with POST and an empty body. A failure is logged, and changes nothing. If the URL is a secret, notify.heartbeat_url_file keeps it out of flags and variables.";
        /// A file with the URL of notify.heartbeat_url
        heartbeat_url_file: Option<PathBuf> = "notify.heartbeat_url_file", unset("/etc/punctual/heartbeat.url"),
            "Read at startup. Set only one of the two. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// The address of the API in messages; by default public_url, or the address of the listener
        link_url: Option<PublicUrl> = "notify.link_url", unset("https://jobs.example.org"),
            "Messages of `punctual scheduler` have links only with one of these settings.";
    }
}
