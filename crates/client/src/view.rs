//! Saved views and effective settings on the wire: what the dashboard shows besides jobs.

use crate::client::{Client, ClientError, segment};
use crate::page::Page;
use crate::wire::wire;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

wire! {
    /// A page with its filters, to save under a name.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetView as "SetView" {
        /// The page of the dashboard that it opens.
        pub page: String = text().example("jobs"),
        /// Its filters: the query of an address, without the question mark.
        #[serde(default)]
        pub query: String = text().otherwise("").example("status=ACTIVE&tag=nightly"),
    }

    /// A view that the caller has saved. Other callers do not see it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ViewBody as "View" {
        /// What the caller calls it.
        pub name: String = text().example("my jobs"),
        /// The page of the dashboard that it opens.
        pub page: String = text().example("jobs"),
        /// Its filters: the query of an address, without the question mark.
        pub query: String = text().example("status=ACTIVE&tag=nightly"),
    }
}

wire! {
    /// A setting of the server that answers.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SettingBody as "Setting" {
        /// Its key in `punctual.toml`, with its table.
        pub key: String = text().example("scheduler.lookahead"),
        /// Its value, in the syntax of the file; null if it is not set. Passwords are left out.
        pub value: Value = any(),
        /// Whether a value exists that is not shown, because it may be a secret.
        pub hidden: bool = flag(),
        /// What the value comes from.
        pub from: String = one_of(&["flag", "variable", "file", "default"]),
        /// The flag, the variable, or the file and its line; null for a default.
        pub origin: Option<String> = text().example("PUNCTUAL_SLOTS"),
        /// What the setting does.
        pub about: String = text(),
    }

    /// The effective settings of the server that answers.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SettingsBody as "Settings" {
        /// The configuration file that it has read; null if there is none.
        pub file: Option<String> = text().example("/etc/punctual/punctual.toml"),
        /// All settings that it uses, as they were when it started.
        pub items: Vec<SettingBody> = list(the("Setting")),
    }
}

impl Client {
    /// The saved views of this client's token or user, by name.
    pub async fn views(&self) -> Result<Page<ViewBody>, ClientError> {
        self.send(self.request(Method::GET, "/views")).await
    }

    pub async fn set_view(&self, name: &str, view: &SetView) -> Result<ViewBody, ClientError> {
        self.send(self.request(Method::PUT, &format!("/views/{}", segment(name))).json(view)).await
    }

    pub async fn remove_view(&self, name: &str) -> Result<(), ClientError> {
        self.exchange(self.request(Method::DELETE, &format!("/views/{}", segment(name)))).await.map(|_| ())
    }

    /// The effective settings of the server, and the source of each value.
    pub async fn settings(&self) -> Result<SettingsBody, ClientError> {
        self.send(self.request(Method::GET, "/settings")).await
    }
}
