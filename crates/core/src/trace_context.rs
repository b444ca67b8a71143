//! W3C Trace Context: the trace that a caller belongs to, how runs of a job relate to it, and the ids of the
//! spans that Punctual adds.
//!
//! The ids of these spans follow from the ids of executions. Every process therefore computes the same ones, a
//! worker can be given the id of an attempt's span before that span exists, and nothing has to be stored for it.

use crate::ids::{Epoch, ExecutionId, JobId, OccurrenceId};
use crate::job::Settings;
use crate::limits;
use crate::occurrence::RunInput;
use crate::schedule::is_due_at_once;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

/// A trace. Zero is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(NonZeroU128);

/// A span within a trace. Zero is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(NonZeroU64);

impl TraceId {
    pub fn new(id: u128) -> Option<Self> {
        NonZeroU128::new(id).map(TraceId)
    }

    /// The trace of a submit that belongs to no other trace, and whose runs have traces of their own.
    pub fn of_submit(job: JobId) -> Self {
        TraceId::derived(b"trace of submit", job.as_bytes())
    }

    /// The trace of an occurrence that extends no other trace.
    pub fn of_run(occurrence: OccurrenceId) -> Self {
        TraceId::derived(b"trace of run", &occurrence_bytes(occurrence))
    }

    fn derived(purpose: &[u8], of: &[u8]) -> Self {
        let hash = derived(purpose, of);
        let id = hash.iter().take(16).fold(0_u128, |id, byte| id << 8 | u128::from(*byte));
        TraceId(NonZeroU128::new(id).unwrap_or(NonZeroU128::MIN))
    }

    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

impl SpanId {
    pub fn new(id: u64) -> Option<Self> {
        NonZeroU64::new(id).map(SpanId)
    }

    /// The span of a submit.
    pub fn of_submit(job: JobId) -> Self {
        SpanId::derived(b"span of submit", job.as_bytes())
    }

    /// The span that the attempts of an occurrence follow, in a trace of its own.
    pub fn of_root(occurrence: OccurrenceId) -> Self {
        SpanId::derived(b"root of run", &occurrence_bytes(occurrence))
    }

    pub fn of_attempt(execution: ExecutionId) -> Self {
        SpanId::derived(b"span of attempt", &execution_bytes(execution))
    }

    /// An execution that is given back is claimed once more.
    pub fn of_claim(execution: ExecutionId, epoch: Epoch) -> Self {
        let claim = [execution_bytes(execution).as_slice(), &epoch.0.to_be_bytes()].concat();
        SpanId::derived(b"span of claim", &claim)
    }

    pub fn of_report(execution: ExecutionId) -> Self {
        SpanId::derived(b"span of report", &execution_bytes(execution))
    }

    fn derived(purpose: &[u8], of: &[u8]) -> Self {
        let hash = derived(purpose, of);
        let id = hash.iter().take(8).fold(0_u64, |id, byte| id << 8 | u64::from(*byte));
        SpanId(NonZeroU64::new(id).unwrap_or(NonZeroU64::MIN))
    }

    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

fn derived(purpose: &[u8], of: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(purpose).chain_update(of).finalize().into()
}

fn occurrence_bytes(OccurrenceId { job, number }: OccurrenceId) -> Vec<u8> {
    [job.as_bytes(), number.to_be_bytes().as_slice()].concat()
}

fn execution_bytes(ExecutionId { occurrence, attempt }: ExecutionId) -> Vec<u8> {
    [occurrence_bytes(occurrence).as_slice(), &attempt.to_be_bytes()].concat()
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A place in a trace: what the headers `traceparent` and `tracestate` carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    /// Whether the spans of the trace are recorded.
    pub is_sampled: bool,
    /// The `tracestate`; empty if there is none.
    state: String,
}

/// The length of a `traceparent` of version 00, which those of later versions begin with.
const PARENT_CHARS: usize = 55;

impl TraceContext {
    pub const fn new(trace: TraceId, span: SpanId, is_sampled: bool) -> Self {
        TraceContext { trace, span, is_sampled, state: String::new() }
    }

    /// The context in these headers; `None` if `traceparent` is invalid, which must be ignored. An invalid
    /// `tracestate` is left out.
    pub fn of_headers(traceparent: &str, tracestate: &str) -> Option<Self> {
        let context = TraceContext::of_parent(traceparent.trim_matches([' ', '\t']))?;
        Some(TraceContext { state: valid_state(tracestate), ..context })
    }

    fn of_parent(text: &str) -> Option<Self> {
        let head = text.get(..PARENT_CHARS)?;
        let mut parts = head.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_shaped =
            [version, trace, span, flags].map(str::len) == [2, 32, 16, 2] && parts.next().is_none();
        let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_shaped || ![version, trace, span, flags].into_iter().all(is_hex) || version == "ff" {
            return None;
        }
        // A later version may add fields; version 00 has none.
        let rest = &text[PARENT_CHARS..];
        if !rest.is_empty() && (version == "00" || !rest.starts_with('-')) {
            return None;
        }
        let trace = TraceId::new(u128::from_str_radix(trace, 16).ok()?)?;
        let span = SpanId::new(u64::from_str_radix(span, 16).ok()?)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(TraceContext::new(trace, span, flags & 1 == 1))
    }

    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }

    pub fn tracestate(&self) -> Option<&str> {
        Some(self.state.as_str()).filter(|state| !state.is_empty())
    }

    /// Another span of the same trace.
    pub fn at(&self, span: SpanId) -> Self {
        TraceContext { span, ..self.clone() }
    }
}

impl TryFrom<String> for TraceContext {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (parent, state) = text.split_once(' ').unwrap_or((&text, ""));
        TraceContext::of_headers(parent, state).ok_or("not a trace context")
    }
}

impl From<TraceContext> for String {
    fn from(context: TraceContext) -> String {
        match context.tracestate() {
            Some(state) => format!("{} {state}", context.traceparent()),
            None => context.traceparent(),
        }
    }
}

/// The list in a `tracestate` without empty members, within the limits; empty if it is invalid. Of a list that is too
/// long, long members are left out first and then those at the end, as the standard recommends.
fn valid_state(text: &str) -> String {
    let mut members: Vec<&str> = text.split(',').map(|member| member.trim_matches([' ', '\t'])).collect();
    members.retain(|member| !member.is_empty());
    if members.len() > limits::TRACESTATE_MEMBERS_MAX || !members.iter().copied().all(is_member) {
        return String::new();
    }
    let length = |members: &[&str]| members.iter().map(|member| member.len() + 1).sum::<usize>();
    if length(&members) > limits::TRACESTATE_BYTES_MAX + 1 {
        members.retain(|member| member.len() <= limits::TRACESTATE_MEMBER_BYTES_MAX);
    }
    while length(&members) > limits::TRACESTATE_BYTES_MAX + 1 {
        members.pop();
    }
    members.join(",")
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_key_char = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let is_value_char = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    let begins_well =
        key.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins_well
        && key.len() <= 256
        && key.bytes().all(is_key_char)
        && (1..=256).contains(&value.len())
        && value.bytes().all(is_value_char)
}

/// The trace that a job was submitted in, kept with the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmittedTrace {
    pub context: TraceContext,
    /// The job was submitted in a batch: its runs link to the trace even if they start at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_batch: bool,
}

/// How a run relates to the trace of the request that asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTrace {
    pub context: TraceContext,
    /// The run has a trace of its own, with a link. Otherwise it extends the trace.
    pub is_linked: bool,
}

impl RunTrace {
    /// A run that the request starts at once extends its trace. The others would extend it by hours or without end:
    /// they link to it.
    pub fn of(settings: &Settings, input: Option<&RunInput>, occurrence: OccurrenceId) -> Option<Self> {
        if let Some(context) = input.and_then(|input| input.trace.clone()) {
            return Some(RunTrace { context, is_linked: false });
        }
        let SubmittedTrace { context, in_batch } = settings.trace.clone()?;
        let is_at_once = occurrence.number == 1 && starts_at_once(settings, occurrence.job);
        Some(RunTrace { context, is_linked: in_batch || !is_at_once })
    }

    /// The part of the trace that a handler may continue if this node records no spans.
    pub fn passed_on(self) -> Option<Self> {
        if self.is_linked { None } else { Some(self) }
    }
}

/// Whether the first run of a job was due when it was submitted: no fire comes before it.
pub fn starts_at_once(settings: &Settings, job: JobId) -> bool {
    is_due_at_once(&settings.schedule, job.made_at())
}

/// The share of traces that are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRatio(f64);

impl SampleRatio {
    pub const ALL: SampleRatio = SampleRatio(1.0);

    /// A share from 0 to 1.
    pub fn new(ratio: f64) -> Option<Self> {
        (0.0..=1.0).contains(&ratio).then_some(SampleRatio(ratio))
    }

    pub const fn get(self) -> f64 {
        self.0
    }

    /// Decides by the id alone, as OpenTelemetry's `TraceIdRatioBased` does, so that every process decides the same.
    pub fn keeps(self, trace: TraceId) -> bool {
        let position = (trace.0.get() as u64) >> 1;
        self.0 >= 1.0 || position < (self.0 * (1_u64 << 63) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use crate::time::Timestamp;
    use proptest::prelude::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parsed(traceparent: &str) -> Option<TraceContext> {
        TraceContext::of_headers(traceparent, "")
    }

    #[test]
    fn a_valid_traceparent_is_repeated() {
        let context = parsed(PARENT).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.traceparent(), PARENT);
        let unsampled = parsed(&PARENT.replace("-01", "-fe")).unwrap();
        assert_eq!(unsampled.traceparent(), PARENT.replace("-01", "-00"), "unknown flags are not passed on");
        let later = parsed(&format!("cc{}-what-follows", &PARENT[2..])).unwrap();
        assert_eq!(later.traceparent(), PARENT);
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        for wrong in [
            "",
            "00",
            &PARENT.to_uppercase(),
            &PARENT[..54],
            &format!("{PARENT}-x"),
            &format!("{PARENT}0"),
            &PARENT.replacen("00", "ff", 1),
            &format!("cc{}.x", &PARENT[2..]),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-101",
            "00-0af7651916cd43dd8448eb211c80319c-+7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b7169203331-01",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_tracestate_is_checked_and_bounded() {
        let state = |text: &str| TraceContext::of_headers(PARENT, text).unwrap().state;
        assert_eq!(
            state("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"),
            "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
        );
        assert_eq!(state(" a=1 ,, b@c=2"), "a=1,b@c=2");
        for wrong in ["a", "A=1", "a=b=c", "a=", "=1", "a=ü", &vec!["a=1"; 33].join(",")] {
            assert_eq!(state(wrong), "", "{wrong}");
        }
        let long = format!("long={},{}", "x".repeat(200), vec!["b=12345678901234567890"; 30].join(","));
        let kept = state(&long);
        assert!(kept.len() <= limits::TRACESTATE_BYTES_MAX && kept.starts_with("b=1"), "{kept}");
        assert_eq!(kept.split(',').count(), 22);
    }

    #[test]
    fn a_stored_context_reads_back() {
        for state in ["", "a=1,b=two words"] {
            let stored =
                SubmittedTrace { context: TraceContext::of_headers(PARENT, state).unwrap(), in_batch: true };
            let text = serde_json::to_string(&stored).unwrap();
            assert_eq!(serde_json::from_str::<SubmittedTrace>(&text).unwrap(), stored, "{text}");
        }
    }

    #[test]
    fn only_runs_that_a_request_starts_at_once_extend_its_trace() {
        let context = parsed(PARENT).unwrap();
        let trace = |in_batch| Some(SubmittedTrace { context: context.clone(), in_batch });
        let job = JobId::new(Timestamp::EPOCH, 1);
        let is_linked = |settings: &Settings, input: Option<&RunInput>, number| {
            RunTrace::of(settings, input, job.occurrence(number)).map(|run| run.is_linked)
        };
        let at_once = Settings { trace: trace(false), ..Settings::default() };
        assert_eq!(is_linked(&at_once, None, 1), Some(false));
        assert_eq!(is_linked(&at_once, None, 2), Some(true), "it was triggered later");
        let due = |us| Schedule::OneTime { at: Timestamp::from_micros(us) };
        let past = Settings { schedule: due(0), ..at_once.clone() };
        assert_eq!(is_linked(&past, None, 1), Some(false), "it was due already");
        let later = Settings { schedule: due(1), ..at_once.clone() };
        assert_eq!(is_linked(&later, None, 1), Some(true));
        assert_eq!(is_linked(&Settings { trace: trace(true), ..at_once }, None, 1), Some(true));
        let input = RunInput { trace: Some(context.clone()), ..RunInput::default() };
        assert_eq!(is_linked(&later, Some(&input), 7), Some(false), "a trigger starts it at once");
        assert_eq!(is_linked(&Settings::default(), None, 1), None);
    }

    #[test]
    fn derived_ids_are_stable_and_differ() {
        let occurrence = JobId::new(Timestamp::from_micros(1), 2).occurrence(3);
        let execution = occurrence.attempt(4);
        assert_eq!(TraceId::of_run(occurrence).to_string(), "283254644ca05872c14620733851e169");
        let spans = [
            SpanId::of_submit(occurrence.job),
            SpanId::of_root(occurrence),
            SpanId::of_attempt(execution),
            SpanId::of_attempt(occurrence.attempt(5)),
            SpanId::of_claim(execution, Epoch(1)),
            SpanId::of_report(execution),
        ];
        assert_eq!(spans.into_iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
        assert_ne!(TraceId::of_submit(occurrence.job), TraceId::of_run(occurrence));
    }

    proptest! {
        #[test]
        fn any_header_is_parsed_or_ignored(parent in ".{0,80}", state in ".{0,700}") {
            let _ = parsed(&parent);
            let context = TraceContext::of_headers(PARENT, &state).unwrap();
            prop_assert!(context.state.len() <= limits::TRACESTATE_BYTES_MAX);
            let text = String::from(context.clone());
            prop_assert_eq!(TraceContext::try_from(text), Ok(context));
        }

        #[test]
        fn a_ratio_keeps_its_share(seed: u64) {
            let kept = |ratio: f64| {
                let ratio = SampleRatio::new(ratio).unwrap();
                let id = |n: u32| TraceId::of_run(JobId::new(Timestamp::EPOCH, seed).occurrence(n));
                (1..=1_000).filter(|n| ratio.keeps(id(*n))).count()
            };
            prop_assert_eq!((kept(0.0), kept(1.0)), (0, 1_000));
            prop_assert!((150..350).contains(&kept(0.25)));
        }
    }
}
