//! The integers that stand for enums. They are part of the file format: a number that was ever written keeps
//! its meaning.

use punctual_core::job::JobMark;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Origin;
use punctual_core::ports::{LogStream, Role};
use punctual_core::schedule::{OverlapPolicy, SkipReason};
use punctual_core::session::SessionMode;

/// An enum that a column holds as a small integer.
pub(crate) trait Code: Sized {
    fn code(self) -> i64;
    fn from_code(code: i64) -> Option<Self>;
}

macro_rules! codes {
    ($($enum:ty { $($variant:ident = $code:literal),* })*) => {$(
        impl Code for $enum {
            fn code(self) -> i64 {
                match self { $(Self::$variant => $code),* }
            }

            fn from_code(code: i64) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    )*};
}

codes! {
    JobMark { Active = 0, Paused = 1, Failed = 2, Cancelled = 3, Deleted = 4 }
    Status { Succeeded = 0, Failed = 1, TimedOut = 2, Cancelled = 3, Lost = 4, Skipped = 5, Expired = 6 }
    Origin { Schedule = 0, Trigger = 1, Backfill = 2 }
    OverlapPolicy { Skip = 0, Allow = 1, Queue = 2, Replace = 3 }
    SkipReason { Overlap = 0, Misfire = 1, Paused = 2, Calendar = 3, Dependency = 4, Backlog = 5 }
    LogStream { Stdout = 0, Stderr = 1, Log = 2 }
    SessionMode { Open = 0, Paused = 1, Draining = 2 }
    Role { Viewer = 0, Submitter = 1, Operator = 2, Admin = 3 }
}

/// `job_keys.kind`.
pub(crate) mod key_kind {
    pub const IDEMPOTENCY: i64 = 0;
    pub const UNIQUE: i64 = 1;
}

/// `live.state`; the partial indexes name these numbers.
pub(crate) mod state {
    pub const WAITING: i64 = 0;
    pub const QUEUED: i64 = 1;
    pub const RUNNING: i64 = 2;
}
