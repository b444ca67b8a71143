//! What the lines of limits come to.

use super::Begun;
use crate::limiter::Line;
use crate::time::Timestamp;

/// What a step has let out of lines.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Admitted {
    pub begun: Begun,
    /// Lines in which somebody still waits, and when time alone makes room in them; `None` if it does not.
    pub waiting: Vec<(Line, Option<Timestamp>)>,
    /// Lines in which there is more room than one step may give.
    pub more: Vec<Line>,
    /// Lines may move that did not for a while: all are to be looked for.
    pub is_look_due: bool,
}
