//! The tables that all databases have: the same columns with the same meaning, under the names of
//! PostgreSQL's schema. Row codecs (`codecs.rs`), column lists, the data migration and the search for
//! malformed rows follow from this description. Each adapter knows the names that differ in its schema.

use crate::cells::{
    AuditKey, Big, Bits, Cell, CellValue, Coded, ColumnKind, ColumnType, Count, Digest, Document, Flag,
    HttpStatus, Hundredths, Id, Int, Lease, Number, Rank, RowCells, Session, Shard, ShortText, Time,
};
use crate::fault::Fault;
use crate::rows::KeyKind;
use punctual_core::access::Role;
use punctual_core::job::StoredStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Origin;
use punctual_core::ports::LogStream;
use punctual_core::schedule::{OverlapPolicy, SkipReason};
use punctual_core::session::SessionMode;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: ColumnKind,
    /// Reads the value at this index of a row, and reports whether it is valid.
    pub check: fn(&[Cell<'_>], usize) -> Result<(), Fault>,
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One table. The first columns are its key, and rows are read in the order of the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub name: &'static str,
    pub columns: &'static [Column],
    pub key: usize,
}

impl Layout {
    pub fn key_columns(&self) -> &'static [Column] {
        &self.columns[..self.key]
    }

    /// Columns that can make a row large.
    pub fn documents(&self) -> impl Iterator<Item = &'static Column> {
        self.columns.iter().filter(|column| column.kind == ColumnKind::Document)
    }

    /// The index of a column in a row.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The index of a column that exists; the compiler finds it.
    pub const fn at(&self, name: &str) -> usize {
        let mut place = 0;
        while !is_same(self.columns[place].name, name) {
            place += 1;
        }
        place
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut place = 0;
    while place < one.len() {
        if one[place] != other[place] {
            return false;
        }
        place += 1;
    }
    true
}

/// The name of a column in the schema of MariaDB and MySQL, where `rank` is a keyword.
macro_rules! mysql_column {
    (rank) => {
        "claim_rank"
    };
    ($column:ident) => {
        stringify!($column)
    };
}

/// The name of a column in SQLite's schema.
macro_rules! sqlite_column {
    (place) => {
        "seq"
    };
    ($column:ident) => {
        stringify!($column)
    };
}

macro_rules! table {
    ($layout:ident = $table:ident[$key:literal] { $($column:ident $type:ty),* $(,)? }) => {
        pub(crate) const $layout: Layout = Layout {
            name: stringify!($table),
            columns: &[$(Column {
                name: stringify!($column),
                kind: <$type as ColumnType>::KIND,
                check: |cells, place| {
                    const WHAT: &str = concat!(stringify!($table), ".", stringify!($column));
                    <$type as ColumnType>::Value::from_row(cells, place, WHAT).map(drop)
                },
            }),*],
            key: $key,
        };
    };
    // A table whose rows are read and written whole: the values of its columns by name, and the list of
    // its columns for SELECT in each database.
    (
        $layout:ident = $table:ident[$key:literal] as $columns:ident, $list:ident, $mysql_list:ident,
        $sqlite_list:ident { $first:ident $first_type:ty, $($column:ident $type:ty),* $(,)? }
    ) => {
        table! { $layout = $table[$key] { $first $first_type, $($column $type),* } }

        /// The values of a row.
        #[derive(Debug)]
        pub(crate) struct $columns<'a> {
            pub $first: <$first_type as ColumnType>::Value<'a>,
            $(pub $column: <$type as ColumnType>::Value<'a>,)*
        }

        impl<'a> $columns<'a> {
            /// Reads the columns of a list below from this index on.
            pub fn read<R: RowCells + ?Sized>(row: &'a R, first: usize) -> Result<Self, Fault> {
                Ok($columns {
                    $first: crate::cells::read(row, first, concat!(stringify!($table), ".", stringify!($first)))?,
                    $($column: crate::cells::read(
                        row,
                        first + const { $layout.at(stringify!($column)) },
                        concat!(stringify!($table), ".", stringify!($column)),
                    )?,)*
                })
            }

            /// All values in the order of the columns.
            pub fn into_cells(self) -> [Cell<'a>; $layout.columns.len()] {
                [
                    self.$first.into_cell().stored_as(<$first_type as ColumnType>::KIND),
                    $(self.$column.into_cell().stored_as(<$type as ColumnType>::KIND),)*
                ]
            }
        }

        macro_rules! $list {
            () => {
                concat!(
                    stringify!($table), ".", stringify!($first)
                    $(, ", ", stringify!($table), ".", stringify!($column))*
                )
            };
        }
        pub(crate) use $list;

        macro_rules! $mysql_list {
            () => {
                concat!(
                    stringify!($table), ".", stringify!($first)
                    $(, ", ", stringify!($table), ".", $crate::layout::mysql_column!($column))*
                )
            };
        }
        pub(crate) use $mysql_list;

        macro_rules! $sqlite_list {
            () => {
                concat!(
                    stringify!($table), ".", $crate::layout::sqlite_column!($first)
                    $(, ", ", stringify!($table), ".", $crate::layout::sqlite_column!($column))*
                )
            };
        }
        pub(crate) use $sqlite_list;
    };
}
pub(crate) use {mysql_column, sqlite_column};

/// Rows that counters count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedRows {
    /// The column whose value says in which row they are counted, if there are several.
    pub key: Option<&'static str>,
    /// A table or subquery, and a condition for all of them.
    pub from: &'static str,
}

/// A column that counts rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CounterColumn {
    pub name: &'static str,
    pub rows: CountedRows,
    /// The condition for a row to be counted here. If it is empty, all are.
    condition: &'static str,
}

impl CounterColumn {
    /// By how much a row raises the counter.
    pub fn value(&self) -> String {
        match self.condition {
            "" => "1".to_owned(),
            condition => format!("CASE WHEN {condition} THEN 1 ELSE 0 END"),
        }
    }
}

/// The counters in a row of a table, or differences to add to them.
pub(crate) trait StoredCounts: Copy + Default + PartialEq + 'static {
    const COLUMNS: &'static [CounterColumn];

    /// In the order of the columns.
    fn each(self) -> impl Iterator<Item = i64>;
    fn each_mut(&mut self) -> impl Iterator<Item = &mut i64>;

    /// Reads the columns from this index on.
    fn read<E>(first: usize, mut column: impl FnMut(usize) -> Result<i64, E>) -> Result<Self, E> {
        let mut counts = Self::default();
        for (count, place) in counts.each_mut().zip(first..) {
            *count = column(place)?;
        }
        Ok(counts)
    }

    /// A damaged counter does not overflow.
    fn add(&mut self, changes: Self) {
        for (count, change) in self.each_mut().zip(changes.each()) {
            *count = count.saturating_add(change);
        }
    }

    fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// Defines counters from the rows that each counts: the struct of their values, a macro for the tables that hold
/// them, and a macro that repeats a part of a statement for each of them, with its name inserted.
macro_rules! counters {
    (
        $d:tt $(#[$doc:meta])* $counts:ident in $table:ident, $each:ident {
            $($count:ident = $rows:ident $(if $condition:literal)?,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub(crate) struct $counts {
            $(pub $count: i64,)*
        }

        impl StoredCounts for $counts {
            const COLUMNS: &'static [CounterColumn] = &[$(CounterColumn {
                name: stringify!($count),
                rows: $rows,
                condition: concat!("" $(, $condition)?),
            },)*];

            fn each(self) -> impl Iterator<Item = i64> {
                [$(self.$count),*].into_iter()
            }

            fn each_mut(&mut self) -> impl Iterator<Item = &mut i64> {
                [$(&mut self.$count),*].into_iter()
            }
        }

        macro_rules! $table {
            ($d layout:ident[$d key:literal] { $d($d column:ident $d type:ty),* }) => {
                table! { $d layout = $table[$d key] { $d($d column $d type,)* $($count Big),* } }
            };
        }

        counters! { @each $d $each: $($count)* }
    };
    (@each $d:tt $each:ident: $first:ident $($count:ident)*) => {
        macro_rules! $each {
            ($d separator:literal, $d text:literal) => {
                concat!($d text $(, $d separator, $d text, $crate::layout::unnamed!($count))*)
            };
            ($d separator:literal, $d before:literal, $d after:literal) => {
                concat!(
                    $d before, stringify!($first), $d after
                    $(, $d separator, $d before, stringify!($count), $d after)*
                )
            };
            ($d separator:literal, $d before:literal, $d between:literal, $d after:literal) => {
                concat!(
                    $d before, stringify!($first), $d between, stringify!($first), $d after
                    $(, $d separator, $d before, stringify!($count), $d between, stringify!($count), $d after)*
                )
            };
        }
        pub(crate) use $each;
    };
}

/// Nothing, for each counter.
macro_rules! unnamed {
    ($count:ident) => {
        ""
    };
}
pub(crate) use unnamed;

/// All tables that a data migration copies, in the order of copying.
pub(crate) static TABLES: &[Layout] = &[
    LANES,
    WORKERS,
    QUEUES,
    TOKENS,
    USERS,
    SECRETS,
    DOCUMENTS,
    JOBS,
    JOB_TAGS,
    JOB_KEYS,
    SCHEDULES,
    LIVE,
    DEPENDENCIES,
    RESOLUTIONS,
    NOTES,
    CHECKPOINTS,
    DEAD_LETTERS,
    SESSIONS,
    SKIPPED,
    REQUESTS,
    HISTORY,
    LINES,
    LANE_TALLIES,
    LIMITER_TALLIES,
    LIMITER_PACES,
    JOB_TALLY,
    NUMBERS,
    AUDIT,
    AUDIT_CHAIN,
];

table! { LANES = lanes[1] { id Big, queue ShortText, job_type ShortText } }
table! { WORKERS = workers[1] { id Big, name ShortText } }
table! { QUEUES = queues[1] {
    queue ShortText, paused_at Option<Time>, max_depth Option<Count>, limits Option<Document>,
    unplaced Option<Document>,
} }
table! { TOKENS = tokens[1] as TokenColumns, token_columns, mysql_token_columns,
    sqlite_token_columns {
    id ShortText, secret_sha256 Digest, role Coded<Role>, created_at Time, expires_at Option<Time>,
    last_used_at Option<Time>, about Option<Document>,
} }
table! { USERS = users[1] as UserColumns, user_columns, mysql_user_columns,
    sqlite_user_columns {
    id ShortText, email ShortText, role Coded<Role>, created_at Time, about Option<Document>,
} }
table! { SECRETS = secrets[1] as SecretColumns, secret_columns, mysql_secret_columns,
    sqlite_secret_columns {
    id ShortText, version Count, key_id ShortText, sealed Document, about Document,
} }
// The id is the kind and the name.
table! { DOCUMENTS = documents[1] as DocumentColumns, document_columns, mysql_document_columns,
    sqlite_document_columns {
    id ShortText, version Count, body Document,
} }
table! { JOBS = jobs[1] as JobColumns, job_columns, mysql_job_columns,
    sqlite_job_columns {
    id Id, lane Big, created_at Time, version Int, mark Coded<StoredStatus>, priority Rank, schedule_type Bits,
    execute_at Option<Time>, updated_at Option<Time>, numbered Option<Number>, fired Option<Number>,
    owner Option<ShortText>, name Option<ShortText>, settings Option<Document>, payload Document,
} }
table! { JOB_TAGS = job_tags[2] { tag ShortText, job Id } }
table! { JOB_KEYS = job_keys[3] { owner ShortText, kind Coded<KeyKind>, key ShortText, job Id } }
table! { SCHEDULES = schedules[1] as ScheduleColumns, schedule_columns, mysql_schedule_columns,
    sqlite_schedule_columns {
    job Id, lane Big, fired Number, version Int, job_version Int, segment Bits, priority Rank,
    overlap Coded<OverlapPolicy>, ties Bits, due_at Option<Time>, nominal Option<Time>, numbered Option<Number>,
    overlap_limit Option<Number>, max_open Option<Number>, owner Option<ShortText>, schedule Option<Document>,
    replay Option<Document>, expiry Option<Document>,
} }
table! { LIVE = live[2] as LiveColumns, live_columns, mysql_live_columns,
    sqlite_live_columns {
    job Id, occurrence Number, lane Big, rank Big, available_at Time, scheduled_time Time, job_version Int,
    attempt Int, charged Int, epoch Lease, segment Bits, state Bits, gates Bits, priority Rank,
    origin Coded<Origin>, ties Bits, cancel_requested Flag, session Option<Session>, claimed_at Option<Time>,
    expires_at Option<Time>, look_at Option<Time>, limiter Option<Big>, line Option<Big>, input Option<Document>,
} }
table! { DEPENDENCIES = dependencies[2] { parent Id, child Id } }
table! { RESOLUTIONS = resolutions[1] { parent Id, succeeded Flag } }
table! { NOTES = notes[2] {
    job Id, occurrence Number, number Count, noted_at Time, epoch Lease, attempt Int, percent Option<Hundredths>,
    message Option<ShortText>,
} }
table! { CHECKPOINTS = checkpoints[2] { job Id, occurrence Number, document Document } }
table! { DEAD_LETTERS = dead_letters[1] as DeadLetterColumns, dead_letter_columns, mysql_dead_letter_columns,
    sqlite_dead_letter_columns {
    number Count, job Id, occurrence Number, scheduled_time Time, died_at Time, attempts Int, epoch Lease,
    origin Coded<Origin>, noted Flag, error Option<Document>, input Option<Document>,
} }
table! { SESSIONS = sessions[1] {
    id Session, worker Big, lease_us Count, beat Count, turn Count, opened_at Time, beaten_at Time, slots Number,
    mode Coded<SessionMode>, embedded Flag, attention Flag, lost Flag, job_types Document,
    queues Option<Document>, version Option<ShortText>, host Option<ShortText>, token Option<ShortText>,
} }
table! { SKIPPED = skipped[1] {
    number Big, job Id, first Time, last Time, count Count, reason Coded<SkipReason>,
} }
table! { REQUESTS = requests[2] {
    token ShortText, key ShortText, fingerprint Digest, begun_at Time, seed Big, status Option<HttpStatus>,
    location Option<ShortText>, body Option<Document>,
} }
// In the order of their numbers, which are kept: a reader that follows events continues where it was.
table! { HISTORY = history[1] as HistoryColumns, history_columns, mysql_history_columns,
    sqlite_history_columns {
    place Count, job Id, occurrence Number, completed_at Time, scheduled_time Time, available_at Time, attempt Int,
    epoch Lease, job_version Int, status Coded<Status>, origin Coded<Origin>, reason Option<Coded<SkipReason>>,
    started_at Option<Time>, session Option<Session>, worker Option<Big>, error Option<Document>,
    result Option<Document>, input Option<Document>,
} }
table! { LINES = lines[4] {
    job Id, occurrence Number, attempt Int, number Count, timestamp Time, stream Coded<LogStream>,
    message Document,
} }
// In the order of their ids. The numbers and hashes are kept, so that the chain stays verifiable.
table! { AUDIT = audit[1] as AuditColumns, audit_columns, mysql_audit_columns,
    sqlite_audit_columns {
    id AuditKey, at Time, token ShortText, name ShortText, user_id Option<ShortText>, source Option<ShortText>, action ShortText,
    object ShortText, outcome ShortText, details Option<Document>, number Option<Count>, hash Option<Digest>,
} }
table! { AUDIT_CHAIN = audit_chain[1] { name ShortText, number Count, hash Digest } }
const LIVE_BY_LANE: CountedRows = CountedRows { key: Some("lane"), from: "live" };
const LIVE_IN_LINE: CountedRows = CountedRows { key: Some("line"), from: "live WHERE line IS NOT NULL" };
/// Executions that count against the limit of their key, as [`punctual_core::occurrence::Live::counts_for_key`].
const LIVE_IN_LIMIT: CountedRows = CountedRows {
    key: Some("limiter"),
    from: "live WHERE limiter IS NOT NULL AND (state <> 0 OR line <> limiter)",
};
/// Jobs with their stored status, and whether they have open or future occurrences.
pub(crate) const MARKED_JOBS: CountedRows = CountedRows {
    key: None,
    from: "(SELECT mark, CASE WHEN id IN (SELECT job FROM schedules) OR id IN (SELECT job FROM live) \
           THEN 1 ELSE 0 END AS unfinished FROM jobs) AS marked",
};
pub(crate) const DEAD: CountedRows = CountedRows { key: None, from: "dead_letters" };

counters! { $
    /// Live executions of a lane, by state.
    LaneCounts in lane_tallies, each_lane_count {
        waiting = LIVE_BY_LANE if "state = 0",
        queued = LIVE_BY_LANE if "state = 1",
        running = LIVE_BY_LANE if "state = 2",
    }
}
counters! { $
    /// Executions on the wait list of a limiter, and executions that count against it.
    LimiterCounts in limiter_tallies, each_limiter_count {
        waiting = LIVE_IN_LINE,
        in_use = LIVE_IN_LIMIT,
    }
}
counters! { $
    /// Jobs by status, and dead letters.
    JobTally in job_tally, each_job_count {
        active = MARKED_JOBS if "mark = 0 AND unfinished = 1",
        paused = MARKED_JOBS if "mark = 1 AND unfinished = 1",
        completed = MARKED_JOBS if "mark IN (0, 1) AND unfinished = 0",
        failed = MARKED_JOBS if "mark = 2",
        cancelled = MARKED_JOBS if "mark = 3",
        dead_letters = DEAD,
    }
}
// Summed over all writers.
lane_tallies! { LANE_TALLIES[1] { lane Big } }
limiter_tallies! { LIMITER_TALLIES[1] { limiter Big } }
job_tally! { JOB_TALLY[1] { id Bits } }
// The same as they are stored on database servers, where each writer adds to its own shard.
lane_tallies! { SHARDED_LANE_TALLIES[2] { lane Big, shard Shard } }
job_tally! { SHARDED_JOB_TALLY[1] { shard Shard } }
table! { LIMITER_PACES = limiter_paces[1] { limiter Big, last_at Time } }
// Not copied: workers report it again.
table! { SESSION_CONDITIONS = session_conditions[1] { session Session } }
// The last numbers that were assigned: of sessions, and of history that was deleted.
table! { NUMBERS = numbers[1] { name ShortText, given Count } }

/// How many columns a list of a table's columns has: columns of other tables follow it in a row.
impl JobColumns<'_> {
    pub const COUNT: usize = JOBS.columns.len();
}

impl LiveColumns<'_> {
    pub const COUNT: usize = LIVE.columns.len();
}

impl HistoryColumns<'_> {
    pub const COUNT: usize = HISTORY.columns.len();
}

impl DeadLetterColumns<'_> {
    pub const COUNT: usize = DEAD_LETTERS.columns.len();
}

/// Tables that have rows even if nothing was ever stored.
pub(crate) fn is_never_empty(table: &Layout) -> bool {
    matches!(table.name, "job_tally" | "numbers" | "audit_chain")
}
