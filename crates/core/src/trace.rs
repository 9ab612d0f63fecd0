//! Traces: the span that a commit or a delivery belongs to, in the format of [W3C Trace Context](https://www.w3.org/TR/trace-context/),
//! and the port that receives ended spans.
//!
//! ```text
//!  request with traceparent ─▶ span of the request ─▶ commit header ─▶ delivery of its event ─▶ span of the delivery ─▶ commit header …
//! ```

use std::fmt;

use bytestring::ByteString;

use crate::NewCommit;

/// The name of the HTTP header, and of the entry in a commit's header.
pub const TRACEPARENT: &str = "traceparent";

/// A trace and a span in it, in lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 32],
    span_id: [u8; 16],
    /// The trace flags, which include whether the trace is recorded.
    flags: [u8; 2],
}

impl TraceContext {
    /// Returns the context of the first span of a trace. Both numbers must be random and not 0.
    pub fn root(trace: u128, span: u64) -> Self {
        let mut context = Self { trace_id: [b'0'; 32], span_id: [b'0'; 16], flags: *b"01" };
        write_hex(&trace.to_be_bytes(), &mut context.trace_id);
        write_hex(&span.to_be_bytes(), &mut context.span_id);
        context
    }

    /// Returns the context of another span of the same trace. The number must be random and not 0.
    pub fn child(&self, span: u64) -> Self {
        let mut context = *self;
        write_hex(&span.to_be_bytes(), &mut context.span_id);
        context
    }

    /// Parses a `traceparent`. Returns `None` if it is invalid, because W3C Trace Context requires receivers to ignore it then.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let known = version != "ff" && (version != "00" || parts.next().is_none());
        let hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let set = |part: &str| part.bytes().any(|b| b != b'0');
        let valid = known && version.len() == 2 && flags.len() == 2 && set(trace_id) && set(span_id);
        let valid = valid && [version, trace_id, span_id, flags].into_iter().all(hex);
        let (trace_id, span_id) = (trace_id.as_bytes().try_into().ok()?, span_id.as_bytes().try_into().ok()?);
        let flags = flags.as_bytes().try_into().ok()?;
        valid.then_some(Self { trace_id, span_id, flags })
    }

    /// Returns the context in the header of a commit, if it contains a valid one.
    pub fn of_header(header: &[(ByteString, ByteString)]) -> Option<Self> {
        let (_, value) = header.iter().find(|(key, _)| key.eq_ignore_ascii_case(TRACEPARENT))?;
        Self::parse(value)
    }

    /// Returns the id of the trace: 32 digits.
    pub fn trace_id(&self) -> &str {
        std::str::from_utf8(&self.trace_id).unwrap_or_default()
    }

    /// Returns the id of the span: 16 digits.
    pub fn span_id(&self) -> &str {
        std::str::from_utf8(&self.span_id).unwrap_or_default()
    }

    /// Returns whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        // The lowest bit of the last digit; `parse` has checked that it is a hexadecimal digit.
        let digit = self.flags[1];
        let value = if digit.is_ascii_digit() { digit - b'0' } else { digit.wrapping_sub(b'a').wrapping_add(10) };
        value & 1 == 1
    }

    /// Writes the span into the header of a commit, so that handlers, followers and consumers of its events can continue the trace. A
    /// header that already names a span, or has no room for one, stays unchanged: a trace never causes a commit to be refused.
    pub fn note(&self, commit: &mut NewCommit) {
        let named = |(key, _): &(ByteString, ByteString)| key.eq_ignore_ascii_case(TRACEPARENT);
        let value = self.to_string();
        let bytes: usize = commit.header.iter().map(|(key, value)| key.len() + value.len()).sum();
        let bytes = bytes + TRACEPARENT.len() + value.len();
        if commit.may_have_header_of(bytes) && !commit.header.iter().any(named) {
            commit.header.push((ByteString::from_static(TRACEPARENT), value.into()));
        }
    }
}

fn write_hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = std::str::from_utf8(&self.flags).unwrap_or_default();
        write!(f, "00-{}-{}-{flags}", self.trace_id(), self.span_id())
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self})")
    }
}

/// A span that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BegunSpan {
    /// The span itself.
    pub context: TraceContext,
    /// The parent span.
    pub parent: Option<TraceContext>,
    /// When it began, in nanoseconds since 1970-01-01 UTC.
    pub began: u64,
}

/// The relation of a span to its parent, as in OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A request that this process answers.
    Server,
    /// An event that a worker processes.
    Consumer,
}

/// The value of an attribute of a span.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue {
    /// A string.
    Text(ByteString),
    /// A number.
    Number(i64),
}

/// A span that ends now.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedSpan {
    /// Its context, its parent, and when it began.
    pub begun: BegunSpan,
    /// The name of the operation, with few distinct values.
    pub name: String,
    /// Its relation to its parent.
    pub kind: SpanKind,
    /// Its attributes.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// Records spans. A process has one recorder or none. Without one, nothing is recorded and contexts are passed on unchanged.
pub trait Spans: Send + Sync + 'static {
    /// Begins a span within `parent`, or in a new trace if absent. Returns `None` if the trace is not recorded.
    fn begin(&self, parent: Option<TraceContext>) -> Option<BegunSpan>;

    /// Takes a span that ends now. Never waits: a span that cannot be queued is dropped and counted.
    fn end(&self, span: EndedSpan);

    /// Returns the number of dropped spans.
    fn dropped(&self) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, NewEvent, limits};

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_context_is_read_or_ignored() {
        let trace = TraceContext::parse(VALID).expect("it can be read");
        assert_eq!((trace.trace_id(), trace.span_id()), (&VALID[3..35], &VALID[36..52]));
        assert_eq!((trace.to_string().as_str(), trace.is_sampled()), (VALID, true));
        // A later version may have more parts.
        assert!(TraceContext::parse(&format!("01{}-x", &VALID[2..])).is_some());
        for (flags, sampled) in [("00", false), ("02", false), ("03", true), ("ff", true), ("fe", false)] {
            let trace = TraceContext::parse(&format!("{}{flags}", &VALID[..53])).expect("it can be read");
            assert_eq!(trace.is_sampled(), sampled, "{flags}");
        }
        for invalid in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
        ] {
            assert_eq!(TraceContext::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_child_has_the_trace_of_its_parent_and_a_span_of_its_own() {
        let root = TraceContext::root(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, 7);
        assert_eq!(root.to_string(), "00-0af7651916cd43dd8448eb211c80319c-0000000000000007-01");
        assert_eq!(root.child(0xb7ad_6b71_6920_3331).to_string(), VALID);
    }

    #[test]
    fn a_commit_that_names_a_span_keeps_it() {
        let (mut commit, trace) = (NewCommit::new("order", "o-1"), TraceContext::parse(VALID).expect("valid"));
        trace.note(&mut commit);
        trace.child(1).note(&mut commit);
        assert_eq!(commit.header, [(TRACEPARENT.into(), VALID.into())]);
        assert_eq!(TraceContext::of_header(&commit.header), Some(trace));
        let mut full = NewCommit::new("order", "o-1");
        full.header.push(("notes".into(), "x".repeat(limits::HEADER_BYTES_MAX - 5).into()));
        trace.note(&mut full);
        assert_eq!((full.header.len(), TraceContext::of_header(&full.header)), (1, None));
        let mut many = NewCommit::new("order", "o-1");
        many.events = vec![NewEvent::new("placed", Data::empty()); 1_000];
        many.header.push(("notes".into(), "x".repeat(limits::COMMIT_BYTES_MAX / 1_000 - 5).into()));
        trace.note(&mut many);
        assert_eq!((many.header.len(), many.validate()), (1, Ok(())));
    }
}
