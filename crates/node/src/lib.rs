//! The processes of a server: opens the store and the coordination backend from settings, and runs the roles.
//! The only crate that names concrete adapters. It does not know the commands that use the API.

pub mod blobs;
pub mod broker;
pub mod coordination;
mod password_file;
mod secrets;
pub mod serve;
mod spans;
pub mod store;
pub mod zones;
