//! What the stores on database servers have in common: everything but connections and SQL. It must not know
//! a driver; `postgres/` and `mysql/` are its dialects.

pub(crate) mod asks;
pub(crate) mod changes;
pub(crate) mod list;
pub(crate) mod loaded;
pub(crate) mod logs;
pub(crate) mod migrations;
pub(crate) mod queue_check;
pub(crate) mod reads;
pub(crate) mod rows;
