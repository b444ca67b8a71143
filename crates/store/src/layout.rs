//! The tables that all databases have: the same columns with the same meaning, under the names of
//! PostgreSQL's schema. The `export.rs` of each adapter knows the names that differ.

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// The 16 bytes of a job's id.
    Id,
    Bytes,
    /// A name or another short text.
    Text,
    /// A text that may be long.
    Document,
    Big,
    Int,
    Small,
    Flag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: &'static str,
    pub kind: ColumnKind,
}

/// One value. Flags are numbers, because some databases store true as 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

pub(crate) type Cells = Vec<Cell>;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One table. The first columns are its key, and rows are read in the order of the key.
#[derive(Debug, PartialEq, Eq)]
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
}

macro_rules! layouts {
    ($($table:ident[$key:literal] { $($column:ident $kind:ident),* $(,)? })*) => {
        /// All tables that a data migration copies, in the order of copying.
        pub(crate) static TABLES: &[Layout] = &[$(Layout {
            name: stringify!($table),
            columns: &[$(Column { name: stringify!($column), kind: ColumnKind::$kind }),*],
            key: $key,
        }),*];
    };
}

layouts! {
    lanes[1] { id Big, queue Text, job_type Text }
    workers[1] { id Big, name Text }
    queues[1] { queue Text, paused_at Big, max_depth Big, limits Document, unplaced Document }
    tokens[1] { id Text, secret_sha256 Bytes, role Small, created_at Big }
    jobs[1] {
        id Id, lane Big, created_at Big, version Int, mark Small, priority Small, schedule_type Small, execute_at Big,
        updated_at Big, numbered Big, fired Big, owner Text, name Text, settings Document, payload Document,
    }
    job_tags[2] { tag Text, job Id }
    job_keys[3] { owner Text, kind Small, key Text, job Id }
    schedules[1] {
        job Id, lane Big, fired Big, version Int, job_version Int, segment Small, priority Small, overlap Small,
        ties Small, due_at Big, nominal Big, numbered Big, overlap_limit Big, max_open Big, owner Text,
        schedule Document, replay Document, expiry Document,
    }
    live[2] {
        job Id, occurrence Big, lane Big, rank Big, available_at Big, scheduled_time Big, job_version Int, attempt Int,
        charged Int, epoch Int, segment Small, state Small, gates Small, priority Small, origin Small, ties Small,
        cancel_requested Flag, session Big, claimed_at Big, expires_at Big, look_at Big, limiter Big, line Big,
    }
    dependencies[2] { parent Id, child Id }
    resolutions[1] { parent Id, succeeded Flag }
    notes[2] {
        job Id, occurrence Big, number Big, noted_at Big, epoch Int, attempt Int, percent Small, message Text,
    }
    checkpoints[2] { job Id, occurrence Big, document Document }
    dead_letters[1] {
        number Big, job Id, occurrence Big, scheduled_time Big, died_at Big, attempts Int, epoch Int, origin Small,
        noted Flag, error Document,
    }
    sessions[1] {
        id Big, worker Big, lease_us Big, beat Big, turn Big, opened_at Big, beaten_at Big, slots Big, mode Small,
        embedded Flag, attention Flag, lost Flag, job_types Document, queues Document, version Text, host Text,
    }
    skipped[1] { number Big, job Id, first Big, last Big, count Big, reason Small }
    requests[2] {
        token Text, key Text, fingerprint Bytes, begun_at Big, seed Big, status Int, location Text, body Document,
    }
    // In the order of their numbers, which are kept: a reader that follows events continues where it was.
    history[1] {
        place Big, job Id, occurrence Big, completed_at Big, scheduled_time Big, available_at Big, attempt Int,
        epoch Int, job_version Int, status Small, origin Small, reason Small, started_at Big, session Big, worker Big,
        error Document, result Document,
    }
    lines[4] {
        job Id, occurrence Big, attempt Int, number Big, timestamp Big, stream Small, message Document,
    }
    // Counters, summed over all writers.
    lane_tallies[1] { lane Big, waiting Big, queued Big, running Big }
    limiter_tallies[1] { limiter Big, waiting Big, in_use Big }
    limiter_paces[1] { limiter Big, last_at Big }
    job_tally[1] {
        id Small, active Big, paused Big, completed Big, failed Big, cancelled Big, dead_letters Big,
    }
    // The last numbers that were assigned: of sessions, and of history that was deleted.
    numbers[1] { name Text, given Big }
}

/// Tables that have rows even if nothing was ever stored.
pub(crate) fn is_never_empty(table: &Layout) -> bool {
    matches!(table.name, "job_tally" | "numbers")
}
